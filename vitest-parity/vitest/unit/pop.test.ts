import { beyond, describe, expect, ids, test } from "../helpers/index.ts";

const pop = (thread: string, consumer: string, last: string) => ["pop", "--thread", thread, "--consumer", consumer, "--last-event-id", last];

describe("pop", () => {
  test("prints the events after the id, one a line, as peek does", async ({ box }) => {
    await box.init();
    await box.fill(3);
    await box.subscribe("w");
    const out = await box.ok(pop(box.thread, "w", "1"));
    expect(out).toBe(await box.ok(["peek", "--thread", box.thread, "--last-event-id", "1"]));
    expect(out.split("\n").length).toBe(3);
  });

  test("prints nothing when there is nothing new", async ({ box }) => {
    await box.init();
    await box.subscribe("w");
    expect(await box.ok(pop(box.thread, "w", "0"))).toBe("");
    await box.fill(2);
    expect(await box.ok(pop(box.thread, "w", "2"))).toBe("");
  });

  test("acks the id it was given", async ({ box }) => {
    await box.init();
    await box.fill(5);
    await box.subscribe("w");
    expect(await box.acked("w")).toBe(0);
    await box.pop("w", 3);
    expect(await box.acked("w")).toBe(3);
  });

  test.for([
    ["without a filter", []],
    ["with an empty filter", ["--filter", ""]],
    ["with a filter", ["--filter", "type = 'record'"]],
    ["with a filter that nothing matches", ["--filter", "type = 'other'"]],
  ] as const)("a first pop of 0 is recorded %s", async ([, extra], { box }) => {
    await box.init();
    await box.fill(2);
    await box.subscribe("w", "true", ...extra);
    const rows = () => box.python(`print(db.execute("SELECT consumer_id, last_acked_id, updated_at LIKE '2%Z' FROM consumer_progress").fetchall())`);
    expect(await rows()).toBe("[]\n");
    await box.pop("w", 0);
    expect(await rows()).toBe("[('w', 0, 1)]\n");
    const [seen] = (await box.info()).subscriptions;
    expect(seen).toMatchObject({ last_acked_id: 0 });
    expect(await box.ok(["info", "--thread", box.thread])).toContain(`    last_acked_id: 0\n    updated_at: ${seen?.updated_at ?? "?"}\n`);
  });

  test("a first pop of 0 of an empty thread is recorded", async ({ box }) => {
    await box.init();
    await box.subscribe("w");
    expect(await box.pop("w", 0)).toEqual([]);
    expect((await box.info()).subscriptions[0]?.updated_at).toMatch(/Z$/);
  });

  test("does not ack what it prints", async ({ box }) => {
    await box.init();
    await box.fill(3);
    await box.subscribe("w");
    expect(ids(await box.pop("w", 0))).toEqual([1, 2, 3]);
    expect(await box.acked("w")).toBe(0);
    expect(ids(await box.pop("w", 0))).toEqual([1, 2, 3]);
  });

  test("the usual loop reads everything once and ends", async ({ box }) => {
    await box.init();
    await box.fill(7);
    await box.subscribe("w");
    const seen: number[] = [];
    let last = 0;
    for (;;) {
      const page = await box.pop("w", last, "--limit", "3");
      if (page.length === 0) break;
      seen.push(...ids(page));
      last = page.at(-1)?.id ?? last;
    }
    expect(seen).toEqual([1, 2, 3, 4, 5, 6, 7]);
    expect(await box.acked("w")).toBe(7);
  });

  test("a smaller id is a replay", async ({ box }) => {
    await box.init();
    await box.fill(4);
    await box.subscribe("w");
    await box.pop("w", 4);
    expect(ids(await box.pop("w", 1))).toEqual([2, 3, 4]);
    expect(await box.acked("w")).toBe(1);
  });

  test("the same id again changes nothing but what is printed stays", async ({ box }) => {
    await box.init();
    await box.fill(4);
    await box.subscribe("w");
    expect(await box.pop("w", 2)).toEqual(await box.pop("w", 2));
    expect(await box.acked("w")).toBe(2);
  });

  test("prints at most 100 without --limit", async ({ box }) => {
    await box.init();
    await box.fill(105);
    await box.subscribe("w");
    expect((await box.pop("w", 0)).length).toBe(100);
    expect((await box.pop("w", 0, "--limit", "1000")).length).toBe(105);
    expect(ids(await box.pop("w", 0, "--limit", "1"))).toEqual([1]);
  });

  test("prints only what the filter of the subscription lets through", async ({ box }) => {
    await box.init();
    await box.batch([{ type: "a" }, { type: "b" }, { type: "a" }, { type: "b" }, { type: "a" }]);
    await box.subscribe("w", "true", "--filter", "type = 'a'");
    expect(ids(await box.pop("w", 0))).toEqual([1, 3, 5]);
    expect(ids(await box.pop("w", 1, "--limit", "1"))).toEqual([3]);
    expect(await box.pop("w", 5)).toEqual([]);
  });

  test("an OR in the filter does not let old events through", async ({ box }) => {
    await box.init();
    await box.batch([{ type: "a" }, { type: "b" }, { type: "a" }, { type: "b" }]);
    await box.subscribe("w", "true", "--filter", "type = 'a' OR type = 'b'");
    expect(ids(await box.pop("w", 2))).toEqual([3, 4]);
  });

  test("consumers do not touch each other's progress", async ({ box }) => {
    await box.init();
    await box.fill(3);
    await box.subscribe("a");
    await box.subscribe("b");
    await box.pop("a", 3);
    expect([await box.acked("a"), await box.acked("b")]).toEqual([3, 0]);
    expect(ids(await box.pop("b", 0))).toEqual([1, 2, 3]);
  });

  test("--json prints the same NDJSON", async ({ box }) => {
    await box.init();
    await box.fill(2);
    await box.subscribe("w");
    expect(await box.ok([...pop(box.thread, "w", "0"), "--json"])).toBe(await box.ok(pop(box.thread, "w", "0")));
  });

  test("an unknown consumer is a logic error", async ({ box }) => {
    await box.init();
    await box.fill(1);
    await box.fails(1, pop(box.thread, "nobody", "0"));
    await box.fails(1, [...pop(box.thread, "nobody", "0"), "--json"]);
  });

  test("without one of its required options is a usage error", async ({ box }) => {
    await box.init();
    await box.subscribe("w");
    for (const option of ["--thread", "--consumer", "--last-event-id"]) {
      const args = pop(box.thread, "w", "0");
      args.splice(args.indexOf(option), 2);
      await box.fails(2, args);
    }
  });

  test("events that come between two pops are in the second", async ({ box }) => {
    await box.init();
    await box.subscribe("w");
    await box.fill(2);
    expect(ids(await box.pop("w", 0))).toEqual([1, 2]);
    await box.push();
    expect(ids(await box.pop("w", 2))).toEqual([3]);
  });
});

