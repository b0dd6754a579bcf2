import { mkdir, readFile, readdir } from "node:fs/promises";
import path from "node:path";
import { ackCommand, beyond, describe, drainCommand, eventually, expect, ids, quote, test, type StoredEvent } from "../helpers/index.ts";

const lastId = (lines: string[]) => (JSON.parse(lines.at(-1) ?? '{"id":0}') as StoredEvent).id;

describe("dispatch", () => {
  test("without consumers does nothing and succeeds", async ({ box }) => {
    await box.init();
    await box.fill(1);
    await box.dispatch();
  });

  test("without --thread is a usage error", async ({ box }) => {
    await box.fails(2, ["dispatch"]);
  });

  test("--json is a usage error and starts nothing", async ({ box }) => {
    await box.init();
    await box.fill(1);
    await box.subscribe("w", "exit 0");
    expect(await box.run(["dispatch", "--thread", box.thread, "--json"])).toMatchObject({ code: 2, out: "" });
    expect((await box.log()).filter((line) => line.includes("dispatch:"))).toEqual([]);
  });

  test("starts the handler of a consumer with something to read", async ({ box }) => {
    await box.init();
    await box.fill(2);
    await box.subscribe("w", `echo ran >> ${quote(box.path("out"))}; ${ackCommand(box.thread, "w", 2)}`);
    await box.dispatch();
    expect(await box.written("out")).toEqual(["ran"]);
    await eventually("the ack", async () => (await box.acked("w")) === 2);
  });

  test("starts one handler for each consumer that has something to read, and no other", async ({ box }) => {
    await box.init();
    await box.batch([{ type: "a" }, { type: "b" }]);
    const handler = (name: string) => `echo ran >> ${quote(box.path(name))}; ${ackCommand(box.thread, name, 2)}`;
    await box.subscribe("all", handler("all"));
    await box.subscribe("some", handler("some"), "--filter", "type = 'a'");
    await box.subscribe("none", handler("none"), "--filter", "type = 'c'");
    await box.subscribe("done", handler("done"));
    await box.pop("done", 2);
    await box.dispatch();
    expect(await box.written("all")).toEqual(["ran"]);
    expect(await box.written("some")).toEqual(["ran"]);
    const log = (await box.log()).join("\n");
    expect(log).not.toMatch(/consumer=(none|done) spawned/);
    // By name only: the supervisors are still tidying up, and a file that is listed may be gone when it is read.
    expect(await readdir(box.dir)).not.toContain("none");
    expect(await readdir(box.dir)).not.toContain("done");
  });

  test("runs the handler through a shell, with pipes and quotes", async ({ box }) => {
    await box.init();
    await box.fill(1);
    const out = quote(box.path("out"));
    await box.subscribe("w", `printf 'b\\na\\n' | sort | tr a-z A-Z > ${out} && echo "it's $((1+1))" >> ${out}; ${ackCommand(box.thread, "w", 1)}`);
    await box.dispatch();
    expect(await box.written("out", (lines) => lines.length === 3)).toEqual(["A", "B", "it's 2"]);
  });

  test("runs the handler in the caller's directory and environment", async ({ box }) => {
    await box.init();
    await box.fill(1);
    await mkdir(box.path("here"));
    await box.subscribe("w", `printf '%s\\n' "$PWD" "$COLOUR" > ${quote(box.path("out"))}; ${ackCommand(box.thread, "w", 1)}`);
    await box.dispatch({ cwd: box.path("here"), env: { COLOUR: "blue" } });
    expect(await box.written("out", (lines) => lines.length === 2)).toEqual([box.path("here"), "blue"]);
  });

  test("does not wait for the handler", async ({ box }) => {
    await box.init();
    await box.fill(1);
    const gate = await box.gate("gate");
    await box.subscribe("w", `read go < ${quote(gate.file)}; ${ackCommand(box.thread, "w", 1)}; echo ran > ${quote(box.path("out"))}`);
    await box.dispatch();
    expect(await box.acked("w")).toBe(0);
    await gate.open();
    await box.written("out");
    expect(await box.acked("w")).toBe(1);
  });

  test("does not start a second handler for a consumer whose handler is running", async ({ box }) => {
    await box.init();
    await box.fill(1);
    const gate = await box.gate("gate");
    const out = quote(box.path("out"));
    await box.subscribe("w", `echo started >> ${out}; read go < ${quote(gate.file)}; ${ackCommand(box.thread, "w", 1)}; echo ended >> ${out}`);
    await box.dispatch();
    await box.written("out");
    await box.dispatch();
    await Promise.all([box.dispatch(), box.dispatch()]);
    await eventually("a line about the lock", async () => (await box.log()).some((line) => /dispatch: consumer=w skipped \(lock held\)$/.test(line)));
    await gate.open();
    expect(await box.written("out", (lines) => lines.includes("ended"))).toEqual(["started", "ended"]);
  });

  test("one consumer's handler does not hold up another's", async ({ box }) => {
    await box.init();
    await box.fill(1);
    const gate = await box.gate("gate");
    await box.subscribe("slow", `read go < ${quote(gate.file)}; ${ackCommand(box.thread, "slow", 1)}`);
    await box.subscribe("quick", `${ackCommand(box.thread, "quick", 1)}; echo ran > ${quote(box.path("out"))}`);
    await box.dispatch();
    await box.written("out");
    expect(await box.acked("slow")).toBe(0);
  });

  test("writes what it did to the log", async ({ box }) => {
    await box.init();
    await box.fill(1);
    const handler = ackCommand(box.thread, "w", 1);
    await box.subscribe("w", handler);
    await box.dispatch();
    await eventually("the ack", async () => (await box.acked("w")) === 1);
    expect((await box.log()).filter((line) => line.includes("dispatch: consumer=w spawned handler_cmd=")).length).toBeGreaterThan(0);
  });

  test("leaves a lock file in run/", async ({ box }) => {
    await box.init();
    await box.fill(1);
    const gate = await box.gate("gate");
    await box.subscribe("worker-1_b", `echo started > ${quote(box.path("out"))}; read go < ${quote(gate.file)}; ${ackCommand(box.thread, "worker-1_b", 1)}`);
    await box.dispatch();
    await box.written("out");
    expect(await readdir(path.join(box.thread, "run"))).toContain("worker-1_b.lock");
  });
});

