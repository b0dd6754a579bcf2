// What the property tests draw from.
import fc from "fast-check";
import type { NewEvent } from "./box.ts";

/** Any text without lone surrogates, rich in what tends to go wrong. */
export const text: fc.Arbitrary<string> = fc.oneof(
  fc.string({ unit: "binary", maxLength: 40 }),
  fc.string({ unit: "grapheme", maxLength: 40 }),
  fc.string({
    unit: fc.constantFrom("\0", "\n", "\r", "\t", "\u001b", "\u007f", "\u0085", "\u2028", "\ufeff", '"', "\\", "/", "'", "{", "}", "é", "\u{1f389}", " ", "a"),
    maxLength: 30,
  }),
);

/** Text that can be an argument of a program. */
export const argument: fc.Arbitrary<string> = text.map((one) => one.replaceAll("\0", "0"));

/** Text without control characters and not empty, as names are. */
export const name: fc.Arbitrary<string> = fc
  .oneof(
    fc.string({ unit: "grapheme", minLength: 1, maxLength: 30 }),
    fc.string({ unit: fc.constantFrom("a", "B", "-", "_", ".", "/", "\\", "%", " ", "'", '"', "$", ";", "é", "2", ":"), minLength: 1, maxLength: 20 }),
  )
  .map((one) => one.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, "x"))
  .filter((one) => one.trim() !== "");

export const subtype: fc.Arbitrary<string | null> = fc.option(fc.oneof(fc.constantFrom("", "toolcall", "decision"), name), { nil: null });

export const event: fc.Arbitrary<Required<Omit<NewEvent, "key">> & { content: string }> = fc.record({
  source: fc.oneof(fc.constantFrom("self", "internal:dm:default:warden", "external:telegram:tg-main:dm:alice:alice"), name),
  type: fc.oneof(fc.constantFrom("message", "record"), name),
  subtype,
  content: text,
});
