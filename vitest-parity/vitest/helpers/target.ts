// Which executable is under test, and how much of it.
import path from "node:path";
import { fileURLToPath } from "node:url";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..", "..");
const named = process.env["THREAD_BIN"] ?? "";

/** The executable: THREAD_BIN (a path relative to vitest-parity, or a name on PATH), else the virtual environment's. */
export const BIN: string =
  named === "" ? path.resolve(root, "..", ".venv", "bin", "thread") : named.includes("/") ? path.resolve(root, named) : named;

/** True when only what the original tool promised is to be tested. */
export const ORIGINAL: boolean = process.env["THREAD_PARITY"] === "original";

/** The folder with the fixed inputs and expected outputs. */
export const FIXTURES: string = path.join(root, "vitest", "fixtures");
