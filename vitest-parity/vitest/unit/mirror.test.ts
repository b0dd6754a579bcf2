import { appendFile, rm, truncate, writeFile } from "node:fs/promises";
import path from "node:path";
import { beyond, describe, expect, fixture, test } from "../helpers/index.ts";

const peeked = async (out: Promise<string>) => (await out).split("\n").slice(0, -1);

describe("events.jsonl", () => {
  test("has the lines that peek prints", async ({ box }) => {
    await box.init();
    await box.batch(await fixture("conversation.ndjson"));
    await box.push({ content: "one more" });
    expect(await box.mirror()).toEqual(await peeked(box.ok(["peek", "--thread", box.thread, "--last-event-id", "0"])));
  });

  test("is complete when the push is over", async ({ box }) => {
    await box.init();
    for (const count of [1, 2, 3]) {
      await box.push();
      expect((await box.mirror()).length).toBe(count);
    }
  });

  test("carries every character", async ({ box }) => {
    await box.init();
    await box.batch(await fixture("characters.ndjson"));
    expect(await box.mirror()).toEqual(await peeked(box.ok(["peek", "--thread", box.thread, "--last-event-id", "0"])));
  });

  test("gets nothing from commands that only read", async ({ box }) => {
    await box.init();
    await box.fill(2);
    await box.subscribe("w");
    await box.pop("w", 1);
    await box.info();
    expect((await box.mirror()).length).toBe(2);
  });
});

beyond("events.jsonl follows the database", () => {
  test("pushes at once appear once each and in the order of ids", async ({ box }) => {
    await box.init();
    await Promise.all(Array.from({ length: 12 }, (_, i) => (i % 3 === 0 ? box.fill(5) : box.push())));
    expect(await box.mirror()).toEqual(await peeked(box.ok(["peek", "--thread", box.thread, "--last-event-id", "0"])));
  });

  test("a torn last line is mended by the next push", async ({ box }) => {
    await box.init();
    await box.fill(3);
    const file = path.join(box.thread, "events.jsonl");
    await appendFile(file, '{"id":4,"created_at":"2026-');
    await box.push();
    expect(await box.mirror()).toEqual(await peeked(box.ok(["peek", "--thread", box.thread, "--last-event-id", "0"])));
  });

  test("missing lines at the end are added by the next push", async ({ box }) => {
    await box.init();
    await box.fill(3);
    const first = Buffer.byteLength((await box.mirror())[0] ?? "") + 1;
    await truncate(path.join(box.thread, "events.jsonl"), first + 7);
    await box.push();
    expect(await box.mirror()).toEqual(await peeked(box.ok(["peek", "--thread", box.thread, "--last-event-id", "0"])));
  });

  test("to delete it does no harm", async ({ box }) => {
    await box.init();
    await box.fill(3);
    await rm(path.join(box.thread, "events.jsonl"));
    await box.push();
    expect((await box.all()).length).toBe(4);
    expect(JSON.parse((await box.mirror()).at(-1) ?? "{}")).toMatchObject({ id: 4 });
  });
});

beyond("mirror rebuild", () => {
  test("writes it all again from the database", async ({ box }) => {
    await box.init();
    await box.batch(await fixture("characters.ndjson"));
    const before = await box.mirror();
    await rm(path.join(box.thread, "events.jsonl"));
    await box.ok(["mirror", "rebuild", "--thread", box.thread]);
    expect(await box.mirror()).toEqual(before);
  });

  test("repairs what somebody has written into it", async ({ box }) => {
    await box.init();
    await box.fill(3);
    const before = await box.mirror();
    await writeFile(path.join(box.thread, "events.jsonl"), `${before[0] ?? ""}\nnonsense\n${before[2] ?? ""}\n`);
    expect((await box.run(["check", "--thread", box.thread])).code).toBe(1);
    await box.ok(["mirror", "rebuild", "--thread", box.thread]);
    expect(await box.mirror()).toEqual(before);
  });

  test("of an empty thread makes an empty file, and a push goes on after it", async ({ box }) => {
    await box.init();
    await box.ok(["mirror", "rebuild", "--thread", box.thread]);
    expect(await box.mirror()).toEqual([]);
    await box.push();
    expect((await box.mirror()).length).toBe(1);
  });

  test("after rotations leaves each event once", async ({ box }) => {
    await box.init();
    await box.fill(10_001);
    await box.fill(3);
    await box.ok(["mirror", "rebuild", "--thread", box.thread]);
    const lines = [...(await box.rotated()).flatMap((file) => file.lines), ...(await box.mirror())];
    expect(lines.map((line) => (JSON.parse(line) as { id: number }).id)).toEqual(Array.from({ length: 10_004 }, (_, i) => i + 1));
  });
});
