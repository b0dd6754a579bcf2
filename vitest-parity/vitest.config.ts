import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["vitest/unit/**/*.test.ts", "vitest/pbt/**/*.test.ts"],
    globalSetup: ["vitest/helpers/global-setup.ts"],
    pool: "forks",
    fileParallelism: true,
    maxWorkers: 2,
    retry: 0,
    // Every wait inside a test has its own deadline of 60 s; these are only the outer fence.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    teardownTimeout: 120_000,
    reporters: ["default"],
  },
});