beyond("pop and acks", () => {
  test("an ack beyond the newest event is refused and changes nothing", async ({ box }) => {
    await box.init();
    await box.fill(3);
    await box.subscribe("w");
    await box.pop("w", 2);
    await box.fails(1, pop(box.thread, "w", "4"));
    await box.fails(1, [...pop(box.thread, "w", "9223372036854775807"), "--json"]);
    expect(await box.acked("w")).toBe(2);
  });

  test("in an empty thread only 0 can be acked", async ({ box }) => {
    await box.init();
    await box.subscribe("w");
    expect(await box.pop("w", 0)).toEqual([]);
    await box.fails(1, pop(box.thread, "w", "1"));
  });

  test("an ack between two matching events is fine", async ({ box }) => {
    await box.init();
    await box.batch([{ type: "a" }, { type: "b" }, { type: "a" }]);
    await box.subscribe("w", "true", "--filter", "type = 'a'");
    expect(ids(await box.pop("w", 2))).toEqual([3]);
    expect(await box.acked("w")).toBe(2);
  });

  test("a stored filter that has broken fails the pop and leaves the ack where it was", async ({ box }) => {
    await box.init();
    await box.fill(3);
    await box.subscribe("w", "true", "--filter", "id > 0");
    await box.pop("w", 1);
    await box.python(`db.execute("UPDATE subscriptions SET filter = 'no such thing'")`);
    const result = await box.run(pop(box.thread, "w", "2"));
    expect([1, 2]).toContain(result.code);
    expect(result.out).toBe("");
    expect(result.err).toMatch(/^Error: /);
    expect(await box.python(`print(db.execute("SELECT last_acked_id FROM consumer_progress").fetchall())`)).toBe("[(1,)]\n");
    await box.python(`db.execute("UPDATE subscriptions SET filter = NULL")`);
  });
});

beyond("pop --wait", () => {
  test("comes back at once when there is something", async ({ box }) => {
    await box.init();
    await box.fill(1);
    await box.subscribe("w");
    expect(ids(await box.pop("w", 0, "--wait", "1000"))).toEqual([1]);
  });

  test("comes back with an event that is pushed while it waits", async ({ box }) => {
    await box.init();
    await box.subscribe("w");
    const waiting = box.pop("w", 0, "--wait", "1000");
    await box.push({ content: "awaited" });
    expect((await waiting).map((event) => event.content)).toEqual(["awaited"]);
  });

  test("goes on waiting past an event that the filter keeps back", async ({ box }) => {
    await box.init();
    await box.subscribe("w", "true", "--filter", "type = 'b'");
    const waiting = box.pop("w", 0, "--wait", "1000");
    await box.push({ type: "a" });
    await box.push({ type: "b" });
    expect(ids(await waiting)).toEqual([2]);
  });

  test("has acked before it waits", async ({ box }) => {
    await box.init();
    await box.fill(2);
    await box.subscribe("w");
    expect(await box.pop("w", 2, "--wait", "1")).toEqual([]);
    expect(await box.acked("w")).toBe(2);
  });

  test("ends with nothing and success when the time is over", async ({ box }) => {
    await box.init();
    await box.subscribe("w");
    expect(await box.ok([...pop(box.thread, "w", "0"), "--wait", "1"])).toBe("");
  });
});
