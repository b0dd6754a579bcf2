import { open, stat } from "node:fs/promises";
import path from "node:path";
import { beyond, expect, ids, test } from "../helpers/index.ts";

const prune = (thread: string, ...extra: string[]) => ["prune", "--thread", thread, ...extra];

beyond("check", () => {
  test("finds nothing wrong with a thread in use", async ({ box }) => {
    await box.init();
    await box.fill(20);
    await box.subscribe("w", "true", "--filter", "id > 3");
    await box.pop("w", 5);
    expect((await box.run(["check", "--thread", box.thread])).code).toBe(0);
  });

  test("says so when the database is damaged", async ({ box }) => {
    await box.init();
    await box.batch(Array.from({ length: 400 }, () => ({ content: "y".repeat(300) })));
    const file = path.join(box.thread, "events.db");
    const { size } = await stat(file);
    const handle = await open(file, "r+");
    await handle.write(Buffer.alloc(8192, 0xa5), 0, 8192, Math.floor(size / 2 / 4096) * 4096);
    await handle.close();
    box.broken();
    const result = await box.run(["check", "--thread", box.thread]);
    expect(result.code).toBe(1);
    expect(`${result.out}${result.err}`).toMatch(/\S/);
  });

  test("says so when a consumer has acked what does not exist", async ({ box }) => {
    await box.init();
    await box.fill(2);
    await box.subscribe("w");
    await box.pop("w", 1);
    await box.python(`db.execute("UPDATE consumer_progress SET last_acked_id = 99")`);
    const result = await box.run(["check", "--thread", box.thread]);
    expect(result.code).toBe(1);
    expect(`${result.out}${result.err}`).toMatch(/\bw\b/);
    await box.python(`db.execute("UPDATE consumer_progress SET last_acked_id = 1")`);
  });
});

beyond("prune", () => {
  test("--keep-last keeps the newest events, and ids go on", async ({ box }) => {
    await box.init();
    await box.fill(10);
    await box.subscribe("w");
    await box.pop("w", 10);
    await box.ok(prune(box.thread, "--keep-last", "3"));
    expect(ids(await box.all())).toEqual([8, 9, 10]);
    expect((await box.info()).event_count).toBe(3);
    expect((await box.push()).id).toBe(11);
  });

  test("--before-id keeps that event and the later ones", async ({ box }) => {
    await box.init();
    await box.fill(6);
    await box.subscribe("w");
    await box.pop("w", 6);
    await box.ok(prune(box.thread, "--before-id", "4"));
    expect(ids(await box.all())).toEqual([4, 5, 6]);
  });

  test("does not remove what a consumer has not acked", async ({ box }) => {
    await box.init();
    await box.fill(6);
    await box.subscribe("done");
    await box.subscribe("behind");
    await box.pop("done", 6);
    await box.pop("behind", 2);
    await box.run(prune(box.thread, "--keep-last", "1"));
    expect(ids(await box.all())).toEqual(expect.arrayContaining([3, 4, 5, 6]));
    expect(ids(await box.pop("behind", 2))).toEqual([3, 4, 5, 6]);
  });

  test("--force removes it all the same", async ({ box }) => {
    await box.init();
    await box.fill(6);
    await box.subscribe("behind");
    await box.ok(prune(box.thread, "--keep-last", "1", "--force"));
    expect(ids(await box.all())).toEqual([6]);
  });

  test("an id is not used again when everything has gone", async ({ box }) => {
    await box.init();
    await box.fill(3);
    await box.ok(prune(box.thread, "--before-id", "4", "--force"));
    expect(await box.all()).toEqual([]);
    expect((await box.push()).id).toBe(4);
  });

  test("frees the space", async ({ box }) => {
    await box.init();
    await box.batch(Array.from({ length: 400 }, () => ({ content: "y".repeat(5_000) })));
    const size = async () => (await stat(path.join(box.thread, "events.db"))).size;
    const before = await size();
    await box.ok(prune(box.thread, "--keep-last", "1", "--force"));
    expect(await size()).toBeLessThan(before / 4);
  });

  test.for([
    ["neither option", []],
    ["a bad number", ["--keep-last", "some"]],
    ["a negative number", ["--keep-last", "-1"]],
  ] as const)("%s is a usage error and removes nothing", async ([, extra], { box }) => {
    await box.init();
    await box.fill(2);
    await box.fails(2, prune(box.thread, ...extra));
    expect((await box.all()).length).toBe(2);
  });
});

beyond("resume", () => {
  test("an unknown consumer is a logic error", async ({ box }) => {
    await box.init();
    await box.fails(1, ["resume", "--thread", box.thread, "--consumer", "nobody"]);
  });

  test("without --consumer is a usage error", async ({ box }) => {
    await box.init();
    await box.fails(2, ["resume", "--thread", box.thread]);
  });

  test("a consumer that is not stalled stays as it is", async ({ box }) => {
    await box.init();
    await box.fill(2);
    await box.subscribe("w");
    await box.pop("w", 1);
    await box.run(["resume", "--thread", box.thread, "--consumer", "w"]);
    expect(await box.acked("w")).toBe(1);
  });
});

beyond("thread rm", () => {
  test("deletes no directory and names the command that does", async ({ box }) => {
    await box.init();
    await box.push({ content: "kept" });
    const before = await box.snapshot();
    for (const named of [box.thread, "./t", "t/."]) {
      const { suggestion } = await box.fails(2, ["thread", "rm", named]);
      expect(suggestion).toContain(`rm -r ${box.thread}`);
    }
    expect(await box.snapshot()).toEqual(before);
  });
});