beyond("dispatch and what a handler is given", () => {
  test("EVENTQ_THREAD, EVENTQ_CONSUMER and EVENTQ_LAST_ACKED_ID", async ({ box }) => {
    await box.init();
    await box.fill(3);
    await box.subscribe("w", `printf '%s\\n' "$EVENTQ_THREAD" "$EVENTQ_CONSUMER" "$EVENTQ_LAST_ACKED_ID" > ${quote(box.path("out"))}; ${ackCommand(box.thread, "w", 3)}`);
    await box.pop("w", 2);
    await box.ok(["dispatch", "--thread", "./t/"]);
    expect(await box.written("out", (lines) => lines.length === 3)).toEqual([box.thread, "w", "2"]);
  });

  test("a file for its output, stdout and stderr", async ({ box }) => {
    await box.init();
    await box.fill(1);
    await box.subscribe("w", `echo to stdout; echo to stderr >&2; ${ackCommand(box.thread, "w", 1)}`);
    await box.dispatch();
    await eventually("both lines", async () => {
      const text = (await box.lines("logs", "handlers", "w.log")).join("\n");
      return text.includes("to stdout") && text.includes("to stderr");
    });
  });

  test("no stdin to hang on", async ({ box }) => {
    await box.init();
    await box.fill(1);
    await box.subscribe("w", `cat > ${quote(box.path("in"))}; ${ackCommand(box.thread, "w", 1)}; echo ran > ${quote(box.path("out"))}`);
    await box.dispatch({ holdStdin: true });
    await box.written("out");
    expect(await readFile(box.path("in"), "utf8")).toBe("");
  });
});

