import { mkdir } from "node:fs/promises";
import { beyond, describe, expect, test } from "../helpers/index.ts";

const inherited: Record<string, string[]> = {
  push: ["--source", "self", "--type", "t", "--content", "c"],
  "push --batch": [],
  pop: ["--consumer", "w", "--last-event-id", "0"],
  peek: ["--last-event-id", "0"],
  subscribe: ["--consumer", "w", "--handler", "true"],
  unsubscribe: ["--consumer", "w"],
  dispatch: [],
  info: [],
};
const added: Record<string, string[]> = {
  ack: ["--consumer", "w", "--last-event-id", "0"],
  tail: [],
  check: [],
  "mirror rebuild": [],
  prune: ["--keep-last", "1"],
  resume: ["--consumer", "w"],
};
const withJson = ["push", "push --batch", "pop", "peek", "subscribe", "info"];
const call = (name: string, thread: string, rest: string[]) => [...name.split(" "), "--thread", thread, ...rest];

describe("a thread that is not there", () => {
  test.for(Object.keys(inherited))("%s: a logic error that names init, and nothing is made", async (name, { box }) => {
    const { suggestion } = await box.fails(1, call(name, box.thread, inherited[name] ?? []));
    expect(suggestion).toContain("init");
    expect(await box.snapshot(box.dir)).not.toHaveProperty("t");
    // A directory without a database is not a thread either.
    await mkdir(box.thread);
    await box.fails(1, call(name, box.thread, inherited[name] ?? []));
    expect(await box.snapshot()).toEqual({});
  });

  test.for(withJson)("%s --json: the error is one line of JSON on stderr", async (name, { box }) => {
    const { message, suggestion } = await box.fails(1, [...call(name, box.thread, inherited[name] ?? []), "--json"]);
    expect(message).toContain(box.thread);
    expect(suggestion).toContain("init");
  });
});

describe("usage", () => {
  test("--help succeeds and names every command", async ({ box }) => {
    const out = await box.ok(["--help"]);
    for (const name of ["init", "push", "pop", "peek", "subscribe", "unsubscribe", "dispatch", "info"]) expect(out).toContain(name);
  });

  test("--help of a command succeeds and names its options", async ({ box }) => {
    for (const name of ["init", "push", "pop", "peek", "subscribe", "unsubscribe", "dispatch", "info"]) {
      const out = await box.ok([name, "--help"]);
      expect(out).toMatch(/usage/i);
      if (name !== "init") expect(out).toContain("--thread");
    }
  });

  test.for([
    ["pop", "--last-event-id", "abc"],
    ["pop", "--limit", "abc"],
    ["peek", "--last-event-id", "abc"],
    ["peek", "--limit", "abc"],
  ] as const)("%s %s %s is a usage error", async ([name, option, value], { box }) => {
    await box.init();
    await box.subscribe("w");
    await box.fails(2, [...call(name, box.thread, inherited[name] ?? []), option, value]);
  });

  test("an error is one sentence and a way out, on stderr only", async ({ box }) => {
    const result = await box.run(["info", "--thread", box.thread]);
    expect(result).toMatchObject({ code: 1, out: "" });
    expect(result.err).toMatch(/^Error: .+ - .+\n$/);
  });
});

beyond("errors of the added commands", () => {
  test.for(Object.keys(added))("%s without a thread is a logic error that names init, without --thread a usage error", async (name, { box }) => {
    const { suggestion } = await box.fails(1, call(name, box.thread, added[name] ?? []));
    expect(suggestion).toContain("init");
    expect(await box.snapshot(box.dir)).toEqual({});
    await box.fails(2, [...name.split(" "), ...(added[name] ?? [])]);
  });
});

