// Fails once, with a sentence, when there is nothing to test.
import { constants } from "node:fs";
import { access } from "node:fs/promises";
import { BIN } from "./target.ts";

export default async function setup(): Promise<void> {
  if (!BIN.includes("/")) return;
  try {
    await access(BIN, constants.X_OK);
  } catch {
    throw new Error(`no executable at ${BIN} - set THREAD_BIN to the program to test`);
  }
}
