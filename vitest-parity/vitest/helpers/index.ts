// The one import of every test file.
import { describe, test as base } from "vitest";
import { Box } from "./box.ts";
import { ORIGINAL } from "./target.ts";

export { expect } from "vitest";
export { describe };
export { Box, type Options, type Result, type StoredEvent, type Subscription, type Info, type NewEvent } from "./box.ts";
export { ackCommand, drainCommand, eventually, fixture, fixtureJson, ids, ndjson, quote, slug } from "./tools.ts";
export { BIN, ORIGINAL } from "./target.ts";

/** A test with a temporary directory of its own: checked and removed when the test is over. */
export const test = base.extend<{ box: Box }>({
  box: async ({}, use) => {
    const box = await Box.create();
    try {
      await use(box);
      await box.checkAll();
    } finally {
      await box.remove();
    }
  },
});

/** Behaviour that the original tool does not have; THREAD_PARITY=original leaves it out. */
export function beyond(what: string, body: () => void): void {
  describe.skipIf(ORIGINAL)(`beyond the original: ${what}`, body);
}
