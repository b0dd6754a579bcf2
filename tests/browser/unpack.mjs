// Writes the browser that the package brings to a folder, and the libraries that it needs, for
// systems that lack them: node unpack.mjs FOLDER
import { execFileSync } from "node:child_process";
import { createReadStream, createWriteStream, mkdirSync, renameSync } from "node:fs";
import { pipeline } from "node:stream/promises";
import { createBrotliDecompress } from "node:zlib";

const folder = process.argv[2];
const packed = new URL("node_modules/@sparticuz/chromium/bin/", import.meta.url);

async function unpack(name, place) {
  const from = createReadStream(new URL(name, packed));
  await pipeline(from, createBrotliDecompress(), createWriteStream(place, { mode: 0o755 }));
}

mkdirSync(`${folder}/libraries`, { recursive: true });
await unpack("al2023.tar.br", `${folder}/libraries.tar`);
execFileSync("tar", ["xf", `${folder}/libraries.tar`, "-C", `${folder}/libraries`]);
await unpack("chromium.br", `${folder}/chromium.part`);
renameSync(`${folder}/chromium.part`, `${folder}/chromium`);
