// A temporary directory with threads in it, and the ways a test talks to the executable.
import { spawn, type ChildProcess } from "node:child_process";
import { createHash } from "node:crypto";
import { constants, existsSync } from "node:fs";
import { chmod, mkdir, mkdtemp, open, readFile, readdir, realpath, rm, writeFile, type FileHandle } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { expect } from "vitest";
import { BIN, ORIGINAL } from "./target.ts";
import { DEADLINE_MS, eventually, ndjson } from "./tools.ts";

export interface Options {
  /** What comes on stdin; without it stdin is empty and closed. */
  input?: string | Buffer;
  /** Leaves stdin open, with nothing in it, for as long as the command runs. */
  holdStdin?: boolean;
  /** Changes to the environment; undefined removes a variable. */
  env?: Record<string, string | undefined>;
  cwd?: string;
}

export interface Result {
  code: number | null;
  signal: NodeJS.Signals | null;
  out: string;
  err: string;
}

export interface NewEvent {
  source?: string;
  type?: string;
  subtype?: string | null;
  content?: unknown;
  key?: string;
}

export interface StoredEvent {
  id: number;
  created_at: string;
  source: string;
  type: string;
  subtype: string | null;
  content: string;
}

export interface Subscription {
  consumer_id: string;
  handler_cmd: string;
  filter: string | null;
  last_acked_id: number;
  updated_at: string | null;
}

export interface Info {
  event_count: number;
  subscriptions: Subscription[];
}

/** A program that is running: its output so far, and its end. */
export class Running {
  out = "";
  err = "";
  readonly done: Promise<Result>;

  constructor(readonly child: ChildProcess) {
    child.stdout?.setEncoding("utf8").on("data", (text: string) => (this.out += text));
    child.stderr?.setEncoding("utf8").on("data", (text: string) => (this.err += text));
    this.done = new Promise((resolve, reject) => {
      child.once("error", reject);
      child.once("close", (code, signal) => resolve({ code, signal, out: this.out, err: this.err }));
    });
    this.done.catch(() => undefined);
  }

  lines(): string[] {
    return this.out.split("\n").slice(0, -1);
  }
}

export class Box {
  /** The thread that most tests use. It does not exist before `init`. */
  readonly thread: string;
  private readonly threads = new Set<string>();
  private readonly fifos: string[] = [];
  private readonly open: FileHandle[] = [];
  private readonly running = new Set<Running>();

  private constructor(readonly dir: string) {
    this.thread = path.join(dir, "t");
  }

  static async create(): Promise<Box> {
    const dir = await realpath(await mkdtemp(path.join(os.tmpdir(), "evp-")));
    const box = new Box(dir);
    // The original cannot be told to leave the notifier alone, so it gets one that does nothing.
    if (ORIGINAL) await box.script("quiet/notifier", "exit 0");
    return box;
  }

  path(...parts: string[]): string {
    return path.join(this.dir, ...parts);
  }

  // Running the executable

  environment(changes: Options["env"] = {}): NodeJS.ProcessEnv {
    const env: NodeJS.ProcessEnv = {};
    for (const [name, value] of Object.entries(process.env)) {
      if (!/^(EVENTQ_|THREAD_|VITEST|NODE_OPTIONS$|NOTIFIER_)/.test(name)) env[name] = value;
    }
    env["EVENTQ_NOTIFIER"] = "none";
    env["THREAD_BIN"] = BIN;
    if (ORIGINAL) env["PATH"] = `${this.path("quiet")}:${env["PATH"] ?? ""}`;
    for (const [name, value] of Object.entries(changes)) {
      if (value === undefined) delete env[name];
      else env[name] = value;
    }
    return env;
  }

  start(args: readonly string[], options: Options = {}, program = BIN): Running {
    const child = spawn(program, args, {
      cwd: options.cwd ?? this.dir,
      env: this.environment(options.env),
      stdio: ["pipe", "pipe", "pipe"],
    });
    // A command may end without reading its stdin; that is its right.
    child.stdin.on("error", () => undefined);
    if (!options.holdStdin) child.stdin.end(options.input ?? "");
    const running = new Running(child);
    this.running.add(running);
    running.done.finally(() => this.running.delete(running)).catch(() => undefined);
    return running;
  }

