import fc from "fast-check";
import { describe, expect, ids, test, type StoredEvent } from "../helpers/index.ts";

type Truth = boolean | null;
type Field = "source" | "type" | "subtype" | "content";
type Filter =
  | { kind: "compare"; field: Field; operator: "=" | "<>" | "<" | ">="; value: string }
  | { kind: "id"; operator: "=" | "<>" | "<" | ">="; value: number }
  | { kind: "like" | "glob"; field: Field; pattern: string }
  | { kind: "in"; field: Field; values: string[] }
  | { kind: "null"; field: Field; not: boolean }
  | { kind: "and" | "or"; left: Filter; right: Filter }
  | { kind: "not"; of: Filter };

const WORDS = ["a", "B", "ab", "b a", "it's", "", "é", "100%", "x_y"];
const field = fc.constantFrom<Field>("source", "type", "subtype", "content");
const operator = fc.constantFrom("=" as const, "<>" as const, "<" as const, ">=" as const);
const word = fc.constantFrom(...WORDS);
const pattern = (any: string, one: string) => fc.array(fc.constantFrom("a", "B", "b", any, one, "'"), { maxLength: 4 }).map((parts) => parts.join(""));

const filter = fc.letrec<{ filter: Filter; leaf: Filter }>((tie) => ({
  leaf: fc.oneof(
    fc.record({ kind: fc.constant("compare" as const), field, operator, value: word }),
    fc.record({ kind: fc.constant("id" as const), operator, value: fc.integer({ min: 0, max: 20 }) }),
    fc.record({ kind: fc.constant("like" as const), field, pattern: pattern("%", "_") }),
    fc.record({ kind: fc.constant("glob" as const), field, pattern: pattern("*", "?") }),
    fc.record({ kind: fc.constant("in" as const), field, values: fc.array(word, { minLength: 1, maxLength: 3 }) }),
    fc.record({ kind: fc.constant("null" as const), field, not: fc.boolean() }),
  ),
  filter: fc.oneof(
    { maxDepth: 3, depthSize: "small" },
    tie("leaf"),
    fc.record({ kind: fc.constantFrom("and" as const, "or" as const), left: tie("filter"), right: tie("filter") }),
    fc.record({ kind: fc.constant("not" as const), of: tie("filter") }),
  ),
})).filter;

const literal = (text: string) => `'${text.replaceAll("'", "''")}'`;

function sql(one: Filter): string {
  switch (one.kind) {
    case "compare":
      return `${one.field} ${one.operator} ${literal(one.value)}`;
    case "id":
      return `id ${one.operator} ${one.value}`;
    case "like":
    case "glob":
      return `${one.field} ${one.kind.toUpperCase()} ${literal(one.pattern)}`;
    case "in":
      return `${one.field} IN (${one.values.map(literal).join(", ")})`;
    case "null":
      return `${one.field} IS ${one.not ? "NOT " : ""}NULL`;
    case "and":
    case "or":
      return `(${sql(one.left)} ${one.kind.toUpperCase()} ${sql(one.right)})`;
    case "not":
      return `NOT (${sql(one.of)})`;
  }
}

function matches(text: string, wanted: string, any: string, one: string, flags: string): boolean {
  const source = [...wanted].map((c) => (c === any ? "[^]*" : c === one ? "[^]" : c.replace(/[.*+?^${}()|[\]\\]/, "\\$&"))).join("");
  return new RegExp(`^${source}$`, flags).test(text);
}

function compare<T extends string | number>(left: T, operator: "=" | "<>" | "<" | ">=", right: T): boolean {
  return operator === "=" ? left === right : operator === "<>" ? left !== right : operator === "<" ? left < right : left >= right;
}

/** The same filter in JavaScript, with SQL's three truth values. All words are below U+10000, so JS compares as bytes do. */
function truth(one: Filter, event: StoredEvent): Truth {
  switch (one.kind) {
    case "id":
      return compare(event.id, one.operator, one.value);
    case "and": {
      const [a, b] = [truth(one.left, event), truth(one.right, event)];
      return a === false || b === false ? false : a === null || b === null ? null : true;
    }
    case "or": {
      const [a, b] = [truth(one.left, event), truth(one.right, event)];
      return a === true || b === true ? true : a === null || b === null ? null : false;
    }
    case "not": {
      const a = truth(one.of, event);
      return a === null ? null : !a;
    }
    case "null":
      return (event[one.field] === null) !== one.not;
    default: {
      const value = event[one.field];
      if (value === null) return null;
      if (one.kind === "compare") return compare(value, one.operator, one.value);
      if (one.kind === "in") return one.values.includes(value);
      return one.kind === "like" ? matches(value, one.pattern, "%", "_", "iu") : matches(value, one.pattern, "*", "?", "u");
    }
  }
}

const name = fc.constantFrom(...WORDS.filter((one) => one !== ""));
const event = fc.record({ source: name, type: name, subtype: fc.option(word, { nil: null }), content: word });

describe("filters", () => {
  test("choose the same events as the same filter in JavaScript", async ({ box }) => {
    await box.init();
    const [drawn = []] = fc.sample(fc.array(event, { minLength: 20, maxLength: 20 }), { numRuns: 1, seed: 42 });
    await box.batch(drawn);
    const all = await box.all();
    await fc.assert(
      fc.asyncProperty(filter, async (one) => {
        expect(ids(await box.peek(["--filter", sql(one)])), sql(one)).toEqual(ids(all.filter((each) => truth(one, each) === true)));
      }),
      { numRuns: 50 },
    );
  });

  test("mean the same to a subscription, page by page", async ({ box }) => {
    await box.init();
    const [drawn = []] = fc.sample(fc.array(event, { minLength: 12, maxLength: 12 }), { numRuns: 1, seed: 43 });
    await box.batch(drawn);
    const all = await box.all();
    let run = 0;
    await fc.assert(
      fc.asyncProperty(filter, fc.integer({ min: 2, max: 6 }), async (one, limit) => {
        const consumer = `w${run++}`;
        await box.subscribe(consumer, "true", "--filter", sql(one));
        const seen: number[] = [];
        for (let last = 0; ; ) {
          const page = await box.pop(consumer, last, "--limit", String(limit));
          if (page.length === 0) break;
          seen.push(...ids(page));
          last = page.at(-1)?.id ?? last;
        }
        expect(seen, sql(one)).toEqual(ids(all.filter((each) => truth(one, each) === true)));
      }),
      { numRuns: 12 },
    );
  });
});
