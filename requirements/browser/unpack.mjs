// Unpacks the Chromium of @sparticuz/chromium here, in node_modules' folder: the program, its libraries, its fonts.
import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { brotliDecompressSync } from "node:zlib";

const packed = "node_modules/@sparticuz/chromium/bin";
writeFileSync("chromium", brotliDecompressSync(readFileSync(`${packed}/chromium.br`)));
chmodSync("chromium", 0o755);
for (const name of ["al2023", "swiftshader", "fonts"]) {
  mkdirSync(name, { recursive: true });
  execFileSync("tar", ["-x", "-C", name], { input: brotliDecompressSync(readFileSync(`${packed}/${name}.tar.br`)) });
}
