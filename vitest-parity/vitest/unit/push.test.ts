import { writeFile } from "node:fs/promises";
import path from "node:path";
import { beyond, describe, expect, fixture, fixtureJson, ids, ndjson, ORIGINAL, test } from "../helpers/index.ts";

describe("push", () => {
  test("prints nothing", async ({ box }) => {
    await box.init();
    expect(await box.ok(box.pushArgs({ content: "hello" }))).toBe("");
  });

  test("--json prints the stored event as one compact line with its keys in order", async ({ box }) => {
    await box.init();
    const out = await box.ok([...box.pushArgs({ source: "external:telegram:tg-main:dm:alice:alice", type: "message", content: "hi" }), "--json"]);
    const created = (JSON.parse(out) as { created_at: string }).created_at;
    expect(out).toBe(
      `{"id":1,"created_at":"${created}","source":"external:telegram:tg-main:dm:alice:alice","type":"message","subtype":null,"content":"hi"}\n`,
    );
  });

  test("gives an event its time in UTC with milliseconds", async ({ box }) => {
    await box.init();
    const before = Date.now();
    const { created_at } = await box.push();
    const after = Date.now();
    expect(created_at).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    expect(Date.parse(created_at)).toBeGreaterThanOrEqual(before - 1);
    expect(Date.parse(created_at)).toBeLessThanOrEqual(after + 1);
  });

  test("numbers events from 1 upwards, and the same event twice is two events", async ({ box }) => {
    await box.init();
    for (const id of [1, 2, 3]) expect((await box.push({ content: "same" })).id).toBe(id);
    expect(ids(await box.all())).toEqual([1, 2, 3]);
  });

  test("stores what it was given", async ({ box }) => {
    await box.init();
    const stored = await box.push({ source: "internal:dm:default:warden", type: "record", subtype: "toolcall", content: '{"a":1}' });
    expect(await box.all()).toEqual([stored]);
    expect(stored).toMatchObject({ id: 1, source: "internal:dm:default:warden", type: "record", subtype: "toolcall", content: '{"a":1}' });
  });

  test("an absent subtype is null", async ({ box }) => {
    await box.init();
    expect((await box.push()).subtype).toBeNull();
  });

  test("a content that looks like an option is a content", async ({ box }) => {
    await box.init();
    const contents = ["-n", "--json", "--batch", "--", "-", "--content", "--thread=x"];
    for (const content of contents) expect(await box.ok(box.pushArgs({ content }))).toBe("");
    expect((await box.all()).map((event) => event.content)).toEqual(contents);
  });

  test.for([
    ["quotes and backslashes", `"'\\ \\n \\" `],
    ["newlines and tabs", "a\nb\r\nc\td\n"],
    ["every control character a shell can pass", Array.from({ length: 31 }, (_, i) => String.fromCharCode(i + 1)).join("")],
    ["other scripts and emoji", "größe 世界 🎉👩‍👩‍👧 𝒜 e\u0301 \u2028"],
    ["SQL", "'; DROP TABLE events; --"],
    ["shell", "$(touch x) `touch y` ; touch z"],
    ["JSON", '{"a":[1,2,{"b":null}]}'],
    ["blanks only", "   "],
  ] as const)("keeps a content of %s", async ([, content], { box }) => {
    await box.init();
    const line = await box.ok([...box.pushArgs({ content }), "--json"]);
    expect(line).toBe(`${JSON.stringify(JSON.parse(line))}\n`);
    expect((await box.all())[0]?.content).toBe(content);
  });

  test("keeps a content of 100,000 bytes", async ({ box }) => {
    await box.init();
    const content = "0123456789".repeat(10_000);
    await box.push({ content });
    expect((await box.all())[0]?.content).toBe(content);
  });

  test("takes any text as source and type", async ({ box }) => {
    await box.init();
    const stored = await box.push({ source: "Some One/é '\"", type: "whatever you like", subtype: "x y" });
    expect(await box.all()).toEqual([stored]);
    expect(stored).toMatchObject({ source: "Some One/é '\"", type: "whatever you like", subtype: "x y" });
  });

  test("the last of a repeated option wins", async ({ box }) => {
    await box.init();
    await box.ok([...box.pushArgs({ source: "a", content: "first" }), "--content", "second", "--source", "b"]);
    expect((await box.all())[0]).toMatchObject({ source: "b", content: "second" });
  });

  test("takes --option=value", async ({ box }) => {
    await box.init();
    await box.ok(["push", `--thread=${box.thread}`, "--source=self", "--type=record", "--content=a=b"]);
    expect((await box.all())[0]).toMatchObject({ source: "self", type: "record", content: "a=b" });
  });

  test("does not wait for stdin", async ({ box }) => {
    await box.init();
    expect(await box.ok(box.pushArgs({ content: "now" }), { holdStdin: true })).toBe("");
  });

  test("takes a relative thread, with .. and a trailing slash", async ({ box }) => {
    await box.init();
    await box.ok(box.pushArgs({}, "../../t/"), { cwd: path.join(box.thread, "run") });
    await box.ok(box.pushArgs({}, "./t/logs/.."));
    expect(ids(await box.all())).toEqual([1, 2]);
  });

  test("without one of its required options is a usage error and stores nothing", async ({ box }) => {
    await box.init();
    for (const option of ["--thread", "--source", "--type", "--content"]) {
      const args = box.pushArgs();
      args.splice(args.indexOf(option), 2);
      await box.fails(2, args);
    }
    expect(await box.all()).toEqual([]);
  });

  test("eight at once get eight ids", async ({ box }) => {
    await box.init();
    const stored = await Promise.all(Array.from({ length: 8 }, (_, i) => box.push({ content: `from ${i}` })));
    expect(ids(stored).sort((a, b) => a - b)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    expect(await box.all()).toEqual(stored.sort((a, b) => a.id - b.id));
  });

  test("a later event is never older", async ({ box }) => {
    await box.init();
    for (let i = 0; i < 4; i++) await box.push();
    const times = (await box.all()).map((event) => event.created_at);
    expect(times).toEqual([...times].sort());
  });

  test("an empty subtype stays an empty subtype", async ({ box }) => {
    await box.init();
    expect((await box.push({ subtype: "" })).subtype).toBe("");
    expect((await box.all())[0]?.subtype).toBe("");
  });
});

beyond("push --content-file", () => {
  test("stores the bytes of a file, with its last newline", async ({ box }) => {
    await box.init();
    await writeFile(box.path("f"), "one\ntwo\n");
    await box.ok([...box.pushArgs().slice(0, -2), "--content-file", box.path("f")]);
    expect((await box.all())[0]?.content).toBe("one\ntwo\n");
  });

  test("- reads stdin, NUL and CRLF included", async ({ box }) => {
    await box.init();
    await box.ok([...box.pushArgs().slice(0, -2), "--content-file", "-"], { input: "a\0b\r\nc" });
    expect((await box.all())[0]?.content).toBe("a\0b\r\nc");
  });

  test("stores an empty file as an empty content", async ({ box }) => {
    await box.init();
    await box.ok([...box.pushArgs().slice(0, -2), "--content-file", "-"], { input: "" });
    expect((await box.all())[0]?.content).toBe("");
  });

  test("carries more than an argument can", async ({ box }) => {
    await box.init();
    const content = "é0123456789".repeat(300_000);
    await box.ok([...box.pushArgs().slice(0, -2), "--content-file", "-"], { input: content });
    expect((await box.all())[0]?.content === content).toBe(true);
  });

  test("a file that is not there is a logic error", async ({ box }) => {
    await box.init();
    await box.fails(1, [...box.pushArgs().slice(0, -2), "--content-file", box.path("missing")]);
    expect(await box.all()).toEqual([]);
  });

  test("bytes that are not UTF-8 are refused", async ({ box }) => {
    await box.init();
    await box.fails(2, [...box.pushArgs().slice(0, -2), "--content-file", "-"], { input: Buffer.from([0x61, 0xff, 0x62]) });
    expect(await box.all()).toEqual([]);
  });

  test("an event of more than 64 MiB is refused with a clear error", async ({ box }) => {
    await box.init();
    const input = Buffer.alloc(64 * 1024 * 1024 + 1, "x");
    const result = await box.run([...box.pushArgs().slice(0, -2), "--content-file", "-"], { input });
    expect([1, 2]).toContain(result.code);
    expect(result.err).toMatch(/^Error: .+ - .+\n$/);
    expect(await box.all()).toEqual([]);
  });
});

beyond("push --key", () => {
  test("the same key again returns the first event and stores nothing", async ({ box }) => {
    await box.init();
    const first = await box.push({ content: "first", key: "k1" });
    expect(await box.push({ content: "first", key: "k1" })).toEqual(first);
    const other = await box.run([...box.pushArgs({ content: "second", key: "k1", source: "other" }), "--json"]);
    expect(other.code).toBe(0);
    expect(JSON.parse(other.out)).toEqual(first);
    expect(other.err).toMatch(/^Note: key 'k1' belongs to event 1, whose source and content differ; .*\n$/);
    expect(await box.all()).toEqual([first]);
    expect((await box.mirror()).length).toBe(1);
  });

  test("another key and no key are other events", async ({ box }) => {
    await box.init();
    await box.push({ key: "k1" });
    await box.push({ key: "K1" });
    await box.push();
    await box.push();
    expect(ids(await box.all())).toEqual([1, 2, 3, 4]);
  });

  test("works in a batch, within it and across batches", async ({ box }) => {
    await box.init();
    await box.batch([{ content: "a", key: "1" }, { content: "b", key: "2" }, { content: "a", key: "1" }]);
    await box.batch([{ content: "b", key: "2" }, { content: "c", key: "3" }]);
    expect((await box.all()).map((event) => event.content)).toEqual(["a", "b", "c"]);
  });

  test("ten at once with one key store one event", async ({ box }) => {
    await box.init();
    const push = (i: number) => box.run([...box.pushArgs({ content: String(i), key: "only" }), "--json"]);
    const done = await Promise.all(Array.from({ length: 10 }, (_, i) => push(i)));
    expect(done.map((one) => one.code)).toEqual(Array(10).fill(0));
    expect(new Set(done.map((one) => (JSON.parse(one.out) as { content: string }).content)).size).toBe(1);
    expect(done.filter((one) => one.err === "").length).toBe(1);
    expect((await box.all()).length).toBe(1);
  });

  test("--key-strict refuses another event under a key, alone and in a batch, and stores nothing", async ({ box }) => {
    await box.init();
    const first = await box.push({ content: "first", key: "k1" });
    expect(JSON.parse(await box.ok([...box.pushArgs({ content: "first", key: "k1" }), "--key-strict", "--json"]))).toEqual(first);
    const { message } = await box.fails(1, [...box.pushArgs({ content: "second", key: "k1" }), "--key-strict"]);
    expect(message).toContain("event 1");
    const input = ndjson([{ source: "s", type: "t", content: "new", key: "k2" }, { source: "s", type: "t", content: "other", key: "k1" }]);
    const batch = await box.fails(1, ["push", "--thread", box.thread, "--batch", "--key-strict"], { input });
    expect(batch.message).toMatch(/\bline 2\b/);
    expect(await box.all()).toEqual([first]);
  });

  test("a key is not part of the event", async ({ box }) => {
    await box.init();
    expect(Object.keys(await box.push({ key: "k" }))).toEqual(["id", "created_at", "source", "type", "subtype", "content"]);
  });
});

const sources = ORIGINAL ? { valid: [], refused: [] } : await fixtureJson<{ valid: string[]; refused: string[] }>("sources.json");

beyond("push --strict-source", () => {
  test("takes self and every full lower-case address", async ({ box }) => {
    await box.init();
    for (const source of sources.valid) await box.ok([...box.pushArgs({ source }), "--strict-source"]);
    expect((await box.all()).map((event) => event.source)).toEqual(sources.valid);
  });

  test("refuses everything else", async ({ box }) => {
    await box.init();
    for (const source of sources.refused) await box.fails(2, [...box.pushArgs({ source }), "--strict-source"]);
    expect(await box.all()).toEqual([]);
  });

  test("EVENTQ_STRICT_SOURCE=1 does the same", async ({ box }) => {
    await box.init();
    const env = { EVENTQ_STRICT_SOURCE: "1" };
    await box.fails(2, box.pushArgs({ source: "anyone" }), { env });
    await box.ok(box.pushArgs({ source: "self" }), { env });
    expect((await box.all()).map((event) => event.source)).toEqual(["self"]);
  });

  test("refuses a batch for one bad source", async ({ box }) => {
    await box.init();
    const { message } = await box.fails(2, ["push", "--thread", box.thread, "--batch", "--strict-source"], {
      input: '{"source":"self","type":"record","content":"x"}\n{"source":"anyone","type":"record","content":"x"}\n',
    });
    expect(message).toContain("line 2");
    expect(await box.all()).toEqual([]);
  });
});

beyond("push and what it refuses", () => {
  test("an empty content is a content", async ({ box }) => {
    await box.init();
    expect((await box.push({ content: "" })).content).toBe("");
  });

  test("an empty --thread, --source or --type is a usage error", async ({ box }) => {
    await box.init();
    for (const option of ["--thread", "--source", "--type"]) await box.fails(2, [...box.pushArgs(), option, ""]);
    expect(await box.all()).toEqual([]);
  });

  test.for([
    ["--source", "a newline", "a\nb"],
    ["--source", "an escape", "\u001b[31mred"],
    ["--type", "a tab", "a\tb"],
    ["--type", "a delete", "a\u007fb"],
    ["--subtype", "a carriage return", "a\rb"],
  ] as const)("%s with %s is refused", async ([option, , value], { box }) => {
    await box.init();
    await box.fails(2, [...box.pushArgs(), option, value]);
    expect(await box.all()).toEqual([]);
  });

  test("the bytes of every character are the same in push --json, peek and the mirror", async ({ box }) => {
    await box.init();
    const lines: string[] = [];
    for (const line of (await fixture("conversation.ndjson")).toString("utf8").trimEnd().split("\n")) {
      const event = JSON.parse(line) as { source: string; type: string; subtype?: string | null; content: string };
      lines.push(await box.ok([...box.pushArgs(event), "--json"]));
    }
    const peeked = await box.ok(["peek", "--thread", box.thread, "--last-event-id", "0"]);
    expect(peeked).toBe(lines.join(""));
    expect((await box.mirror()).map((line) => `${line}\n`)).toEqual(lines);
  });
});
