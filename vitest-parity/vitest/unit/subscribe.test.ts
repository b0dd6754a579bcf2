import { readdir } from "node:fs/promises";
import { beyond, describe, expect, ids, test } from "../helpers/index.ts";

const subscribe = (thread: string, consumer: string, ...extra: string[]) => ["subscribe", "--thread", thread, "--consumer", consumer, "--handler", "true", ...extra];

describe("subscribe", () => {
  test("says who it has subscribed", async ({ box }) => {
    await box.init();
    expect(await box.ok(subscribe(box.thread, "worker-1"))).toBe("Subscribed consumer 'worker-1'\n");
  });

  test("keeps the handler and the filter as they were given", async ({ box }) => {
    await box.init();
    const handler = `cat <<'X' | tr a-z A-Z > "out file" && echo "done: $?"`;
    const filter = "type = 'message' AND source LIKE 'external:%'";
    await box.subscribe("w", handler, "--filter", filter);
    expect((await box.info()).subscriptions[0]).toMatchObject({ consumer_id: "w", handler_cmd: handler, filter, last_acked_id: 0, updated_at: null });
  });

  test("without a filter it is null", async ({ box }) => {
    await box.init();
    await box.subscribe("w");
    expect((await box.info()).subscriptions[0]?.filter).toBeNull();
  });

  test("a second time is a logic error that names unsubscribe and changes nothing", async ({ box }) => {
    await box.init();
    await box.subscribe("w", "first");
    const { suggestion } = await box.fails(1, ["subscribe", "--thread", box.thread, "--consumer", "w", "--handler", "second"]);
    expect(suggestion).toContain("unsubscribe");
    expect((await box.info()).subscriptions.map((one) => one.handler_cmd)).toEqual(["first"]);
  });

  test("with --json the error is JSON", async ({ box }) => {
    await box.init();
    await box.subscribe("w");
    const { suggestion } = await box.fails(1, subscribe(box.thread, "w", "--json"));
    expect(suggestion).toContain("unsubscribe");
  });

  test("--json succeeds too", async ({ box }) => {
    await box.init();
    await box.ok(subscribe(box.thread, "w", "--json"));
    expect((await box.info()).subscriptions.map((one) => one.consumer_id)).toEqual(["w"]);
  });

  test("consumers are listed in the order they came", async ({ box }) => {
    await box.init();
    for (const name of ["zed", "alpha", "mid"]) await box.subscribe(name);
    expect((await box.info()).subscriptions.map((one) => one.consumer_id)).toEqual(["zed", "alpha", "mid"]);
  });

  test("a new consumer gets the events from before", async ({ box }) => {
    await box.init();
    await box.fill(2);
    await box.subscribe("w");
    expect(ids(await box.pop("w", 0))).toEqual([1, 2]);
  });

  test("without one of its required options is a usage error", async ({ box }) => {
    await box.init();
    for (const option of ["--thread", "--consumer", "--handler"]) {
      const args = subscribe(box.thread, "w");
      args.splice(args.indexOf(option), 2);
      await box.fails(2, args);
    }
    expect((await box.info()).subscriptions).toEqual([]);
  });

  test("does not run the handler", async ({ box }) => {
    await box.init();
    await box.fill(1);
    await box.subscribe("w", `touch ${box.path("ran")}`);
    expect(await readdir(box.dir)).not.toContain("ran");
  });
});

beyond("subscribe", () => {
  test("--from-now starts at the newest event", async ({ box }) => {
    await box.init();
    await box.fill(3);
    await box.subscribe("w", "true", "--from-now");
    expect(await box.acked("w")).toBe(3);
    await box.push();
    expect(ids(await box.pop("w", 3))).toEqual([4]);
  });

  test("--from-now in an empty thread starts at the beginning", async ({ box }) => {
    await box.init();
    await box.subscribe("w", "true", "--from-now");
    expect(await box.acked("w")).toBe(0);
  });

  test.for(["--thread", "--consumer", "--handler"])("an empty %s is a usage error", async (option, { box }) => {
    await box.init();
    await box.fails(2, subscribe(box.thread, "w", option, ""));
    expect((await box.info()).subscriptions).toEqual([]);
  });

  test.for([
    ["a newline", "a\nb"],
    ["a tab", "\t"],
    ["an escape", "\u001b[1m"],
  ] as const)("%s in the consumer's name is refused", async ([, name], { box }) => {
    await box.init();
    await box.fails(2, subscribe(box.thread, name));
    expect((await box.info()).subscriptions).toEqual([]);
  });

  test.for([
    ["--max-attempts", "0"],
    ["--max-attempts", "many"],
    ["--timeout", "soon"],
    ["--timeout", "-1"],
  ] as const)("%s %s is a usage error", async ([option, value], { box }) => {
    await box.init();
    await box.fails(2, subscribe(box.thread, "w", option, value));
    expect((await box.info()).subscriptions).toEqual([]);
  });

  test("a bad filter is refused at once and nothing is subscribed", async ({ box }) => {
    await box.init();
    const { message } = await box.fails(2, subscribe(box.thread, "w", "--filter", "type = "));
    expect(message).toContain("^");
    await box.fails(2, subscribe(box.thread, "w", "--json", "--filter", "1=1) OR (1=1"));
    expect((await box.info()).subscriptions).toEqual([]);
  });

  test("an empty filter means all", async ({ box }) => {
    await box.init();
    await box.fill(2);
    await box.subscribe("w", "true", "--filter", "");
    expect(ids(await box.pop("w", 0))).toEqual([1, 2]);
  });

  test("of six at once one wins and five get the logic error", async ({ box }) => {
    await box.init();
    const results = await Promise.all(Array.from({ length: 6 }, () => box.run(subscribe(box.thread, "w"))));
    expect(results.map((result) => result.code).sort()).toEqual([0, 1, 1, 1, 1, 1]);
    expect((await box.info()).subscriptions.length).toBe(1);
  });
});
