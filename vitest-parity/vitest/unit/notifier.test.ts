import { mkdir } from "node:fs/promises";
import { existsSync } from "node:fs";
import path from "node:path";
import { ackCommand, beyond, describe, drainCommand, eventually, expect, ids, quote, slug, test, type StoredEvent } from "../helpers/index.ts";

const GOOD = '{"source":"self","type":"record","content":"fine"}';

describe("slug", () => {
  test("is the path with everything but letters and digits turned into -", () => {
    expect(slug("/home/user/my-project/thread")).toBe("-home-user-my-project-thread");
    expect(slug("/a.b/C_d")).toBe("-a-b-C-d");
    expect(slug("/\u{1f389}é")).toBe("----");
  });

  test("is cut to 32 characters and six of the SHA-1 when it is longer than 40", () => {
    const long = `/${"x".repeat(40)}`;
    expect(slug(`/${"x".repeat(39)}`)).toBe(`-${"x".repeat(39)}`);
    expect(slug(long)).toMatch(/^-x{31}-[0-9a-f]{6}$/);
  });
});

describe("the notifier", () => {
  test("is told once for a push: author, task and command", async ({ box }) => {
    await box.init();
    const notifier = await box.notifier();
    expect(await box.ok(box.pushArgs({ source: "internal:dm:default:warden" }), notifier)).toBe("");
    const calls = await box.notes();
    expect(calls.length).toBe(1);
    expect(calls[0]?.slice(0, 7)).toEqual(["task", "add", "--author", "internal:dm:default:warden", "--task-id", `dispatch-${slug(box.thread)}`, "--command"]);
    expect(calls[0]?.length).toBe(8);
    expect(calls[0]?.[7]).toMatch(/ dispatch --thread ./);
    expect(calls[0]?.[7]).toContain(box.thread);
  });

  test("is told once for a batch, by the source of the last event", async ({ box }) => {
    await box.init();
    const notifier = await box.notifier();
    await box.batch([{ source: "first" }, { source: "second" }, { source: "last" }], notifier);
    expect((await box.notes()).map((call) => call[3])).toEqual(["last"]);
  });

  test("is not told about a batch of nothing", async ({ box }) => {
    await box.init();
    await box.batch("\n\n", await box.notifier());
    expect(await box.notes()).toEqual([]);
  });

  test("is not told about a push that failed", async ({ box }) => {
    await box.init();
    const notifier = await box.notifier();
    await box.run(["push", "--thread", box.thread, "--batch"], { ...notifier, input: `${GOOD}\nnonsense\n` });
    await box.run(["push", "--thread", box.thread, "--source", "self", "--type", "t"], notifier);
    expect(await box.notes()).toEqual([]);
  });

  test("is told after the event is stored", async ({ box }) => {
    await box.init();
    const notifier = await box.notifier(`"$THREAD_BIN" peek --thread ${quote(box.thread)} --last-event-id 0 >> ${quote(box.path("seen"))}`);
    await box.push({ content: "stored" }, notifier);
    expect((await box.written("seen")).map((line) => (JSON.parse(line) as StoredEvent).content)).toEqual(["stored"]);
  });

  test("names the task of a path of 39, 40, 41 and 60 characters by its slug", async ({ box }) => {
    for (const length of [39, 40, 41, 60]) {
      const thread = path.join(box.dir, "x".repeat(Math.max(1, length - box.dir.length - 1)));
      if (existsSync(thread)) continue;
      await box.init(thread);
      await box.push({}, await box.notifier(), thread);
      expect((await box.notes()).at(-1)?.[5]).toBe(`dispatch-${slug(thread)}`);
    }
  });

  test.for(["\u{1f389}", "a\u{1f389}\u{1f469}\u200d\u{1f467}b", "größe 世界"])("names the task of a path with %s by its slug", async (name, { box }) => {
    const thread = path.join(box.dir, name);
    await box.init(thread);
    await box.push({}, await box.notifier(), thread);
    expect((await box.notes())[0]?.[5]).toBe(`dispatch-${slug(thread)}`);
  });

  test("is told the resolved path, however the thread was named", async ({ box }) => {
    await box.init();
    await box.push({}, await box.notifier(), "./a/../t/");
    expect((await box.notes())[0]?.[5]).toBe(`dispatch-${slug(box.thread)}`);
    expect((await box.notes())[0]?.[7]).toContain(box.thread);
  });

  test.for([0, 1, 10])("ends with %i and the push succeeds", async (code, { box }) => {
    await box.init();
    const result = await box.run(box.pushArgs(), await box.notifier(`exit ${code}`));
    expect(result).toMatchObject({ code: 0, out: "" });
    expect((await box.all()).length).toBe(1);
  });

  test("keeps its output to itself", async ({ box }) => {
    await box.init();
    const result = await box.run([...box.pushArgs(), "--json"], await box.notifier());
    expect(result).toMatchObject({ code: 0, err: "" });
    expect(JSON.parse(result.out)).toMatchObject({ id: 1 });
  });

  test("reads, pops and acks do not tell it anything", async ({ box }) => {
    await box.init();
    await box.fill(2);
    const { env } = await box.notifier();
    await box.ok(["subscribe", "--thread", box.thread, "--consumer", "w", "--handler", "true"], env ? { env } : {});
    await box.ok(["pop", "--thread", box.thread, "--consumer", "w", "--last-event-id", "1"], env ? { env } : {});
    await box.ok(["peek", "--thread", box.thread, "--last-event-id", "1"], env ? { env } : {});
    expect(await box.notes()).toEqual([]);
  });
});

