import { beyond, describe, expect, fixture, fixtureJson, ids, ndjson, ORIGINAL, test } from "../helpers/index.ts";

const GOOD = '{"source":"self","type":"record","content":"fine"}';
const batch = (thread: string, ...extra: string[]) => ["push", "--thread", thread, "--batch", ...extra];

/** The output with the one thing that differs between runs taken out. */
const timeless = (out: string) => out.replaceAll(/^(\{"id":\d+,"created_at":)"[^"]*"/gm, '$1"*"');

describe("push --batch", () => {
  test("stores the lines in their order and prints nothing", async ({ box }) => {
    await box.init();
    const input = await fixture("conversation.ndjson");
    expect(await box.ok(batch(box.thread), { input })).toBe("");
    const out = await box.ok(["peek", "--thread", box.thread, "--last-event-id", "0"]);
    expect(timeless(out)).toBe((await fixture("conversation.expected.ndjson")).toString("utf8"));
  });

  test("--json prints the count and the first and last id", async ({ box }) => {
    await box.init();
    await box.push();
    const out = await box.ok(batch(box.thread, "--json"), { input: `${GOOD}\n${GOOD}\n${GOOD}\n` });
    expect(out).toBe('{"count":3,"first_id":2,"last_id":4}\n');
  });

  test("carries every character to the byte", async ({ box }) => {
    await box.init();
    await box.batch(await fixture("characters.ndjson"));
    const out = await box.ok(["peek", "--thread", box.thread, "--last-event-id", "0"]);
    expect(timeless(out)).toBe((await fixture("characters.expected.ndjson")).toString("utf8"));
  });

  test("skips blank lines", async ({ box }) => {
    await box.init();
    await box.batch(`\n${GOOD}\n\n  \n${GOOD}\n\n`);
    expect(ids(await box.all())).toEqual([1, 2]);
  });

  test("takes CRLF", async ({ box }) => {
    await box.init();
    await box.batch((await fixture("conversation.ndjson")).toString("utf8").replaceAll("\n", "\r\n"));
    const out = await box.ok(["peek", "--thread", box.thread, "--last-event-id", "0"]);
    expect(timeless(out)).toBe((await fixture("conversation.expected.ndjson")).toString("utf8"));
  });

  test("takes a lone CR as the end of a line, beside the others", async ({ box }) => {
    await box.init();
    await box.batch((await fixture("conversation.ndjson")).toString("utf8").replaceAll("\n", "\r"));
    const out = await box.ok(["peek", "--thread", box.thread, "--last-event-id", "0"]);
    expect(timeless(out)).toBe((await fixture("conversation.expected.ndjson")).toString("utf8"));
    await box.batch(`${GOOD}\r${GOOD}\n\r${GOOD}\r\n${GOOD}`);
    expect((await box.all()).slice(-4).map((event) => event.content)).toEqual(["fine", "fine", "fine", "fine"]);
  });

  test("takes CRLF wherever a read may cut it in two", async ({ box }) => {
    await box.init();
    for (const shift of [0, 1, 2]) await box.batch(`${" ".repeat(shift)}${`${GOOD}\r\n`.repeat(6000)}`);
    expect((await box.info()).event_count).toBe(18_000);
  });

  test.for([
    ["no-break spaces", "\u00a0"],
    ["an ideographic space", "\u3000"],
    ["spaces of typographers", "\u2002\u2009\u200a"],
    ["a byte order mark", "\ufeff"],
  ] as const)("a line of %s only is blank, and around an object they count for nothing", async ([, blank], { box }) => {
    await box.init();
    await box.batch(`${blank}\n${GOOD}\n${blank}\r\n${blank}${GOOD}${blank}\n${blank}`);
    expect(ids(await box.all())).toEqual([1, 2]);
  });

  test("does not need a newline at the end", async ({ box }) => {
    await box.init();
    await box.batch(`${GOOD}\n${GOOD}`);
    expect(ids(await box.all())).toEqual([1, 2]);
  });

  test.for([
    ["nothing", ""],
    ["blank lines only", "\n \n\r\n"],
  ] as const)("%s on stdin is a success that does nothing", async ([, input], { box }) => {
    await box.init();
    await box.batch(input);
    expect(await box.all()).toEqual([]);
    expect(await box.mirror()).toEqual([]);
  });

  test("ignores --content", async ({ box }) => {
    await box.init();
    await box.ok(batch(box.thread, "--content", "ignored"), { input: `${GOOD}\n` });
    expect((await box.all()).map((event) => event.content)).toEqual(["fine"]);
  });

  test("ignores keys it does not know, and the order of keys", async ({ box }) => {
    await box.init();
    await box.batch('{"extra":{"a":1},"content":"c","type":"t","id":77,"created_at":"1999","source":"s"}\n');
    const [event] = await box.all();
    expect(event).toMatchObject({ id: 1, source: "s", type: "t", subtype: null, content: "c" });
    expect(event?.created_at).not.toBe("1999");
  });

  test("a null subtype and an absent one are null", async ({ box }) => {
    await box.init();
    await box.batch([{ subtype: null }, {}, { subtype: "" }, { subtype: "x" }]);
    expect((await box.all()).map((event) => event.subtype)).toEqual([null, null, "", "x"]);
  });

  test("twenty thousand lines go in at once", async ({ box }) => {
    await box.init();
    await box.fill(20_000);
    expect((await box.info()).event_count).toBe(20_000);
    expect((await box.peek(["--last-event-id", "19998"])).map((event) => event.content)).toEqual(["19999", "20000"]);
  });

  test("two at once do not mix", async ({ box }) => {
    await box.init();
    const many = (name: string) => ndjson(Array.from({ length: 200 }, () => ({ source: name, type: "t", content: "x" })));
    await Promise.all([box.batch(many("a")), box.batch(many("b"))]);
    const stored = await box.all();
    expect(stored.length).toBe(400);
    const changes = stored.filter((event, i, all) => i > 0 && all[i - 1]?.source !== event.source).length;
    expect(changes).toBe(1);
  });

  test("one bad line among good ones refuses them all", async ({ box }) => {
    await box.init();
    const result = await box.run(batch(box.thread), { input: `${GOOD}\n${GOOD}\nnonsense\n${GOOD}\n` });
    expect(result.code).not.toBe(0);
    expect(result.out).toBe("");
    expect(await box.all()).toEqual([]);
    expect(await box.mirror()).toEqual([]);
  });

  test("after a refused batch the next event is number 1", async ({ box }) => {
    await box.init();
    await box.run(batch(box.thread), { input: `${GOOD}\nnonsense\n` });
    expect((await box.push()).id).toBe(1);
  });
});

const bad = ORIGINAL ? [] : await fixtureJson<{ what: string; line: string }[]>("bad-lines.json");

beyond("push --batch and what it refuses", () => {
  const kinds: [string, RegExp][] = [
    ["is not one JSON value", /JSON|object on|comma|quotes/],
    ["is not an object", /^(an array|a string|a number|null)$/],
    ["lacks a field", /^no /],
    ["has a field of the wrong kind", /^an empty|of null|that is/],
    ["has a character that cannot be", /surrogate|control|NUL/],
  ];
  test.for(kinds)("a line that %s is refused with its number, and nothing is stored", async ([, pattern], { box }) => {
    await box.init();
    const some = bad.filter((one) => pattern.test(one.what));
    expect(some.length).toBeGreaterThan(2);
    for (const { what, line } of some) {
      const { message } = await box.fails(2, batch(box.thread), { input: `${GOOD}\n${GOOD}\n${line}\n${GOOD}\n` });
      expect(message, what).toMatch(/\bline 3\b/);
    }
    expect(await box.all()).toEqual([]);
  });

  test("bytes that are not UTF-8 are refused with their line number", async ({ box }) => {
    await box.init();
    const input = Buffer.concat([Buffer.from(`${GOOD}\n{"source":"self","type":"record","content":"`), Buffer.from([0xc3, 0x28]), Buffer.from('"}\n')]);
    const { message } = await box.fails(2, batch(box.thread), { input });
    expect(message).toMatch(/\bline 2\b/);
    expect(await box.all()).toEqual([]);
  });

  test("lines are counted as an editor counts them, blank ones too", async ({ box }) => {
    await box.init();
    const { message } = await box.fails(2, batch(box.thread), { input: `\n${GOOD}\r\n\n\nnonsense\n` });
    expect(message).toMatch(/\bline 5\b/);
  });

  test("with --json the error is JSON and names the line too", async ({ box }) => {
    await box.init();
    const { message } = await box.fails(2, batch(box.thread, "--json"), { input: `${GOOD}\nnonsense\n` });
    expect(message).toMatch(/\bline 2\b/);
  });

  test("a bad line after ten thousand good ones leaves nothing behind", async ({ box }) => {
    await box.init();
    const { message } = await box.fails(2, batch(box.thread), { input: `${`${GOOD}\n`.repeat(10_000)}nonsense\n` });
    expect(message).toMatch(/\bline 10001\b/);
    expect(await box.all()).toEqual([]);
    expect(await box.mirror()).toEqual([]);
  });

  test("nothing on stdin with --json is a count of 0 or no output at all", async ({ box }) => {
    await box.init();
    const out = await box.ok(batch(box.thread, "--json"), { input: "" });
    if (out !== "") expect(JSON.parse(out)).toMatchObject({ count: 0 });
  });
});

beyond("push --batch and a content that is not a string", () => {
  test("becomes its JSON text as written", async ({ box }) => {
    await box.init();
    await box.batch(await fixture("shapes.ndjson"));
    const out = await box.ok(["peek", "--thread", box.thread, "--last-event-id", "0"]);
    expect(timeless(out)).toBe((await fixture("shapes.expected.ndjson")).toString("utf8"));
  });
});