  async run(args: readonly string[], options: Options = {}, program = BIN): Promise<Result> {
    const running = this.start(args, options, program);
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      running.child.kill("SIGKILL");
      running.child.stdout?.destroy();
      running.child.stderr?.destroy();
    }, DEADLINE_MS);
    try {
      const result = await running.done;
      if (late) throw new Error(`still running after ${DEADLINE_MS / 1000} s: ${args.join(" ")}\n${result.err}`);
      return result;
    } finally {
      clearTimeout(timer);
      running.child.stdin?.destroy();
    }
  }

  /** Runs a command that must succeed in silence on stderr, and returns its stdout. */
  async ok(args: readonly string[], options: Options = {}): Promise<string> {
    const result = await this.run(args, options);
    expect(result, args.join(" ")).toMatchObject({ code: 0, err: "" });
    return result.out;
  }

  /** Runs a command that must fail with `code`, print nothing on stdout and say so in the one form errors have. */
  async fails(code: number, args: readonly string[], options: Options = {}): Promise<{ message: string; suggestion: string }> {
    const result = await this.run(args, options);
    expect(result, args.join(" ")).toMatchObject({ code, out: "" });
    return args.includes("--json") ? jsonError(result.err) : textError(result.err);
  }

  // The commands, with the arguments every test would repeat

  async init(thread = this.thread, ...extra: string[]): Promise<string> {
    const out = await this.ok(["init", thread, ...extra]);
    this.threads.add(thread);
    return out;
  }

  pushArgs(event: NewEvent = {}, thread = this.thread): string[] {
    const args = ["push", "--thread", thread, "--source", event.source ?? "self", "--type", event.type ?? "record"];
    if (typeof event.subtype === "string") args.push("--subtype", event.subtype);
    args.push("--content", typeof event.content === "string" ? event.content : "x");
    if (event.key !== undefined) args.push("--key", event.key);
    return args;
  }

  /** Pushes one event and returns it as stored. */
  async push(event: NewEvent = {}, options: Options = {}, thread = this.thread): Promise<StoredEvent> {
    const out = await this.ok([...this.pushArgs(event, thread), "--json"], options);
    return JSON.parse(out) as StoredEvent;
  }

  /** Pushes many: events, or the bytes of stdin as they are. */
  async batch(events: readonly NewEvent[] | string | Buffer, options: Options = {}, thread = this.thread): Promise<void> {
    const input = typeof events === "string" || Buffer.isBuffer(events) ? events : ndjson(events.map(complete));
    expect(await this.ok(["push", "--thread", thread, "--batch"], { ...options, input })).toBe("");
  }

  /** `count` small events, numbered in their content from 1. */
  async fill(count: number, thread = this.thread): Promise<void> {
    await this.batch(
      Array.from({ length: count }, (_, i) => ({ content: String(i + 1) })),
      {},
      thread,
    );
  }

  async peek(extra: readonly string[] = [], thread = this.thread): Promise<StoredEvent[]> {
    const from = extra.includes("--last") || extra.includes("--last-event-id") ? [] : ["--last-event-id", "0"];
    return events(await this.ok(["peek", "--thread", thread, ...from, ...extra]));
  }

  /** Everything in the thread. */
  all(thread = this.thread): Promise<StoredEvent[]> {
    return this.peek(["--limit", "1000000"], thread);
  }

  async pop(consumer: string, last: number, ...extra: string[]): Promise<StoredEvent[]> {
    return events(await this.ok(["pop", "--thread", this.thread, "--consumer", consumer, "--last-event-id", String(last), ...extra]));
  }

  async subscribe(consumer: string, handler = "true", ...extra: string[]): Promise<void> {
    const out = await this.ok(["subscribe", "--thread", this.thread, "--consumer", consumer, "--handler", handler, ...extra]);
    expect(out).toBe(`Subscribed consumer '${consumer}'\n`);
  }

  async dispatch(options: Options = {}): Promise<void> {
    expect(await this.ok(["dispatch", "--thread", this.thread], options)).toBe("");
  }

  async info(thread = this.thread): Promise<Info> {
    return JSON.parse(await this.ok(["info", "--thread", thread, "--json"])) as Info;
  }

  async acked(consumer: string): Promise<number | undefined> {
    return (await this.info()).subscriptions.find((one) => one.consumer_id === consumer)?.last_acked_id;
  }

  // Files

  /** The lines of a file under the thread; none when there is no such file. */
  async lines(...parts: string[]): Promise<string[]> {
    return linesOf(path.join(this.thread, ...parts));
  }

  log(): Promise<string[]> {
    return this.lines("logs", "thread.log");
  }

  mirror(): Promise<string[]> {
    return this.lines("events.jsonl");
  }

  /** The mirror's files that were rotated away, by the first event in them. */
  async rotated(): Promise<{ name: string; lines: string[] }[]> {
    const names = (await readdir(this.thread)).filter((name) => /^events-.*\.jsonl$/.test(name));
    const files = await Promise.all(names.map(async (name) => ({ name, lines: await this.lines(name) })));
    const first = (file: { lines: string[] }) => (JSON.parse(file.lines[0] ?? '{"id":0}') as StoredEvent).id;
    return files.sort((a, b) => first(a) - first(b));
  }

  /** Every file below a directory with the hash of its bytes. SQLite's shared memory counts by name only. */
  async snapshot(directory = this.thread): Promise<Record<string, string>> {
    const seen: Record<string, string> = {};
    for (const entry of await readdir(directory, { withFileTypes: true, recursive: true })) {
      const full = path.join(entry.parentPath, entry.name);
      const name = path.relative(directory, full);
      if (!entry.isFile()) seen[name] = "directory";
      else if (name.endsWith("-shm")) seen[name] = "shared memory";
      else seen[name] = createHash("sha1").update(await readFile(full)).digest("hex");
    }
    return seen;
  }

  async script(name: string, body: string): Promise<string> {
    const file = this.path(name);
    await mkdir(path.dirname(file), { recursive: true });
    await writeFile(file, `#!/bin/sh\n${body}\n`);
    await chmod(file, 0o755);
    return file;
  }

  /** A gate: `read x < gate` in a shell blocks until `open`. Opened at the end of the test in any case. */
  async gate(name: string): Promise<{ file: string; open: () => Promise<void> }> {
    const file = this.path(name);
    const made = await this.run([file], {}, "mkfifo");
    expect(made.code).toBe(0);
    this.fifos.push(file);
    return { file, open: () => this.openGate(file) };
  }

  /** Runs a few lines of Python with the standard library's sqlite3 on the thread's database. */
  async python(code: string, thread = this.thread): Promise<string> {
    const source = `import json, os, sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\n${code}\ndb.commit()\ndb.close()\n`;
    const result = await this.run(["-c", source, path.join(thread, "events.db")], {}, "python3");
    expect(result).toMatchObject({ code: 0, err: "" });
    return result.out;
  }

  // A fake notifier

  /** Puts a `notifier` first on PATH that notes its arguments and then runs `body`; returns the options to use it. */
  async notifier(body = "exit 0"): Promise<Options> {
    await this.script("bin/notifier", `for word in "$@"; do printf '%s\\n' "$word"; done >> "$NOTIFIER_NOTES"\necho noise\necho noise >&2\n${body}`);
    return {
      env: {
        PATH: `${this.path("bin")}:${process.env["PATH"] ?? ""}`,
        NOTIFIER_NOTES: this.path("notes"),
        EVENTQ_NOTIFIER: undefined,
      },
    };
  }

  /** The calls that the fake notifier has seen, each a list of arguments. */
  async notes(): Promise<string[][]> {
    const words = await linesOf(this.path("notes"));
    const calls: string[][] = [];
    words.forEach((word, i) => {
      if (word === "task" && words[i + 1] === "add") calls.push([]);
      calls.at(-1)?.push(word);
    });
    return calls;
  }

  // The end

  /** Leaves a thread out of the check at the end: the test has broken it on purpose. */
  broken(thread = this.thread): void {
    this.threads.delete(thread);
  }

  /** Adds a thread that was not made by `init`. */
  adopt(thread: string): void {
    this.threads.add(thread);
  }

  async checkAll(): Promise<void> {
    if (ORIGINAL) return;
    for (const thread of this.threads) {
      if (!existsSync(path.join(thread, "events.db"))) continue;
      const result = await this.run(["check", "--thread", thread]);
      expect(result.code, `check after the test: ${result.out}${result.err}`).toBe(0);
    }
  }

  async remove(): Promise<void> {
    for (const running of this.running) running.child.kill("SIGKILL");
    for (const fifo of this.fifos) await this.openGate(fifo);
    await rm(this.dir, { recursive: true, force: true, maxRetries: 50, retryDelay: 20 });
    for (const handle of this.open) await handle.close();
  }

  /** Read-write, so that this neither waits for a reader nor fails without one; left open for readers that come later. */
  private async openGate(file: string): Promise<void> {
    const handle = await open(file, constants.O_RDWR | constants.O_NONBLOCK);
    this.open.push(handle);
    await handle.write("go\n".repeat(50));
  }

  /** Waits until the lines of a file that handlers write pass `enough`. */
  written(name: string, enough: (lines: string[]) => boolean = (lines) => lines.length > 0): Promise<string[]> {
    return eventually(`the right lines in ${name}`, async () => {
      const lines = await linesOf(this.path(name));
      return enough(lines) ? lines : undefined;
    });
  }
}

