import { beyond, describe, expect, ids, test } from "../helpers/index.ts";

const peek = (thread: string, ...extra: string[]) => ["peek", "--thread", thread, ...extra];

describe("peek", () => {
  test("prints the events after the id, one a line", async ({ box }) => {
    await box.init();
    await box.fill(4);
    expect(ids(await box.peek(["--last-event-id", "0"]))).toEqual([1, 2, 3, 4]);
    expect(ids(await box.peek(["--last-event-id", "2"]))).toEqual([3, 4]);
    expect(await box.ok(peek(box.thread, "--last-event-id", "4"))).toBe("");
  });

  test("prints nothing for an empty thread and for an id that is still to come", async ({ box }) => {
    await box.init();
    expect(await box.ok(peek(box.thread, "--last-event-id", "0"))).toBe("");
    await box.push();
    expect(await box.ok(peek(box.thread, "--last-event-id", "99"))).toBe("");
  });

  test("prints the line that push --json printed", async ({ box }) => {
    await box.init();
    const line = await box.ok([...box.pushArgs({ type: "message", content: "é \u0001 \"" }), "--json"]);
    expect(await box.ok(peek(box.thread, "--last-event-id", "0"))).toBe(line);
  });

  test("prints at most 100 without --limit", async ({ box }) => {
    await box.init();
    await box.fill(103);
    expect(ids(await box.peek([]))).toEqual(Array.from({ length: 100 }, (_, i) => i + 1));
    expect(ids(await box.peek(["--limit", "2"]))).toEqual([1, 2]);
    expect((await box.peek(["--limit", "5000"])).length).toBe(103);
  });

  test("--limit counts what the filter lets through", async ({ box }) => {
    await box.init();
    await box.batch([{ type: "a" }, { type: "b" }, { type: "a" }, { type: "b" }, { type: "b" }]);
    expect(ids(await box.peek(["--filter", "type = 'b'", "--limit", "2"]))).toEqual([2, 4]);
  });

  test("an empty filter lets everything through", async ({ box }) => {
    await box.init();
    await box.fill(2);
    expect(ids(await box.peek(["--filter", ""]))).toEqual([1, 2]);
  });

  test("an OR in the filter does not let old events through", async ({ box }) => {
    await box.init();
    await box.fill(4);
    expect(ids(await box.peek(["--last-event-id", "2", "--filter", "id = 1 OR id = 4"]))).toEqual([4]);
  });

  test("does not need a consumer and does not ack", async ({ box }) => {
    await box.init();
    await box.fill(2);
    await box.subscribe("w");
    await box.peek(["--last-event-id", "2"]);
    expect(await box.acked("w")).toBe(0);
    expect((await box.info()).subscriptions.length).toBe(1);
  });

  test("--json prints the same NDJSON", async ({ box }) => {
    await box.init();
    await box.fill(2);
    expect(await box.ok(peek(box.thread, "--last-event-id", "0", "--json"))).toBe(await box.ok(peek(box.thread, "--last-event-id", "0")));
  });

  test("without one of its required options is a usage error", async ({ box }) => {
    await box.init();
    for (const option of ["--thread", "--last-event-id"]) {
      const args = peek(box.thread, "--last-event-id", "0");
      args.splice(args.indexOf(option), 2);
      await box.fails(2, args);
    }
  });

  test("eight at once beside a writer each see whole events in order", async ({ box }) => {
    await box.init();
    await box.fill(50);
    const [pages] = await Promise.all([Promise.all(Array.from({ length: 8 }, () => box.all())), box.fill(50)]);
    for (const page of pages) expect([50, 100]).toContain(page.length);
    for (const page of pages) expect(ids(page)).toEqual(page.map((_, i) => i + 1));
  });
});

beyond("peek --last", () => {
  test("prints the newest events, oldest first", async ({ box }) => {
    await box.init();
    await box.fill(6);
    expect(ids(await box.peek(["--last", "2"]))).toEqual([5, 6]);
    expect(ids(await box.peek(["--last", "99"]))).toEqual([1, 2, 3, 4, 5, 6]);
  });

  test("counts what the filter lets through", async ({ box }) => {
    await box.init();
    await box.batch([{ type: "a" }, { type: "b" }, { type: "a" }, { type: "b" }, { type: "b" }]);
    expect(ids(await box.peek(["--last", "2", "--filter", "type = 'a'"]))).toEqual([1, 3]);
    expect(ids(await box.peek(["--last", "1", "--filter", "type = 'a'"]))).toEqual([3]);
    expect(ids(await box.peek(["--last", "1", "--filter", "id < 3 OR id < 2"]))).toEqual([2]);
  });

  test("prints nothing for an empty thread", async ({ box }) => {
    await box.init();
    expect(await box.peek(["--last", "5"])).toEqual([]);
  });
});

beyond("peek is read-only in every sense", () => {
  test("no file of the thread is made, changed or removed", async ({ box }) => {
    await box.init();
    await box.fill(3);
    await box.subscribe("w");
    const before = await box.snapshot();
    await box.peek([]);
    await box.peek(["--last", "1", "--filter", "id > 1"]);
    await box.fails(2, peek(box.thread, "--last-event-id", "0", "--filter", "nonsense ="));
    expect(await box.snapshot()).toEqual(before);
  });

  test("a thread that is not there is not made", async ({ box }) => {
    const before = await box.snapshot(box.dir);
    await box.fails(1, peek(box.thread, "--last-event-id", "0"));
    expect(await box.snapshot(box.dir)).toEqual(before);
  });

  test("a reader that goes away early is not an error", async ({ box }) => {
    await box.init();
    await box.batch(Array.from({ length: 3000 }, () => ({ content: "x".repeat(500) })));
    const result = await box.run(["-c", '"$THREAD_BIN" peek --thread "$0" --last-event-id 0 --limit 3000 | head -n 1', box.thread], {}, "sh");
    expect(result).toMatchObject({ code: 0, err: "" });
    expect(result.out.split("\n").length).toBe(2);
  });
});
