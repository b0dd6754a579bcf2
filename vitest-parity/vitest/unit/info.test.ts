import { beyond, describe, expect, test } from "../helpers/index.ts";

describe("info", () => {
  test("of an empty thread", async ({ box }) => {
    await box.init();
    const lines = (await box.ok(["info", "--thread", box.thread])).split("\n");
    expect(lines.slice(0, 3)).toEqual([`Thread: ${box.thread}`, "Events: 0", "Subscriptions: 0"]);
  });

  test("lists consumers with their handler, filter and progress", async ({ box }) => {
    await box.init();
    await box.fill(3);
    await box.subscribe("worker-1", "echo hi");
    await box.subscribe("worker-2", "cat | tr a b", "--filter", "type = 'message'");
    await box.pop("worker-1", 2);
    const text = await box.ok(["info", "--thread", box.thread]);
    const at = (await box.info()).subscriptions[0]?.updated_at ?? "";
    expect(at).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    expect(text).toContain(
      `Thread: ${box.thread}\nEvents: 3\nSubscriptions: 2\n  - worker-1\n    handler: echo hi\n    filter:  (none)\n    last_acked_id: 2\n    updated_at: ${at}\n`,
    );
    expect(text).toContain("  - worker-2\n    handler: cat | tr a b\n    filter:  type = 'message'\n    last_acked_id: 0\n    updated_at: (never)\n");
    expect(text.indexOf("worker-1")).toBeLessThan(text.indexOf("worker-2"));
  });

  test("--json starts with event_count and subscriptions", async ({ box }) => {
    await box.init();
    await box.fill(2);
    await box.subscribe("w", "echo hi", "--filter", "id > 0");
    const out = await box.ok(["info", "--thread", box.thread, "--json"]);
    const info = JSON.parse(out) as { event_count: number; subscriptions: Record<string, unknown>[] };
    expect(info.event_count).toBe(2);
    expect(info.subscriptions.length).toBe(1);
    expect(info.subscriptions[0]).toMatchObject({ consumer_id: "w", handler_cmd: "echo hi", filter: "id > 0", last_acked_id: 0, updated_at: null });
  });

  test("--json of an empty thread", async ({ box }) => {
    await box.init();
    expect(await box.info()).toMatchObject({ event_count: 0, subscriptions: [] });
  });

  test("shows the thread's resolved path", async ({ box }) => {
    await box.init();
    expect(await box.ok(["info", "--thread", "./x/../t/"])).toMatch(`Thread: ${box.thread}\n`);
  });

  test("counts every event, whatever was popped", async ({ box }) => {
    await box.init();
    await box.fill(4);
    await box.subscribe("w");
    await box.pop("w", 4);
    expect((await box.info()).event_count).toBe(4);
  });

  test("shows an empty filter as it was given", async ({ box }) => {
    await box.init();
    await box.subscribe("w", "true", "--filter", "");
    expect(await box.ok(["info", "--thread", box.thread])).toContain("    handler: true\n    filter:  \n    last_acked_id: 0\n");
    expect((await box.info()).subscriptions[0]?.filter).toBe("");
  });

  test("without --thread is a usage error", async ({ box }) => {
    await box.fails(2, ["info"]);
    await box.fails(2, ["info", "--json"]);
  });
});

beyond("info", () => {
  test("of a file in a thread names the thread's directory", async ({ box }) => {
    await box.init();
    for (const name of ["events.db", "events.jsonl"]) {
      const { suggestion } = await box.fails(1, ["info", "--thread", `${box.thread}/${name}`]);
      expect(suggestion).toContain(`--thread ${box.thread}`);
      expect(suggestion).not.toContain("init");
    }
  });

  test("the keys of a subscription start with the five known ones, in order", async ({ box }) => {
    await box.init();
    await box.subscribe("w");
    const info = await box.info();
    expect(Object.keys(info).slice(0, 2)).toEqual(["event_count", "subscriptions"]);
    expect(Object.keys(info.subscriptions[0] ?? {}).slice(0, 5)).toEqual(["consumer_id", "handler_cmd", "filter", "last_acked_id", "updated_at"]);
  });

  test("changes no file", async ({ box }) => {
    await box.init();
    await box.fill(2);
    await box.subscribe("w");
    const before = await box.snapshot();
    await box.info();
    await box.ok(["info", "--thread", box.thread]);
    expect(await box.snapshot()).toEqual(before);
  });
});
