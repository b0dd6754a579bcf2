import { existsSync } from "node:fs";
import { mkdir, readFile, readdir, stat, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { beyond, describe, expect, test } from "../helpers/index.ts";

const kind = async (file: string) => ((await stat(file)).isDirectory() ? "directory" : "file");
const mode = async (file: string) => ((await stat(file)).mode & 0o777).toString(8);

describe("init", () => {
  test("says which thread it has made", async ({ box }) => {
    expect(await box.init()).toBe(`Initialized thread at ${box.thread}\n`);
  });

  test("makes the database, an empty mirror, run/ and logs/", async ({ box }) => {
    await box.init();
    const kinds = Object.fromEntries(
      await Promise.all(["events.db", "events.jsonl", "run", "logs"].map(async (name) => [name, await kind(path.join(box.thread, name))])),
    ) as Record<string, string>;
    expect(kinds).toEqual({ "events.db": "file", "events.jsonl": "file", run: "directory", logs: "directory" });
    expect((await stat(path.join(box.thread, "events.jsonl"))).size).toBe(0);
  });

  test("makes an SQLite database in WAL mode", async ({ box }) => {
    await box.init();
    const head = await readFile(path.join(box.thread, "events.db"));
    expect(head.subarray(0, 16).toString("latin1")).toBe("SQLite format 3\0");
    expect([head[18], head[19]]).toEqual([2, 2]);
  });

  test("makes the parents that are missing", async ({ box }) => {
    const deep = box.path("a", "b", "c");
    expect(await box.init(deep)).toBe(`Initialized thread at ${deep}\n`);
    expect(await box.all(deep)).toEqual([]);
  });

  test("works inside a directory that exists and leaves what is in it alone", async ({ box }) => {
    await mkdir(box.thread);
    await writeFile(path.join(box.thread, "README"), "mine");
    await box.init();
    expect(await readFile(path.join(box.thread, "README"), "utf8")).toBe("mine");
    expect(existsSync(path.join(box.thread, "events.db"))).toBe(true);
  });

  test("a second time is a logic error and changes nothing", async ({ box }) => {
    await box.init();
    await box.push({ content: "kept" });
    await box.fails(1, ["init", box.thread]);
    expect((await box.all()).map((event) => event.content)).toEqual(["kept"]);
  });

  test("without a path is a usage error", async ({ box }) => {
    await box.fails(2, ["init"]);
  });

  test("resolves a relative path against the working directory", async ({ box }) => {
    await mkdir(box.path("work"));
    const out = await box.ok(["init", "../x/./y/"], { cwd: box.path("work") });
    expect(out).toBe(`Initialized thread at ${box.path("x", "y")}\n`);
    expect(await box.all(box.path("x", "y"))).toEqual([]);
  });

  test("drops a trailing slash", async ({ box }) => {
    expect(await box.ok(["init", `${box.thread}/`])).toBe(`Initialized thread at ${box.thread}\n`);
  });

  test("keeps a symbolic link in the path", async ({ box }) => {
    await mkdir(box.path("real"));
    await symlink(box.path("real"), box.path("link"));
    const out = await box.ok(["init", box.path("link", "t")]);
    expect(out).toBe(`Initialized thread at ${box.path("link", "t")}\n`);
    expect(existsSync(box.path("real", "t", "events.db"))).toBe(true);
  });

  test("works with a path that a shell would take apart", async ({ box }) => {
    const odd = box.path("it's; a $(path) \"x\" \\ é");
    expect(await box.init(odd)).toBe(`Initialized thread at ${odd}\n`);
    await box.push({ content: "in" }, {}, odd);
    expect((await box.all(odd)).length).toBe(1);
  });

  test("prints nothing on stderr and leaves nothing else beside the thread", async ({ box }) => {
    const before = await readdir(box.dir);
    await box.init();
    expect((await readdir(box.dir)).sort()).toEqual([...before, "t"].sort());
  });
});

beyond("init", () => {
  test("on a file fails and leaves the file alone", async ({ box }) => {
    await writeFile(box.thread, "a file");
    await box.fails(1, ["init", box.thread]);
    expect(await readFile(box.thread, "utf8")).toBe("a file");
  });

  test("an empty path is a usage error", async ({ box }) => {
    await box.fails(2, ["init", ""]);
  });

  test("two paths are a usage error and make neither", async ({ box }) => {
    await box.fails(2, ["init", box.path("a"), box.path("b")]);
    expect([existsSync(box.path("a")), existsSync(box.path("b"))]).toEqual([false, false]);
  });

  test("expands a leading ~/", async ({ box }) => {
    const env = { HOME: box.path("home") };
    await mkdir(box.path("home"));
    expect(await box.ok(["init", "~/t"], { env })).toBe(`Initialized thread at ${box.path("home", "t")}\n`);
    expect(await box.ok(["peek", "--thread", "~/t", "--last-event-id", "0"], { env })).toBe("");
    expect(existsSync(box.path("~"))).toBe(false);
  });

  test("is for its owner only", async ({ box }) => {
    await box.init();
    await box.push();
    const at = (name: string) => path.join(box.thread, name);
    expect(await mode(box.thread)).toBe("700");
    for (const name of ["events.db", "events.jsonl", path.join("logs", "thread.log")]) expect(await mode(at(name)), name).toBe("600");
  });

  test("--shared follows the umask", async ({ box }) => {
    const made = await box.run(["-c", 'umask 022; "$THREAD_BIN" init --shared "$0"', box.thread], {}, "sh");
    expect(made).toMatchObject({ code: 0, err: "" });
    expect([await mode(box.thread), await mode(path.join(box.thread, "events.db")), await mode(path.join(box.thread, "events.jsonl"))]).toEqual([
      "755",
      "644",
      "644",
    ]);
  });

  test("finishes what a crash has left half made", async ({ box }) => {
    await mkdir(path.join(box.thread, "run"), { recursive: true });
    await writeFile(path.join(box.thread, "events.jsonl"), "");
    await box.init();
    expect((await box.push()).id).toBe(1);
  });

  test("of six at once one wins and five get the logic error", async ({ box }) => {
    const results = await Promise.all(Array.from({ length: 6 }, () => box.run(["init", box.thread])));
    box.adopt(box.thread);
    expect(results.map((result) => result.code).sort()).toEqual([0, 1, 1, 1, 1, 1]);
    for (const result of results.filter((one) => one.code === 1)) expect(result.err).toMatch(/^Error: .+ - .+\n$/);
    expect((await box.push()).id).toBe(1);
  });
});
