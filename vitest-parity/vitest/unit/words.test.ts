import path from "node:path";
import { beyond, BIN, describe, expect, test } from "../helpers/index.ts";

const commands = ["init", "push", "pop", "peek", "subscribe", "unsubscribe", "dispatch", "info"];

describe("--verbose", () => {
  test("is taken before, between and after the words of a command", async ({ box }) => {
    await box.init();
    const words = box.pushArgs();
    for (const at of [0, 1, 3, 5, 7, 9]) expect(await box.ok(words.toSpliced(at, 0, "--verbose"))).toBe("");
    expect((await box.all()).map((event) => event.content)).toEqual(Array(6).fill("x"));
  });

  test("is taken by every command", async ({ box }) => {
    await box.ok(["init", box.thread, "--verbose"]);
    await box.ok([...box.pushArgs(), "--verbose"]);
    await box.ok(["push", "--thread", box.thread, "--batch", "--verbose"], { input: "" });
    await box.ok(["subscribe", "--verbose", "--thread", box.thread, "--consumer", "w", "--handler", "true"]);
    const pop = ["pop", "--thread", box.thread, "--consumer", "w", "--last-event-id", "0"];
    expect(await box.ok([...pop, "--verbose"])).toBe(await box.ok(pop));
    const peek = ["peek", "--thread", box.thread, "--last-event-id", "0"];
    expect(await box.ok(["--verbose", ...peek])).toBe(await box.ok(peek));
    expect(await box.ok(["info", "--verbose", "--thread", box.thread])).toBe(await box.ok(["info", "--thread", box.thread]));
    await box.ok(["dispatch", "--thread", box.thread, "--verbose"]);
    await box.ok(["unsubscribe", "--thread", box.thread, "--verbose", "--consumer", "w"]);
  });

  test("with --help is help all the same, with what the files of a thread are", async ({ box }) => {
    for (const words of [["--help", "--verbose"], ["--verbose", "--help"]]) {
      const out = await box.ok(words);
      for (const name of [...commands, "events.jsonl", "thread.log"]) expect(out).toContain(name);
    }
    for (const name of commands) expect(await box.ok([name, "--help", "--verbose"])).toMatch(/usage/i);
  });
});

describe("the version", () => {
  test.for([["--version"], ["-V"], ["info", "--version"], ["push", "-V"], ["--verbose", "--version"]])("%j is a bare number", async (words, { box }) => {
    expect(await box.ok(words)).toMatch(/^\d+\.\d+\.\d+\S*\n$/);
  });

  test("asked for in a push is all that is done", async ({ box }) => {
    await box.init();
    expect(await box.ok([...box.pushArgs(), "--version"])).toMatch(/^\d/);
    expect(await box.all()).toEqual([]);
  });
});

describe("help", () => {
  test("is --help, and help of a command is that command's --help", async ({ box }) => {
    expect(await box.ok(["help"])).toBe(await box.ok(["--help"]));
    for (const name of commands) expect(await box.ok(["help", name])).toBe(await box.ok([name, "--help"]));
  });

  test("of a command that there is not is a usage error", async ({ box }) => {
    expect(await box.run(["help", "nonsense"])).toMatchObject({ code: 2, out: "" });
  });

  test("is shown on stderr when there is no command, as a usage error", async ({ box }) => {
    const result = await box.run([]);
    expect(result).toMatchObject({ code: 2, out: "" });
    expect(result.err).toMatch(/usage/i);
    for (const name of commands) expect(result.err).toContain(name);
  });
});

describe("a hint", () => {
  test("names the command as it was called", async ({ box }) => {
    const name = path.basename(BIN);
    const { suggestion } = await box.fails(1, ["push", "--thread", box.thread, "--source", "s", "--type", "t", "--content", "c"]);
    expect(suggestion).toContain(`${name} init ${box.thread}`);
    await box.init();
    const pop = await box.fails(1, ["pop", "--thread", box.thread, "--consumer", "w", "--last-event-id", "0"]);
    expect(pop.suggestion).toContain(`${name} subscribe`);
    await box.subscribe("w");
    const again = await box.fails(1, ["subscribe", "--thread", box.thread, "--consumer", "w", "--handler", "true"]);
    expect(again.suggestion).toContain(`${name} unsubscribe`);
  });

  test("an example of help does, too", async ({ box }) => {
    for (const name of commands) expect(await box.ok([name, "--help"])).toContain(`${path.basename(BIN)} ${name}`);
  });
});

beyond("options anywhere", () => {
  test("a value is a value, also one that is spelled as such an option", async ({ box }) => {
    await box.init();
    const contents = ["--verbose", "--version", "-V", "--help", "help"];
    for (const content of contents) expect(await box.ok(box.pushArgs({ content }))).toBe("");
    expect((await box.all()).map((event) => event.content)).toEqual(contents);
  });

  test("commands of two words take them, too", async ({ box }) => {
    await box.init();
    for (const words of [["--verbose", "mirror", "rebuild"], ["mirror", "--verbose", "rebuild"], ["mirror", "rebuild", "--verbose"]]) {
      await box.ok([...words, "--thread", box.thread]);
    }
    expect(await box.ok(["help", "mirror", "rebuild"])).toBe(await box.ok(["mirror", "rebuild", "--help"]));
  });
});