beyond("the notifier's command", () => {
  test.for([
    ["a plain one", "t"],
    ["one with blanks and quotes", `a 'b' "c"`],
    ["one with a second command in it", "t; touch injected; true $(touch injected) `touch injected` & # "],
  ] as const)("dispatches the thread when a shell runs it, with a path that is %s", async ([, name], { box }) => {
    const thread = box.path(name);
    await box.init(thread);
    const out = box.path("out");
    await box.ok(["subscribe", "--thread", thread, "--consumer", "w", "--handler", `${ackCommand(thread, "w", 1)}; echo ran >> ${quote(out)}`]);
    await box.push({}, await box.notifier(), thread);
    const command = (await box.notes())[0]?.[7] ?? "";
    await mkdir(box.path("elsewhere"));
    const result = await box.run(["-c", command], { cwd: box.path("elsewhere") }, "sh");
    expect(result).toMatchObject({ code: 0, out: "", err: "" });
    expect(await box.written("out")).toEqual(["ran"]);
    expect([existsSync(box.path("injected")), existsSync(box.path("elsewhere", "injected"))]).toEqual([false, false]);
  });
});

beyond("a notifier that does not do it", () => {
  const warnings = async (log: Promise<string[]>) => (await log).filter((line) => line.includes("[WARN]"));

  for (const [what, body, warned] of [
    ["says 1, already queued", "exit 1", 0],
    ["says 10", "exit 10", 1],
    ["says 126", "exit 126", 1],
    ["dies of a signal", "kill -9 $$", 1],
  ] as const) {
    test(`it ${what}: ${warned} warning, and the handler runs all the same`, async ({ box }) => {
      await box.init();
      await box.subscribe("w", drainCommand(box.thread, "w", box.path("out")));
      await box.push({}, await box.notifier(body));
      expect((await box.written("out")).length).toBe(1);
      expect((await warnings(box.log())).length).toBe(warned);
    });
  }

  test("it is not there: one warning, and the handler runs all the same", async ({ box }) => {
    await box.init();
    await box.subscribe("w", drainCommand(box.thread, "w", box.path("out")));
    await box.run(box.pushArgs(), { env: { EVENTQ_NOTIFIER: box.path("missing") } });
    expect((await box.written("out")).length).toBe(1);
    expect((await warnings(box.log())).length).toBe(1);
  });

  test("it hangs: the push comes back, and the handler runs all the same", async ({ box }) => {
    await box.init();
    const gate = await box.gate("gate");
    await box.subscribe("w", drainCommand(box.thread, "w", box.path("out")));
    const result = await box.run(box.pushArgs(), await box.notifier(`read go < ${quote(gate.file)}`));
    expect(result.code).toBe(0);
    expect((await box.written("out")).length).toBe(1);
    expect((await warnings(box.log())).length).toBe(1);
  });

  test("it leaves a child behind that holds its output open: the push comes back", async ({ box }) => {
    await box.init();
    const gate = await box.gate("gate");
    const result = await box.run(box.pushArgs(), await box.notifier(`(read go < ${quote(gate.file)}) & exit 0`));
    expect(result).toMatchObject({ code: 0, out: "" });
    expect((await box.all()).length).toBe(1);
  });
});

