import { describe, expect, ids, test } from "../helpers/index.ts";

const unsubscribe = (thread: string, consumer: string) => ["unsubscribe", "--thread", thread, "--consumer", consumer];

describe("unsubscribe", () => {
  test("says who it has unsubscribed", async ({ box }) => {
    await box.init();
    await box.subscribe("w");
    expect(await box.ok(unsubscribe(box.thread, "w"))).toBe("Unsubscribed consumer 'w'\n");
    expect((await box.info()).subscriptions).toEqual([]);
  });

  test("leaves the others", async ({ box }) => {
    await box.init();
    for (const name of ["a", "b", "c"]) await box.subscribe(name);
    await box.ok(unsubscribe(box.thread, "b"));
    expect((await box.info()).subscriptions.map((one) => one.consumer_id)).toEqual(["a", "c"]);
  });

  test("an unknown consumer is a logic error", async ({ box }) => {
    await box.init();
    await box.subscribe("w");
    await box.fails(1, unsubscribe(box.thread, "W"));
    await box.fails(1, unsubscribe(box.thread, "nobody"));
    expect((await box.info()).subscriptions.length).toBe(1);
  });

  test("a second time is a logic error", async ({ box }) => {
    await box.init();
    await box.subscribe("w");
    await box.ok(unsubscribe(box.thread, "w"));
    await box.fails(1, unsubscribe(box.thread, "w"));
  });

  test("afterwards a pop is a logic error", async ({ box }) => {
    await box.init();
    await box.subscribe("w");
    await box.ok(unsubscribe(box.thread, "w"));
    await box.fails(1, ["pop", "--thread", box.thread, "--consumer", "w", "--last-event-id", "0"]);
  });

  test("progress survives and is used by a later subscribe", async ({ box }) => {
    await box.init();
    await box.fill(3);
    await box.subscribe("w", "one");
    await box.pop("w", 2);
    await box.ok(unsubscribe(box.thread, "w"));
    await box.subscribe("w", "two", "--filter", "id > 0");
    expect((await box.info()).subscriptions[0]).toMatchObject({ handler_cmd: "two", filter: "id > 0", last_acked_id: 2 });
    expect(ids(await box.pop("w", 2))).toEqual([3]);
  });

  test("leaves the events alone", async ({ box }) => {
    await box.init();
    await box.fill(3);
    await box.subscribe("w");
    await box.ok(unsubscribe(box.thread, "w"));
    expect(ids(await box.all())).toEqual([1, 2, 3]);
  });

  test("--json is a usage error and unsubscribes nobody", async ({ box }) => {
    await box.init();
    await box.subscribe("w");
    expect(await box.run([...unsubscribe(box.thread, "w"), "--json"])).toMatchObject({ code: 2, out: "" });
    expect((await box.info()).subscriptions.length).toBe(1);
  });

  test("without one of its required options is a usage error", async ({ box }) => {
    await box.init();
    await box.subscribe("w");
    for (const option of ["--thread", "--consumer"]) {
      const args = unsubscribe(box.thread, "w");
      args.splice(args.indexOf(option), 2);
      await box.fails(2, args);
    }
    expect((await box.info()).subscriptions.length).toBe(1);
  });
});
