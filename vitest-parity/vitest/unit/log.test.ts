import { mkdir, rm } from "node:fs/promises";
import path from "node:path";
import { beyond, describe, expect, test } from "../helpers/index.ts";

const LINE = /^\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\] \[(DEBUG|INFO|WARN|ERROR)\] \S.*$/;

describe("logs/thread.log", () => {
  test("has a line for a push", async ({ box }) => {
    await box.init();
    await box.push({ source: "external:telegram:tg-main:dm:alice:alice", type: "message" });
    const lines = (await box.log()).filter((line) => line.includes("[INFO] push: source=external:telegram:tg-main:dm:alice:alice type=message id=1"));
    expect(lines.length).toBe(1);
  });

  test("every line has a time and a level", async ({ box }) => {
    await box.init();
    await box.push();
    await box.fill(2);
    await box.subscribe("w");
    await box.pop("w", 1);
    const lines = await box.log();
    expect(lines.length).toBeGreaterThan(0);
    for (const line of lines) expect(line).toMatch(LINE);
  });

  test("is not written by peek and info", async ({ box }) => {
    await box.init();
    await box.push();
    const before = await box.log();
    await box.peek([]);
    await box.info();
    expect(await box.log()).toEqual(before);
  });
});

beyond("logs/thread.log", () => {
  test("has a line for a batch", async ({ box }) => {
    await box.init();
    await box.push();
    await box.fill(3);
    expect((await box.log()).filter((line) => line.endsWith("[INFO] push batch: count=3 last_id=4")).length).toBe(1);
  });

  test("has whole lines when many write at once", async ({ box }) => {
    await box.init();
    await Promise.all(Array.from({ length: 12 }, (_, i) => box.push({ source: `writer-${i}` })));
    const lines = await box.log();
    for (const line of lines) expect(line).toMatch(LINE);
    expect(lines.filter((line) => line.includes("push: source=writer-")).length).toBe(12);
  });

  test("keeps one line a fact when a handler has several lines", async ({ box }) => {
    await box.init();
    await box.fill(1);
    const ack = `"$THREAD_BIN" pop --thread "$EVENTQ_THREAD" --consumer w --last-event-id 1`;
    await box.subscribe("w", `true\n# [INFO] forged\n${ack}\necho ran >> "${box.path("out")}"`);
    await box.dispatch();
    await box.written("out");
    for (const line of await box.log()) expect(line).toMatch(LINE);
  });

  test("that cannot be written does not fail a command", async ({ box }) => {
    await box.init();
    await rm(path.join(box.thread, "logs", "thread.log"), { force: true });
    await mkdir(path.join(box.thread, "logs", "thread.log"));
    expect((await box.run(box.pushArgs())).code).toBe(0);
    expect((await box.all()).length).toBe(1);
  });

  test("and its directory come back when they are deleted", async ({ box }) => {
    await box.init();
    await box.push();
    await rm(path.join(box.thread, "logs"), { recursive: true });
    expect((await box.run(box.pushArgs())).code).toBe(0);
    expect((await box.all()).length).toBe(2);
  });
});