beyond("EVENTQ_NOTIFIER", () => {
  test("none: nobody is told and no handler runs", async ({ box }) => {
    await box.init();
    const { env } = await box.notifier();
    await box.subscribe("w", `echo ran >> ${quote(box.path("out"))}`);
    await box.push({}, { env: { ...env, EVENTQ_NOTIFIER: "none" } });
    expect(await box.notes()).toEqual([]);
    expect((await box.log()).join("\n")).not.toContain("spawned");
  });

  test("builtin: the handler runs and the notifier is not told", async ({ box }) => {
    await box.init();
    const { env } = await box.notifier();
    await box.subscribe("w", drainCommand(box.thread, "w", box.path("out")));
    await box.push({}, { env: { ...env, EVENTQ_NOTIFIER: "builtin" } });
    expect((await box.written("out")).length).toBe(1);
    expect(await box.notes()).toEqual([]);
  });

  test("a command: it is told instead of notifier", async ({ box }) => {
    await box.init();
    const { env } = await box.notifier("exit 10");
    const other = await box.script("other/told", `printf '%s\\n' "$@" > ${quote(box.path("other-notes"))}`);
    await box.push({}, { env: { ...env, EVENTQ_NOTIFIER: other } });
    expect((await box.written("other-notes", (lines) => lines.length === 8)).slice(0, 4)).toEqual(["task", "add", "--author", "self"]);
    expect(await box.notes()).toEqual([]);
  });

  test("unset and without a notifier on PATH: built-in", async ({ box }) => {
    await box.init();
    await box.subscribe("w", drainCommand(box.thread, "w", box.path("out")));
    const directories = (process.env["PATH"] ?? "").split(":").filter((one) => !existsSync(path.join(one, "notifier")));
    expect(await box.ok(box.pushArgs(), { env: { EVENTQ_NOTIFIER: undefined, PATH: directories.join(":") } })).toBe("");
    expect((await box.written("out")).length).toBe(1);
  });

  test("builtin: fifteen pushes at once reach the handler once each and in order", async ({ box }) => {
    await box.init();
    await box.subscribe("w", drainCommand(box.thread, "w", box.path("out")));
    await Promise.all(Array.from({ length: 15 }, () => box.push({}, { env: { EVENTQ_NOTIFIER: "builtin" } })));
    const lines = await box.written("out", (all) => all.length >= 15);
    expect(ids(lines.map((line) => JSON.parse(line) as StoredEvent))).toEqual(Array.from({ length: 15 }, (_, i) => i + 1));
    await eventually("the last ack", async () => (await box.acked("w")) === 15);
  });

  test("builtin: a push that no consumer is due for starts nothing", async ({ box }) => {
    await box.init();
    await box.subscribe("w", `echo ran >> ${quote(box.path("out"))}`, "--filter", "type = 'other'");
    await box.push({}, { env: { EVENTQ_NOTIFIER: "builtin" } });
    expect((await box.log()).join("\n")).not.toContain("spawned");
  });

  test("builtin: an event pushed by a handler wakes its consumer", async ({ box }) => {
    await box.init();
    const push = `"$THREAD_BIN" push --thread ${quote(box.thread)} --source self --type answer --content back`;
    await box.subscribe("asks", `${ackCommand(box.thread, "asks", 1)}; ${push}`, "--filter", "type = 'question'");
    await box.subscribe("hears", drainCommand(box.thread, "hears", box.path("out")), "--filter", "type = 'answer'");
    await box.push({ type: "question" }, { env: { EVENTQ_NOTIFIER: "builtin" } });
    expect(ids((await box.written("out")).map((line) => JSON.parse(line) as StoredEvent))).toEqual([2]);
  });
});