beyond("dispatch loses no event", () => {
  test("a consumer is dispatched again and again in its life", async ({ box }) => {
    await box.init();
    await box.subscribe("w", drainCommand(box.thread, "w", box.path("out")));
    for (const id of [1, 2, 3]) {
      await box.push();
      await box.dispatch();
      await box.written("out", (lines) => lastId(lines) === id);
      await eventually("the ack", async () => (await box.acked("w")) === id);
    }
    expect((await box.written("out")).map((line) => (JSON.parse(line) as StoredEvent).id)).toEqual([1, 2, 3]);
  });

  test("a handler that reads one page is started again for the rest, without another push", async ({ box }) => {
    await box.init();
    await box.fill(5);
    const next = `$(( EVENTQ_LAST_ACKED_ID + 1 ))`;
    await box.subscribe("w", `echo "$EVENTQ_LAST_ACKED_ID" >> ${quote(box.path("out"))}; "$THREAD_BIN" ack --thread ${quote(box.thread)} --consumer w --last-event-id ${next}`);
    await box.dispatch();
    expect(await box.written("out", (lines) => lines.length >= 5)).toEqual(["0", "1", "2", "3", "4"]);
    await eventually("the last ack", async () => (await box.acked("w")) === 5);
  });

  test("an event pushed while a handler is finishing is handled without another push", async ({ box }) => {
    await box.init();
    const gate = await box.gate("gate");
    const out = box.path("out");
    await box.subscribe("w", `${drainCommand(box.thread, "w", out)}; echo drained >> ${quote(box.path("steps"))}; read go < ${quote(gate.file)}`);
    await box.push({ content: "first" });
    await box.dispatch();
    await box.written("steps");
    await box.push({ content: "late" });
    await box.dispatch();
    await gate.open();
    const lines = await box.written("out", (all) => all.length >= 2);
    expect(lines.map((line) => (JSON.parse(line) as StoredEvent).content)).toEqual(["first", "late"]);
  });

  test("twenty pushes and dispatches at once reach the handler once each and in order", async ({ box }) => {
    await box.init();
    await box.subscribe("w", drainCommand(box.thread, "w", box.path("out"), 3));
    await Promise.all(
      Array.from({ length: 20 }, async (_, i) => {
        await box.push({ content: String(i) });
        await box.dispatch();
      }),
    );
    const lines = await box.written("out", (all) => all.length >= 20);
    expect(ids(lines.map((line) => JSON.parse(line) as StoredEvent))).toEqual(Array.from({ length: 20 }, (_, i) => i + 1));
  });

  test("a lock file left over from a crash does not keep a consumer from running", async ({ box }) => {
    await box.init();
    await box.fill(1);
    await mkdir(path.join(box.thread, "run"), { recursive: true });
    await box.script("t/run/w.lock", "999999999");
    await box.subscribe("w", `${ackCommand(box.thread, "w", 1)}; echo ran >> ${quote(box.path("out"))}`);
    await box.dispatch();
    expect(await box.written("out")).toEqual(["ran"]);
  });

  test("a handler killed with -9 is started again", async ({ box }) => {
    await box.init();
    await box.fill(1);
    const out = quote(box.path("out"));
    await box.subscribe("w", `echo try >> ${out}; [ "$(wc -l < ${out})" -ge 2 ] || kill -9 $$; ${ackCommand(box.thread, "w", 1)}`);
    await box.dispatch();
    await box.written("out", (lines) => lines.length === 2);
    await eventually("the ack", async () => (await box.acked("w")) === 1);
  });

  test("a handler that fails twice and then works has worked", async ({ box }) => {
    await box.init();
    await box.fill(1);
    const out = quote(box.path("out"));
    await box.subscribe("w", `echo try >> ${out}; [ "$(wc -l < ${out})" -ge 3 ] || exit 1; ${ackCommand(box.thread, "w", 1)}`);
    await box.dispatch();
    await eventually("the ack", async () => (await box.acked("w")) === 1);
    expect((await box.written("out")).length).toBe(3);
  });
});

