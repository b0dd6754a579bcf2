import { beyond, describe, expect, fixture, fixtureJson, ids, ORIGINAL, test } from "../helpers/index.ts";

type Case = [filter: string, expected: number[]];
const groups = await fixtureJson<Record<string, Case[]>>("filters.json");
const refused = ORIGINAL ? {} : await fixtureJson<Record<string, string[]>>("filters-refused.json");

describe("filters that must work", () => {
  test.for(Object.keys(groups))("%s", async (group, { box }) => {
    await box.init();
    await box.batch(await fixture("filters.ndjson"));
    for (const [filter, expected] of groups[group] ?? []) expect(ids(await box.peek(["--filter", filter])), filter).toEqual(expected);
  });

  test("mean the same in a subscription", async ({ box }) => {
    await box.init();
    await box.batch(await fixture("filters.ndjson"));
    const some: Case[] = Object.values(groups).flatMap((group) => group.slice(0, 1));
    for (const [i, [filter, expected]] of some.entries()) {
      await box.subscribe(`w${i}`, "true", "--filter", filter);
      expect(ids(await box.pop(`w${i}`, 0)), filter).toEqual(expected);
    }
  });
});

beyond("filters that must be refused", () => {
  test.for(Object.keys(refused))("%s", async (group, { box }) => {
    await box.init();
    await box.batch(await fixture("filters.ndjson"));
    const before = await box.snapshot();
    for (const filter of refused[group] ?? []) {
      const { message } = await box.fails(2, ["peek", "--thread", box.thread, "--last-event-id", "0", "--filter", filter]);
      if (group !== "bombs") expect(message, filter).toContain("^");
    }
    expect(await box.snapshot()).toEqual(before);
  });

  test("the first of each kind, in a subscription too", async ({ box }) => {
    await box.init();
    for (const filter of Object.values(refused).flatMap((group) => group.slice(0, 1))) await box.fails(2, ["subscribe", "--thread", box.thread, "--consumer", "w", "--handler", "true", "--filter", filter]);
    expect((await box.info()).subscriptions).toEqual([]);
  });

  test("the caret stands under the fault", async ({ box }) => {
    await box.init();
    const filter = "type = 'a' AND nonsense = 1";
    const result = await box.run(["peek", "--thread", box.thread, "--last-event-id", "0", "--filter", filter]);
    expect(result.code).toBe(2);
    const lines = result.err.split("\n");
    const shown = lines.findIndex((line) => line.includes(filter) && /^\s*\^/.test(lines[lines.indexOf(line) + 1] ?? ""));
    expect(shown, result.err).toBeGreaterThanOrEqual(0);
    const column = (lines[shown + 1] ?? "").indexOf("^") - (lines[shown] ?? "").indexOf(filter);
    expect(column).toBe(filter.indexOf("nonsense"));
  });

  test("with --json the refusal is JSON", async ({ box }) => {
    await box.init();
    const { message } = await box.fails(2, ["peek", "--thread", box.thread, "--last-event-id", "0", "--json", "--filter", "1=1) OR (1=1"]);
    expect(message).toContain("^");
  });

  test("a pathological LIKE ends soon, refused or answered", async ({ box }) => {
    await box.init();
    await box.batch([{ content: "a".repeat(20_000) }]);
    const filter = `content LIKE '${"%a".repeat(24)}%b'`;
    const result = await box.run(["peek", "--thread", box.thread, "--last-event-id", "0", "--filter", filter]);
    expect([0, 2]).toContain(result.code);
    expect(result.out).toBe("");
  });

  test("a filter that fails on one row is never half answered", async ({ box }) => {
    await box.init();
    await box.batch([{ content: '{"k":1}' }, { content: "not json" }, { content: '{"k":1}' }]);
    const result = await box.run(["peek", "--thread", box.thread, "--last-event-id", "0", "--filter", "json_extract(content, '$.k') = 1"]);
    if (result.code === 0) expect(result.out.match(/"id":\d+/g)).toEqual(['"id":1', '"id":3']);
    else expect(result).toMatchObject({ code: 2, out: "", err: expect.stringMatching(/^Error: /) as string });
  });
});
