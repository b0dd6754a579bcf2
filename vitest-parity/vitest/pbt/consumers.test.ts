import fc from "fast-check";
import { name } from "../helpers/arbitraries.ts";
import { beyond, describe, expect, ids, ORIGINAL, test } from "../helpers/index.ts";

describe("pages", () => {
  test("of any size read every event once and in order", async ({ box }) => {
    await box.init();
    await box.fill(23);
    let run = 0;
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 1, max: 30 }), fc.nat(23), async (limit, start) => {
        const consumer = `w${run++}`;
        await box.subscribe(consumer);
        const seen: number[] = [];
        for (let last = start; ; ) {
          const page = await box.pop(consumer, last, "--limit", String(limit));
          expect(page.length).toBe(Math.min(limit, 23 - last));
          if (page.length === 0) break;
          seen.push(...ids(page));
          last = page.at(-1)?.id ?? last;
        }
        expect(seen).toEqual(Array.from({ length: 23 - start }, (_, i) => start + i + 1));
        expect(await box.acked(consumer)).toBe(23);
      }),
      { numRuns: 10 },
    );
  });

  test("behind a filter read every match once and in order, while others push", async ({ box }) => {
    await box.init();
    await box.subscribe("w", "true", "--filter", "type = 'a'");
    let last = 0;
    let next = 1;
    await fc.assert(
      fc.asyncProperty(fc.array(fc.constantFrom("a", "b"), { maxLength: 12 }), fc.integer({ min: 1, max: 5 }), async (types, limit) => {
        const expected = types.flatMap((type, i) => (type === "a" ? [next + i] : []));
        await box.batch(types.map((type) => ({ type })));
        next += types.length;
        const seen: number[] = [];
        for (;;) {
          const page = await box.pop("w", last, "--limit", String(limit));
          if (page.length === 0) break;
          seen.push(...ids(page));
          last = page.at(-1)?.id ?? last;
        }
        expect(seen).toEqual(expected);
      }),
      { numRuns: 8 },
    );
  });

  test("of peek are those of pop", async ({ box }) => {
    await box.init();
    await box.fill(15);
    await box.subscribe("w");
    await fc.assert(
      fc.asyncProperty(fc.nat(15), fc.integer({ min: 1, max: 20 }), async (last, limit) => {
        const page = await box.pop("w", last, "--limit", String(limit));
        expect(page).toEqual(await box.peek(["--last-event-id", String(last), "--limit", String(limit)]));
      }),
      { numRuns: 15 },
    );
  });
});

type Step =
  | { kind: "write"; count: number }
  | { kind: "read"; command: "pop" | "ack"; who: "a" | "b"; at: number; limit: number }
  | { kind: "change"; command: "subscribe" | "unsubscribe"; who: "a" | "b" };

describe("acks", () => {
  test("any course of pushes, pops, acks, subscribes and unsubscribes agrees with a small model", async ({ box }) => {
    const who = fc.constantFrom("a" as const, "b" as const);
    const reader = ORIGINAL ? fc.constant("pop" as const) : fc.constantFrom("pop" as const, "ack" as const);
    const step: fc.Arbitrary<Step> = fc.oneof(
      { weight: 2, arbitrary: fc.record({ kind: fc.constant("write" as const), count: fc.integer({ min: 1, max: 4 }) }) },
      {
        weight: 5,
        arbitrary: fc.record({ kind: fc.constant("read" as const), command: reader, who, at: fc.nat(12), limit: fc.integer({ min: 1, max: 5 }) }),
      },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant("change" as const), command: fc.constantFrom("subscribe" as const, "unsubscribe" as const), who }) },
    );
    let run = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 3, maxLength: 9 }), async (steps) => {
        const thread = box.path(`t-${run++}`);
        await box.init(thread);
        let newest = 0;
        const subscribed = new Set<string>();
        const acked: Record<string, number> = { a: 0, b: 0 };
        const at = (...args: string[]) => [args[0] ?? "", "--thread", thread, ...args.slice(1)];
        await box.ok(at("subscribe", "--consumer", "a", "--handler", "true"));
        subscribed.add("a");
        for (const one of steps) {
          if (one.kind === "write") {
            await box.fill(one.count, thread);
            newest += one.count;
          } else if (one.kind === "change") {
            const args = at(one.command, "--consumer", one.who, ...(one.command === "subscribe" ? ["--handler", "true"] : []));
            if (subscribed.has(one.who) === (one.command === "subscribe")) await box.fails(1, args);
            else await box.ok(args);
            if (one.command === "subscribe") subscribed.add(one.who);
            else subscribed.delete(one.who);
          } else {
            // The original takes any id; eventq refuses one that does not exist yet.
            const last = ORIGINAL ? Math.min(one.at, newest) : one.at;
            const args = at(one.command, "--consumer", one.who, "--last-event-id", String(last), ...(one.command === "pop" ? ["--limit", String(one.limit)] : []));
            if (!subscribed.has(one.who) || last > newest) {
              await box.fails(1, args);
            } else {
              const out = await box.ok(args);
              acked[one.who] = last;
              const expected = one.command === "ack" ? [] : Array.from({ length: Math.min(one.limit, newest - last) }, (_, i) => last + i + 1);
              expect([...out.matchAll(/^\{"id":(\d+),/gm)].map((match) => Number(match[1]))).toEqual(expected);
            }
          }
        }
        const info = await box.info(thread);
        expect(info.event_count).toBe(newest);
        expect(new Set(info.subscriptions.map((one) => one.consumer_id))).toEqual(subscribed);
        for (const one of info.subscriptions) expect(one.last_acked_id).toBe(acked[one.consumer_id]);
      }),
      { numRuns: 15 },
    );
  });
});

describe("consumer ids", () => {
  test("of any printable text are subscribed, listed, popped for and unsubscribed", async ({ box }) => {
    await box.init();
    await box.fill(1);
    await fc.assert(
      fc.asyncProperty(name, async (consumer) => {
        await box.subscribe(consumer);
        expect((await box.info()).subscriptions.map((one) => one.consumer_id)).toEqual([consumer]);
        expect(ids(await box.pop(consumer, 0))).toEqual([1]);
        expect(await box.ok(["unsubscribe", "--thread", box.thread, "--consumer", consumer])).toBe(`Unsubscribed consumer '${consumer}'\n`);
      }),
      { numRuns: 15 },
    );
  });
});

beyond("consumer ids", () => {
  test("with a control character in them are refused", async ({ box }) => {
    await box.init();
    const control = fc.integer({ min: 1, max: 31 }).map((code) => String.fromCharCode(code));
    await fc.assert(
      fc.asyncProperty(name, control, name, async (before, character, after) => {
        await box.fails(2, ["subscribe", "--thread", box.thread, "--consumer", `${before}${character}${after}`, "--handler", "true"]);
      }),
      { numRuns: 15 },
    );
    expect((await box.info()).subscriptions).toEqual([]);
  });
});