beyond("dispatch and handlers that do not work", () => {
  const stalled = (lines: string[], name: string) => lines.some((line) => line.includes(`consumer=${name} `) && /stall/i.test(line));

  test("a handler without progress is stalled after --max-attempts and says so in info and the log", async ({ box }) => {
    await box.init();
    await box.fill(1);
    await box.subscribe("w", `echo try >> ${quote(box.path("out"))}; exit 3`, "--max-attempts", "2");
    await box.dispatch();
    await eventually("the stall in the log", async () => stalled(await box.log(), "w"));
    expect(await box.written("out")).toEqual(["try", "try"]);
    await eventually("the stall in info", async () => /stalled/i.test(await box.ok(["info", "--thread", box.thread])));
    const [one] = (await box.info()).subscriptions as unknown as { stalled?: unknown }[];
    expect(one?.stalled).toBeTruthy();
  });

  test("a handler that succeeds without progress is stalled as well", async ({ box }) => {
    await box.init();
    await box.fill(1);
    await box.subscribe("w", `echo try >> ${quote(box.path("out"))}`, "--max-attempts", "1");
    await box.dispatch();
    await eventually("the stall", async () => stalled(await box.log(), "w"));
    expect(await box.written("out")).toEqual(["try"]);
  });

  test("a stalled consumer does not hold up the others", async ({ box }) => {
    await box.init();
    await box.fill(1);
    await box.subscribe("bad", "exit 1", "--max-attempts", "1");
    await box.dispatch();
    await eventually("the stall", async () => stalled(await box.log(), "bad"));
    await box.subscribe("good", `${ackCommand(box.thread, "good", 1)}; echo ran >> ${quote(box.path("out"))}`);
    await box.dispatch();
    expect(await box.written("out")).toEqual(["ran"]);
  });

  test("resume clears a stall and the consumer runs again", async ({ box }) => {
    await box.init();
    await box.fill(1);
    const out = quote(box.path("out"));
    await box.subscribe("w", `echo try >> ${out}; [ "$(wc -l < ${out})" -ge 2 ] || exit 1; ${ackCommand(box.thread, "w", 1)}`, "--max-attempts", "1");
    await box.dispatch();
    await eventually("the stall", async () => stalled(await box.log(), "w"));
    await box.ok(["resume", "--thread", box.thread, "--consumer", "w"]);
    await box.dispatch();
    await eventually("the ack", async () => (await box.acked("w")) === 1);
  });

  test("a handler that takes longer than --timeout is ended", async ({ box }) => {
    await box.init();
    await box.fill(1);
    const gate = await box.gate("gate");
    await box.subscribe("w", `read go < ${quote(gate.file)}; ${ackCommand(box.thread, "w", 1)}`, "--timeout", "1", "--max-attempts", "1");
    await box.dispatch();
    await eventually("the stall", async () => stalled(await box.log(), "w"));
    expect(await box.acked("w")).toBe(0);
  });

  test("a stored filter that has broken stalls that consumer only", async ({ box }) => {
    await box.init();
    await box.fill(1);
    await box.subscribe("bad", `echo bad >> ${quote(box.path("bad"))}`);
    await box.subscribe("good", `${ackCommand(box.thread, "good", 1)}; echo ran >> ${quote(box.path("out"))}`);
    await box.python(`db.execute("UPDATE subscriptions SET filter = 'no such thing' WHERE consumer_id = 'bad'")`);
    expect((await box.run(["dispatch", "--thread", box.thread])).code).toBe(0);
    expect(await box.written("out")).toEqual(["ran"]);
    await eventually("the message", async () => (await box.log()).some((line) => line.includes("consumer=bad ")));
    await box.python(`db.execute("UPDATE subscriptions SET filter = NULL")`);
  });
});

beyond("dispatch and hostile names", () => {
  test("each runs under a lock of its own and nothing leaves the thread", async ({ box }) => {
    await box.init(box.path("deep", "t"));
    const thread = box.path("deep", "t");
    const names = ["../x", "../../x", "a/b", "/abs", ".", "..", "Case", "case", "a b", "a%2Fb", "é", "e\u0301", "$(touch y)", "'; touch z; '", "-n", "con", "x".repeat(300)];
    await box.ok(["push", "--thread", thread, "--source", "self", "--type", "t", "--content", "x"]);
    for (const [i, name] of names.entries()) {
      const handler = `echo ${i} >> ${quote(box.path("out"))}; ${ackCommand(thread, name, 1)}`;
      await box.ok(["subscribe", "--thread", thread, "--consumer", name, "--handler", handler]);
    }
    await box.ok(["dispatch", "--thread", thread]);
    const lines = await box.written("out", (all) => all.length >= names.length);
    expect(lines.map(Number).sort((a, b) => a - b)).toEqual(names.map((_, i) => i));
    await eventually("every ack", async () => (await box.info(thread)).subscriptions.every((one) => one.last_acked_id === 1));
    expect(await readdir(box.path("deep"))).toEqual(["t"]);
    expect((await readdir(box.dir)).sort()).toEqual(["deep", "out"]);
    expect((await readdir(path.join(thread, "run"))).filter((name) => name.endsWith(".lock")).length).toBe(names.length);
  });
});
