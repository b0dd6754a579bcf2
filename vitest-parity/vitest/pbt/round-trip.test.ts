import fc from "fast-check";
import { argument, event, text } from "../helpers/arbitraries.ts";
import { beyond, describe, expect, ndjson, test } from "../helpers/index.ts";

describe("content", () => {
  test("what goes in through a batch comes out of peek, pop and the mirror", async ({ box }) => {
    let run = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(text, { minLength: 1, maxLength: 40 }), async (contents) => {
        const thread = box.path(`batch-${run++}`);
        await box.init(thread);
        await box.batch(contents.map((content) => ({ content })), {}, thread);
        const out = await box.ok(["peek", "--thread", thread, "--last-event-id", "0"]);
        const lines = out.split("\n").slice(0, -1);
        expect(lines.map((line) => (JSON.parse(line) as { content: string }).content)).toEqual(contents);
        for (const line of lines) expect(line).toBe(JSON.stringify(JSON.parse(line)));
        await box.ok(["subscribe", "--thread", thread, "--consumer", "w", "--handler", "true"]);
        expect(await box.ok(["pop", "--thread", thread, "--consumer", "w", "--last-event-id", "0"])).toBe(out);
      }),
      { numRuns: 15 },
    );
  });

  test("what goes in as an argument comes out", async ({ box }) => {
    await box.init();
    await fc.assert(
      fc.asyncProperty(
        argument.filter((content) => content !== ""),
        async (content) => {
          const stored = await box.push({ content });
          expect(stored.content).toBe(content);
          expect(await box.peek(["--last-event-id", String(stored.id - 1)])).toEqual([stored]);
        },
      ),
      { numRuns: 25 },
    );
  });

  test("JSON may be escaped in any way a writer likes", async ({ box }) => {
    await box.init();
    const escaped = (content: string) =>
      JSON.stringify(content).replace(/[^\x20-\x7e]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}`);
    let last = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(text, { minLength: 1, maxLength: 20 }), async (contents) => {
        await box.batch(contents.map((content) => `{ "content" : ${escaped(content)}, "source":"\\u0073elf" ,"type":"t"}\n`).join(""));
        const stored = await box.peek(["--last-event-id", String(last)]);
        last = stored.at(-1)?.id ?? last;
        expect(stored.map((one) => one.content)).toEqual(contents);
      }),
      { numRuns: 15 },
    );
  });
});

describe("whole events", () => {
  test("keep every field", async ({ box }) => {
    await box.init();
    let last = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(event, { minLength: 1, maxLength: 25 }), async (events) => {
        await box.batch(events);
        const stored = await box.peek(["--last-event-id", String(last)]);
        last = stored.at(-1)?.id ?? last;
        expect(stored.map(({ source, type, subtype, content }) => ({ source, type, subtype, content }))).toEqual(events);
      }),
      { numRuns: 15 },
    );
  });

  test("a batch is the same as its events one by one", async ({ box }) => {
    let run = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(event, { minLength: 1, maxLength: 4 }), async (drawn) => {
        const events = drawn.map((one) => ({ ...one, content: one.content.replaceAll("\0", "0") || "0" }));
        const [together, apart] = [box.path(`together-${run}`), box.path(`apart-${run++}`)];
        await Promise.all([box.init(together), box.init(apart)]);
        await box.batch(events, {}, together);
        for (const one of events) await box.push(one, {}, apart);
        const timeless = async (thread: string) => (await box.all(thread)).map((one) => ({ ...one, created_at: "" }));
        expect(await timeless(together)).toEqual(await timeless(apart));
      }),
      { numRuns: 8 },
    );
  });

  test("blank lines and line ends between events change nothing", async ({ box }) => {
    await box.init();
    let last = 0;
    const gap = fc.constantFrom("\n", "\r\n", "\n\n", "\n  \r\n", "\r\n\n\t\n");
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(event, gap), { minLength: 1, maxLength: 10 }), async (pairs) => {
        await box.batch(pairs.map(([one, between]) => ndjson([one]).trimEnd() + between).join(""));
        const stored = await box.peek(["--last-event-id", String(last)]);
        last = stored.at(-1)?.id ?? last;
        expect(stored.map((one) => one.content)).toEqual(pairs.map(([one]) => one.content));
      }),
      { numRuns: 10 },
    );
  });
});

beyond("content files and bad batches", () => {
  test("what goes in through stdin comes out", async ({ box }) => {
    await box.init();
    await fc.assert(
      fc.asyncProperty(text, async (content) => {
        await box.ok(["push", "--thread", box.thread, "--source", "self", "--type", "t", "--content-file", "-"], { input: content });
        expect((await box.peek(["--last", "1"]))[0]?.content).toBe(content);
      }),
      { numRuns: 20 },
    );
  });

  test("one bad line anywhere refuses the batch and names its line", async ({ box }) => {
    await box.init();
    const badLine = fc.constantFrom("nonsense", "[]", "{}", '{"source":"self","type":"t"}', '{"source":"","type":"t","content":"x"}', '{"source":"self","type":"t","content":null}');
    await fc.assert(
      fc.asyncProperty(fc.array(event, { maxLength: 12 }), fc.nat(12), badLine, async (events, at, bad) => {
        const lines = events.map((one) => JSON.stringify(one));
        const index = Math.min(at, lines.length);
        lines.splice(index, 0, bad);
        const { message } = await box.fails(2, ["push", "--thread", box.thread, "--batch"], { input: `${lines.join("\n")}\n` });
        expect(message).toMatch(new RegExp(`\\bline ${index + 1}\\b`));
      }),
      { numRuns: 20 },
    );
    expect(await box.all()).toEqual([]);
  });

  test("random bytes are never stored half", async ({ box }) => {
    await box.init();
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ minLength: 1, maxLength: 200 }), async (bytes) => {
        const good = Buffer.from('{"source":"self","type":"t","content":"x"}\n');
        await box.fails(2, ["push", "--thread", box.thread, "--batch"], { input: Buffer.concat([good, Buffer.from("!"), bytes, Buffer.from("\n"), good]) });
      }),
      { numRuns: 15 },
    );
    expect(await box.all()).toEqual([]);
  });
});
