import { readdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { beyond, describe, expect, ids, test, type StoredEvent } from "../helpers/index.ts";

const NAME = /^events-\d{8}-\d{6}(-\d+)?\.jsonl$/;
const id = (line: string | undefined) => (JSON.parse(line ?? '{"id":0}') as StoredEvent).id;

describe("rotation of events.jsonl", () => {
  test("10,000 lines are not too many", async ({ box }) => {
    await box.init();
    await box.fill(10_000);
    await box.push();
    expect(await box.rotated()).toEqual([]);
    expect((await box.mirror()).length).toBe(10_001);
  });

  test("with more than 10,000 lines the next push begins a new file", async ({ box }) => {
    await box.init();
    await box.fill(10_001);
    expect(await box.rotated()).toEqual([]);
    await box.push({ content: "the next" });
    const old = await box.rotated();
    expect(old.length).toBe(1);
    expect(old[0]?.name).toMatch(NAME);
    expect([old[0]?.lines.length, id(old[0]?.lines[0]), id(old[0]?.lines.at(-1))]).toEqual([10_001, 1, 10_001]);
    expect((await box.mirror()).map(id)).toEqual([10_002]);
  });

  test("the name is the time in UTC", async ({ box }) => {
    await box.init();
    await box.fill(10_001);
    const stamp = () => new Date().toISOString().replaceAll(/[-:]/g, "").replace("T", "-").slice(0, 15);
    const before = stamp();
    await box.push({}, { env: { TZ: "Asia/Kolkata" } });
    const after = stamp();
    const at = (await box.rotated())[0]?.name.slice("events-".length, "events-".length + 15) ?? "";
    expect(at >= before && at <= after, `${before} <= ${at} <= ${after}`).toBe(true);
  });

  test("loses no event of the database", async ({ box }) => {
    await box.init();
    await box.fill(10_001);
    await box.push();
    expect((await box.info()).event_count).toBe(10_002);
    expect(ids(await box.peek(["--last-event-id", "9999", "--limit", "3"]))).toEqual([10_000, 10_001, 10_002]);
  });

  test("a batch is one push: it does not rotate in the middle", async ({ box }) => {
    await box.init();
    await box.fill(25_000);
    expect((await box.rotated()).length).toBe(0);
    expect((await box.mirror()).length).toBe(25_000);
  });
});

beyond("rotation of events.jsonl", () => {
  test("three rotations, as fast as they come, keep every line once and in order", async ({ box }) => {
    await box.init();
    for (let i = 0; i < 3; i++) await box.fill(10_001);
    await box.push();
    const old = await box.rotated();
    expect(old.length).toBe(3);
    for (const file of old) expect(file.name).toMatch(NAME);
    const all = [...old.flatMap((file) => file.lines), ...(await box.mirror())].map(id);
    expect(all).toEqual(Array.from({ length: 30_004 }, (_, i) => i + 1));
  });

  test("pushes at once at the border lose and repeat no line", async ({ box }) => {
    await box.init();
    await box.fill(9_998);
    await Promise.all(Array.from({ length: 10 }, () => box.push()));
    const all = [...(await box.rotated()).flatMap((file) => file.lines), ...(await box.mirror())].map(id);
    expect(all).toEqual(Array.from({ length: 10_008 }, (_, i) => i + 1));
  });
});

describe("rotation of logs/thread.log", () => {
  test("with more than 10,000 lines a new file begins", async ({ box }) => {
    await box.init();
    await box.push();
    const line = "[2026-03-18T10:30:00.123Z] [INFO] push: source=self type=record id=1\n";
    await writeFile(path.join(box.thread, "logs", "thread.log"), line.repeat(10_001));
    await box.push();
    await box.push();
    const names = (await readdir(path.join(box.thread, "logs"))).filter((name) => /^thread-.*\.log$/.test(name));
    expect(names.length).toBe(1);
    expect(names[0]).toMatch(/^thread-\d{8}-\d{6}(-\d+)?\.log$/);
    expect((await box.lines("logs", names[0] ?? "")).length).toBeGreaterThanOrEqual(10_001);
    expect((await box.log()).length).toBeLessThan(10);
  });
});
