// The database as other tools see it, and threads that other tools have made. Needs python3, for its sqlite3.
import { appendFile, mkdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { beyond, type Box, describe, expect, ids, test } from "../helpers/index.ts";

const EVENTS = "id INTEGER PRIMARY KEY AUTOINCREMENT, created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')), source TEXT NOT NULL, type TEXT NOT NULL, subtype TEXT, content TEXT NOT NULL";
const SUBSCRIPTIONS = "consumer_id TEXT NOT NULL, handler_cmd TEXT NOT NULL, filter TEXT, PRIMARY KEY (consumer_id)";
const PROGRESS = "consumer_id TEXT NOT NULL PRIMARY KEY, last_acked_id INTEGER NOT NULL DEFAULT 0, updated_at TEXT NOT NULL";

const columns = (box: Box, table: string) =>
  box.python(`print([(row[1], row[2], row[3], row[5]) for row in db.execute("PRAGMA table_info(${table})")])`);

describe("the tables of the database", () => {
  test("events", async ({ box }) => {
    await box.init();
    expect(await columns(box, "events")).toBe(
      "[('id', 'INTEGER', 0, 1), ('created_at', 'TEXT', 1, 0), ('source', 'TEXT', 1, 0), ('type', 'TEXT', 1, 0), ('subtype', 'TEXT', 0, 0), ('content', 'TEXT', 1, 0)]\n",
    );
  });

  test("subscriptions", async ({ box }) => {
    await box.init();
    expect(await columns(box, "subscriptions")).toBe("[('consumer_id', 'TEXT', 1, 1), ('handler_cmd', 'TEXT', 1, 0), ('filter', 'TEXT', 0, 0)]\n");
  });

  test("consumer_progress", async ({ box }) => {
    await box.init();
    expect(await columns(box, "consumer_progress")).toBe("[('consumer_id', 'TEXT', 1, 1), ('last_acked_id', 'INTEGER', 1, 0), ('updated_at', 'TEXT', 1, 0)]\n");
  });

  test("hold what the commands have written", async ({ box }) => {
    await box.init();
    await box.push({ source: "s", type: "t", subtype: "u", content: "c" });
    await box.subscribe("w", "echo hi", "--filter", "id > 0");
    await box.pop("w", 1);
    expect(await box.python(`print(db.execute("SELECT id, source, type, subtype, content FROM events").fetchall())`)).toBe("[(1, 's', 't', 'u', 'c')]\n");
    expect(await box.python(`print(db.execute("SELECT * FROM subscriptions").fetchall())`)).toBe("[('w', 'echo hi', 'id > 0')]\n");
    expect(await box.python(`print(db.execute("SELECT consumer_id, last_acked_id FROM consumer_progress").fetchall())`)).toBe("[('w', 1)]\n");
  });

  test("an event that another tool has inserted is read like any other", async ({ box }) => {
    await box.init();
    await box.push();
    await box.python(`db.execute("INSERT INTO events (source, type, content) VALUES ('other', 'tool', 'é')")`);
    const all = await box.all();
    expect(all[1]).toMatchObject({ id: 2, source: "other", type: "tool", subtype: null, content: "é" });
    expect(all[1]?.created_at).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    await box.push();
  });
});

beyond("a thread that the original tool has made", () => {
  /** A line of the original's mirror: what it was given, then what it has added, with the time of the line. */
  const line = (id: number) => `{"source":"self","type":"record","content":"${id}","id":${id},"created_at":"2026-03-18T10:30:0${id}.126Z","subtype":null}\n`;

  /** Three events, two consumers, one of them half way, and a mirror with the same events. */
  async function made(box: Box): Promise<void> {
    await mkdir(path.join(box.thread, "run"), { recursive: true });
    await mkdir(path.join(box.thread, "logs"));
    await box.python(
      [
        `db.execute("PRAGMA journal_mode=WAL")`,
        `db.execute("""CREATE TABLE events (${EVENTS})""")`,
        `db.execute("CREATE INDEX idx_events_source ON events(source)")`,
        `db.execute("CREATE INDEX idx_events_type ON events(type)")`,
        `db.execute("""CREATE TABLE subscriptions (${SUBSCRIPTIONS})""")`,
        `db.execute("""CREATE TABLE consumer_progress (${PROGRESS})""")`,
        `for i in (1, 2, 3): db.execute("INSERT INTO events (created_at, source, type, content) VALUES (?, 'self', 'record', ?)", (f"2026-03-18T10:30:0{i}.123Z", str(i)))`,
        `db.execute("INSERT INTO subscriptions VALUES ('old', 'true', NULL)")`,
        `db.execute("INSERT INTO subscriptions VALUES ('picky', 'true', 'id > 1')")`,
        `db.execute("INSERT INTO consumer_progress VALUES ('old', 2, '2026-03-18T10:30:05.123Z')")`,
      ].join("\n"),
    );
    await writeFile(path.join(box.thread, "events.jsonl"), [1, 2, 3].map(line).join(""));
    await writeFile(path.join(box.thread, "run", "old.lock"), "");
    box.adopt(box.thread);
  }

  test("is read unchanged", async ({ box }) => {
    await made(box);
    expect(ids(await box.all())).toEqual([1, 2, 3]);
    expect((await box.info()).subscriptions.map((one) => [one.consumer_id, one.last_acked_id])).toEqual([
      ["old", 2],
      ["picky", 0],
    ]);
  });

  test("goes on: push, pop, mirror", async ({ box }) => {
    await made(box);
    expect((await box.push()).id).toBe(4);
    expect(ids(await box.pop("old", 2))).toEqual([3, 4]);
    expect(ids(await box.pop("picky", 0))).toEqual([2, 3, 4]);
    expect((await box.mirror()).map((text) => (JSON.parse(text) as { id: number }).id)).toEqual([1, 2, 3, 4]);
    expect(await readFile(path.join(box.thread, "original-mirror", "events.jsonl"), "utf8")).toBe([1, 2, 3].map(line).join(""));
  });

  test("is written by both in turns", async ({ box }) => {
    await made(box);
    for (const id of [4, 6]) {
      await box.python(`db.execute("INSERT INTO events (created_at, source, type, content) VALUES ('2026-03-18T10:30:0${id}.123Z', 'self', 'record', '${id}')")`);
      await appendFile(path.join(box.thread, "events.jsonl"), line(id));
      await box.push();
    }
    const all = (await box.ok(["peek", "--thread", box.thread, "--last-event-id", "0"])).split("\n").slice(0, -1);
    expect([all.length, await box.mirror()]).toEqual([7, all]);
  });

  test("is dispatched in spite of the lock file that the original left", async ({ box }) => {
    await made(box);
    await box.ok(["unsubscribe", "--thread", box.thread, "--consumer", "old"]);
    await box.subscribe("old", `"$THREAD_BIN" pop --thread "$EVENTQ_THREAD" --consumer old --last-event-id 3; echo ran >> '${box.path("out")}'`);
    await box.ok(["unsubscribe", "--thread", box.thread, "--consumer", "picky"]);
    await box.dispatch();
    expect(await box.written("out")).toEqual(["ran"]);
  });

  test("is a thread for init as well", async ({ box }) => {
    await made(box);
    await box.fails(1, ["init", box.thread]);
    expect((await box.all()).length).toBe(3);
  });
});
