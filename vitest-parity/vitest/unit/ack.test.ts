import { beyond, expect, ids, test } from "../helpers/index.ts";

const ack = (thread: string, consumer: string, last: string) => ["ack", "--thread", thread, "--consumer", consumer, "--last-event-id", last];

beyond("ack", () => {
  test("acks without reading and prints nothing", async ({ box }) => {
    await box.init();
    await box.fill(3);
    await box.subscribe("w");
    expect(await box.ok(ack(box.thread, "w", "2"))).toBe("");
    expect(await box.acked("w")).toBe(2);
    expect(ids(await box.pop("w", 2))).toEqual([3]);
  });

  test("may go back, and may say the same again", async ({ box }) => {
    await box.init();
    await box.fill(3);
    await box.subscribe("w");
    for (const id of [3, 3, 1, 0]) {
      await box.ok(ack(box.thread, "w", String(id)));
      expect(await box.acked("w")).toBe(id);
    }
  });

  test("beyond the newest event is refused and changes nothing", async ({ box }) => {
    await box.init();
    await box.fill(3);
    await box.subscribe("w");
    await box.ok(ack(box.thread, "w", "1"));
    await box.fails(1, ack(box.thread, "w", "4"));
    expect(await box.acked("w")).toBe(1);
  });

  test("of an unknown consumer is a logic error", async ({ box }) => {
    await box.init();
    await box.fill(1);
    await box.fails(1, ack(box.thread, "nobody", "1"));
    expect((await box.info()).subscriptions).toEqual([]);
  });

  test("without one of its required options is a usage error", async ({ box }) => {
    await box.init();
    for (const option of ["--thread", "--consumer", "--last-event-id"]) {
      const args = ack(box.thread, "w", "0");
      args.splice(args.indexOf(option), 2);
      await box.fails(2, args);
    }
  });

  test("moves updated_at", async ({ box }) => {
    await box.init();
    await box.fill(1);
    await box.subscribe("w");
    expect((await box.info()).subscriptions[0]?.updated_at).toBeNull();
    await box.ok(ack(box.thread, "w", "1"));
    expect((await box.info()).subscriptions[0]?.updated_at).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  });
});
