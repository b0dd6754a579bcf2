// Small pure things, and the one way to wait.
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { FIXTURES } from "./target.ts";

/** How long anything may take before a test gives up; generous, so that a slow machine never fails a test. */
export const DEADLINE_MS = 60_000;

/** Looks every 20 ms until `look` returns something truthy, and returns that. */
export async function eventually<T>(what: string, look: () => T | Promise<T>): Promise<NonNullable<T>> {
  const end = Date.now() + DEADLINE_MS;
  for (;;) {
    const seen = await look();
    if (seen) return seen;
    if (Date.now() > end) throw new Error(`waited ${DEADLINE_MS / 1000} s in vain: ${what}`);
    await pause(20);
  }
}

/** The word as one word of sh. */
export function quote(word: string): string {
  return `'${word.replaceAll("'", `'\\''`)}'`;
}

/** The name under which the notifier queues the dispatch of a thread. */
export function slug(absolutePath: string): string {
  const plain = absolutePath.replace(/[^A-Za-z0-9]/g, "-");
  if (plain.length <= 40) return plain;
  return `${plain.slice(0, 32)}-${createHash("sha1").update(absolutePath).digest("hex").slice(0, 6)}`;
}

/** One JSON value a line. */
export function ndjson(values: readonly unknown[]): string {
  return values.map((value) => `${JSON.stringify(value)}\n`).join("");
}

export function ids(events: readonly { id: number }[]): number[] {
  return events.map((event) => event.id);
}

export function fixture(name: string): Promise<Buffer> {
  return readFile(path.join(FIXTURES, name));
}

export async function fixtureJson<T>(name: string): Promise<T> {
  return JSON.parse((await fixture(name)).toString("utf8")) as T;
}

/** A shell command that says: everything up to `id` is done. */
export function ackCommand(thread: string, consumer: string, id: number): string {
  return `"$THREAD_BIN" pop --thread ${quote(thread)} --consumer ${quote(consumer)} --last-event-id ${id} >/dev/null`;
}

/** A shell command that reads all there is, page by page, and writes the events to `out`: the usual handler. */
export function drainCommand(thread: string, consumer: string, out: string, limit = 100): string {
  const pop = `"$THREAD_BIN" pop --thread ${quote(thread)} --consumer ${quote(consumer)} --limit ${limit} --last-event-id "$last"`;
  return [
    `last="$EVENTQ_LAST_ACKED_ID"`,
    `while page=$(${pop}) && [ -n "$page" ]; do printf '%s\\n' "$page" >> ${quote(out)}`,
    `last=$(printf '%s\\n' "$page" | tail -n 1 | sed 's/^{"id":\\([0-9]*\\),.*/\\1/')`,
    `done`,
  ].join("; ");
}
