import fc from "fast-check";
import { existsSync } from "node:fs";
import path from "node:path";
import { describe, expect, ids, slug, test } from "../helpers/index.ts";

const part = fc.oneof(
  fc.string({ unit: fc.constantFrom("a", "B", "7", "-", "_", ".", " ", "'", '"', "$", ";", "&", "(", "\\", "*", "#", "~"), minLength: 1, maxLength: 12 }),
  fc.string({ unit: "grapheme", minLength: 1, maxLength: 4 }).map((one) => one.replace(/[\p{C}\p{Zl}\p{Zp}/]/gu, "x")),
);
const name = part.filter((one) => one !== "." && one !== ".." && one.trim() !== "" && !one.startsWith("~") && !one.startsWith("-"));

describe("the path of a thread", () => {
  test("may be of any characters, and is resolved as path.resolve does", async ({ box }) => {
    let run = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(name, { minLength: 1, maxLength: 3 }), fc.boolean(), async (parts, slash) => {
        const given = [`r${run++}`, ...parts].join("/") + (slash ? "/" : "");
        const thread = path.resolve(box.dir, given);
        expect(await box.ok(["init", given])).toBe(`Initialized thread at ${thread}\n`);
        expect(existsSync(path.join(thread, "events.db"))).toBe(true);
        await box.push({ content: given }, {}, given);
        expect(ids(await box.all(thread))).toEqual([1]);
      }),
      { numRuns: 12 },
    );
  });

  test("gives the task its name, for paths of ASCII", async ({ box }) => {
    let run = 0;
    const notifier = await box.notifier();
    const ascii = fc.string({ unit: fc.constantFrom("a", "Z", "0", "-", "_", ".", " ", "'", "$"), minLength: 1, maxLength: 40 });
    await fc.assert(
      fc.asyncProperty(ascii, async (tail) => {
        const thread = box.path(`n${run++}${tail}`);
        await box.init(thread);
        await box.push({}, notifier, thread);
        expect((await box.notes()).at(-1)?.[5]).toBe(`dispatch-${slug(thread)}`);
      }),
      { numRuns: 12 },
    );
  });
});
