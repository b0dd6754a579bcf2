import { beyond, eventually, expect, ids, test, type StoredEvent } from "../helpers/index.ts";

const tail = (thread: string, ...extra: string[]) => ["tail", "--thread", thread, ...extra];
const parsed = (lines: string[]) => lines.map((line) => JSON.parse(line) as StoredEvent);

beyond("tail", () => {
  test("prints one readable line for each of the newest 10 events", async ({ box }) => {
    await box.init();
    await box.batch(Array.from({ length: 12 }, (_, i) => ({ type: `kind-${i + 1}`, content: `two\nlines ${i + 1}` })));
    const lines = (await box.ok(tail(box.thread))).split("\n").slice(0, -1);
    expect(lines.length).toBe(10);
    expect(lines[0]).toContain("kind-3");
    expect(lines[9]).toContain("kind-12");
    expect(lines[9]).toContain("lines 12");
  });

  test("-n says how many", async ({ box }) => {
    await box.init();
    await box.fill(5);
    expect((await box.ok(tail(box.thread, "-n", "2"))).split("\n").length).toBe(3);
    expect((await box.ok(tail(box.thread, "-n", "99"))).split("\n").length).toBe(6);
  });

  test("--json prints the lines of peek", async ({ box }) => {
    await box.init();
    await box.fill(4);
    expect(await box.ok(tail(box.thread, "--json", "-n", "2"))).toBe(await box.ok(["peek", "--thread", box.thread, "--last", "2"]));
  });

  test("--filter chooses, and is refused like any other", async ({ box }) => {
    await box.init();
    await box.batch([{ type: "a" }, { type: "b" }, { type: "a" }]);
    expect(ids(parsed((await box.ok(tail(box.thread, "--json", "--filter", "type = 'a'"))).trimEnd().split("\n")))).toEqual([1, 3]);
    await box.fails(2, tail(box.thread, "--filter", "type ="));
  });

  test("of an empty thread prints nothing", async ({ box }) => {
    await box.init();
    expect(await box.ok(tail(box.thread))).toBe("");
  });

  test("no control character of an event reaches the terminal", async ({ box }) => {
    await box.init();
    await box.batch([{ content: "\u001b[31mred\u0007\u0000\r" }]);
    expect(await box.ok(tail(box.thread))).not.toMatch(/[\u0000-\u0009\u000b-\u001f]/);
  });

  test("changes no file", async ({ box }) => {
    await box.init();
    await box.fill(2);
    const before = await box.snapshot();
    await box.ok(tail(box.thread));
    expect(await box.snapshot()).toEqual(before);
  });
});

beyond("tail -f", () => {
  test("prints what others push, as it comes, and ends quietly on ^C", async ({ box }) => {
    await box.init();
    await box.fill(2);
    const following = box.start(tail(box.thread, "-f", "--json", "-n", "1"));
    await eventually("the event from before", () => following.lines().length === 1);
    await box.push({ content: "first" });
    await eventually("the first event", () => following.lines().length === 2);
    await Promise.all([box.push({ content: "second" }), box.push({ content: "second" })]);
    await eventually("the next two", () => following.lines().length === 4);
    following.child.kill("SIGINT");
    const end = await following.done;
    expect(end.err).toBe("");
    expect([0, 130, null]).toContain(end.code);
    expect(ids(parsed(following.lines()))).toEqual([2, 3, 4, 5]);
  });

  test("follows across a rotation without gap or repeat", async ({ box }) => {
    await box.init();
    await box.fill(1);
    const following = box.start(tail(box.thread, "-f", "--json"));
    await eventually("the event from before", () => following.lines().length === 1);
    await box.fill(10_001);
    await box.push();
    await box.push();
    await eventually("everything", () => following.lines().length >= 10_004);
    following.child.kill("SIGINT");
    await following.done;
    expect(ids(parsed(following.lines()))).toEqual(Array.from({ length: 10_004 }, (_, i) => i + 1));
  });

  test("prints only what the filter lets through", async ({ box }) => {
    await box.init();
    const following = box.start(tail(box.thread, "-f", "--json", "--filter", "type = 'b'"));
    await box.batch([{ type: "a" }, { type: "b" }]);
    await box.batch([{ type: "b" }]);
    await eventually("two events", () => following.lines().length === 2);
    following.child.kill("SIGINT");
    await following.done;
    expect(ids(parsed(following.lines()))).toEqual([2, 3]);
  });
});