beyond("usage", () => {
  test("--help of every command has an example", async ({ box }) => {
    for (const name of ["init", ...Object.keys(inherited).filter((one) => !one.includes(" --")), ...Object.keys(added)]) {
      const out = await box.ok([...name.split(" "), "--help"]);
      expect(out, name).toMatch(/example/i);
      expect(out, name).toMatch(new RegExp(`(thread|eventq) ${name}`));
    }
  });

  test("--version prints a version", async ({ box }) => {
    expect(await box.ok(["--version"])).toMatch(/\d+\.\d+/);
  });

  test.for([
    ["an unknown command", ["nonsense"]],
    ["an unknown option", ["info", "--thread", "t", "--nonsense"]],
    ["an option without its value", ["info", "--thread"]],
    ["a word too many", ["info", "--thread", "t", "word"]],
    ["an unknown option before the command", ["--nonsense", "info"]],
  ] as const)("%s is a usage error in the usual form", async ([, args], { box }) => {
    await box.fails(2, args);
  });

  test.for([
    ["a missing option", ["pop", "--thread", "t", "--json"]],
    ["an unknown option", ["info", "--thread", "t", "--nonsense", "--json"]],
    ["a bad number", ["peek", "--thread", "t", "--last-event-id", "abc", "--json"]],
  ] as const)("%s with --json is an error in JSON", async ([, args], { box }) => {
    await box.init();
    await box.fails(2, args);
  });

  test("an empty --thread is a usage error for every command", async ({ box }) => {
    for (const [name, rest] of Object.entries({ ...inherited, ...added })) await box.fails(2, call(name, "", rest));
  });
});

const numbers = {
  good: [["0", [1, 2, 3]], ["2", [3]], ["+2", [3]], [" 2 ", [3]], ["002", [3]], ["9223372036854775807", []]] as const,
  bad: ["-1", "", "1.9", "2abc", "1e3", "0x2", "1_000", "\uff12", "+", "+-2", "NaN", "Infinity", "9223372036854775808", "99999999999999999999999"],
};

beyond("numbers", () => {
  test("are decimal digits, with a plus and blanks if you like", async ({ box }) => {
    await box.init();
    await box.fill(3);
    for (const [word, expected] of numbers.good) {
      expect((await box.peek(["--last-event-id", word])).map((event) => event.id), word).toEqual(expected);
    }
  });

  test("of any other form are a usage error, and ack nothing", async ({ box }) => {
    await box.init();
    await box.fill(3);
    await box.subscribe("w");
    for (const word of numbers.bad) {
      await box.fails(2, ["peek", "--thread", box.thread, "--last-event-id", word]);
      await box.fails(2, ["pop", "--thread", box.thread, "--consumer", "w", "--last-event-id", word]);
    }
    expect(await box.acked("w")).toBe(0);
  });

  test("a limit is at least 1", async ({ box }) => {
    await box.init();
    await box.subscribe("w");
    for (const word of ["0", "-1", "1.5", "x", ""]) {
      await box.fails(2, ["peek", "--thread", box.thread, "--last-event-id", "0", "--limit", word]);
      await box.fails(2, ["pop", "--thread", box.thread, "--consumer", "w", "--last-event-id", "0", "--limit", word]);
    }
  });
});

beyond("the order in which errors are found", () => {
  test("a missing option comes before a missing thread", async ({ box }) => {
    await box.fails(2, ["push", "--thread", box.thread, "--type", "t", "--content", "c"]);
    await box.fails(2, ["pop", "--thread", box.thread, "--consumer", "w"]);
    await box.fails(2, ["subscribe", "--thread", box.thread, "--consumer", "w"]);
    await box.fails(2, ["peek", "--thread", box.thread]);
  });

  test("a missing thread comes before a bad value", async ({ box }) => {
    await box.fails(1, ["pop", "--thread", box.thread, "--consumer", "w", "--last-event-id", "abc"]);
    await box.fails(1, ["peek", "--thread", box.thread, "--last-event-id", "abc"]);
    await box.fails(1, ["peek", "--thread", box.thread, "--last-event-id", "0", "--limit", "0"]);
    await box.fails(1, ["peek", "--thread", box.thread, "--last-event-id", "0", "--filter", "nonsense ="]);
    await box.fails(1, ["subscribe", "--thread", box.thread, "--consumer", "w", "--handler", "true", "--filter", "nonsense ="]);
    await box.fails(1, ["push", "--thread", box.thread, "--batch"], { input: "nonsense\n" });
  });

  test("a bad value comes before an unknown consumer", async ({ box }) => {
    await box.init();
    await box.fails(2, ["pop", "--thread", box.thread, "--consumer", "nobody", "--last-event-id", "abc"]);
    await box.fails(2, ["pop", "--thread", box.thread, "--consumer", "nobody", "--last-event-id", "0", "--limit", "0"]);
    await box.fails(2, ["ack", "--thread", box.thread, "--consumer", "nobody", "--last-event-id", "1.5"]);
    await box.fails(1, ["pop", "--thread", box.thread, "--consumer", "nobody", "--last-event-id", "0"]);
  });
});
