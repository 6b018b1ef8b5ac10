// Unpacks the Chromium of @sparticuz/chromium here, beside node_modules: the program, its libraries, its fonts.
import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { brotliDecompressSync } from "node:zlib";

const packed = "node_modules/@sparticuz/chromium/bin";
writeFileSync("chromium", brotliDecompressSync(readFileSync(`${packed}/chromium.br`)));
chmodSync("chromium", 0o755);
for (const name of ["al2023", "fonts"]) {
  mkdirSync(name, { recursive: true });
  execFileSync("tar", ["-x", "-C", name], { input: brotliDecompressSync(readFileSync(`${packed}/${name}.tar.br`)) });
}
// Its own fonts.conf names folders of Lambda's. Without a font every text is empty, and no button has a size.
writeFileSync("fonts/fonts.conf", '<fontconfig><dir prefix="relative">fonts</dir></fontconfig>');