export function events(out: string): StoredEvent[] {
  if (out === "") return [];
  expect(out.endsWith("\n")).toBe(true);
  return out
    .slice(0, -1)
    .split("\n")
    .map((line) => JSON.parse(line) as StoredEvent);
}

function complete(event: NewEvent): NewEvent {
  return { source: "self", type: "record", content: "x", ...event };
}

function textError(err: string): { message: string; suggestion: string } {
  expect(err).toMatch(/^Error: [^]*\S - \S[^]*\n$/);
  expect(err).not.toMatch(/Traceback|^\s+at .*:\d+/m);
  const [first = "", ...place] = err.trimEnd().split("\n"); // the lines after the first show the place in a filter
  const at = first.lastIndexOf(" - ");
  return { message: [first.slice("Error: ".length, at), ...place].join("\n"), suggestion: first.slice(at + 3) };
}

function jsonError(err: string): { message: string; suggestion: string } {
  const lines = err.split("\n");
  expect(lines.length, err).toBe(2);
  const parsed = JSON.parse(err) as { error: string; suggestion: string };
  expect(Object.keys(parsed)).toEqual(["error", "suggestion"]);
  expect(parsed.error).toMatch(/\S/);
  expect(parsed.suggestion).toMatch(/\S/);
  return { message: parsed.error, suggestion: parsed.suggestion };
}

async function linesOf(file: string): Promise<string[]> {
  try {
    return (await readFile(file, "utf8")).split("\n").slice(0, -1);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw error;
  }
}
