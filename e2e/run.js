// Runs tests and, where one fails, says how to run that one again: node run.js FILE-OR-FOLDER... [--only NAME]

import { readdirSync, statSync } from "node:fs";
import * as path from "node:path";
import { run } from "node:test";
import { spec } from "node:test/reporters";
import { parseArgs } from "node:util";

const { values, positionals } = parseArgs({ allowPositionals: true, options: { only: { type: "string" } } });
const files = positionals.flatMap((name) => (statSync(name).isDirectory() ? readdirSync(name).filter((f) => f.endsWith(".test.js")).map((f) => path.join(name, f)) : [name])).map((f) => path.resolve(f));
files.sort((a, b) => statSync(b).size - statSync(a).size); // what takes long begins first, so that nothing waits for it in the end

const escaped = (name) => name.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");
const self = `node ${path.relative(".", process.argv[1])}`;
const failed = [];
const results = run({
  files,
  concurrency: 3, // each starts a server and a browser, and waits for the one or the other
  timeout: 600_000,
  forceExit: true, // Node 20 has been seen to go round in circles after the last test, and not to end
  testNamePatterns: values.only === undefined ? undefined : [new RegExp(`^${escaped(values.only)}$`)],
});
results.on("test:fail", ({ name, file, todo, details }) => {
  if (todo || details?.type === "suite") return;
  const of = file === undefined ? files.length === 1 ? files[0] : undefined : file;
  failed.push(of === undefined || path.resolve(name) === of ? `${self} ${path.relative(".", path.resolve(name))}` : `${self} ${path.relative(".", of)} --only ${JSON.stringify(name)}`);
  process.exitCode = 1;
});
const told = results.compose(spec);
told.on("end", () => {
  if (failed.length === 0) return;
  const lines = [...new Set(failed)].map((line) => `  ${line}\n`);
  process.stdout.write(`\nto run again what failed, in ${process.cwd()}:\n${lines.join("")}`);
});
told.pipe(process.stdout);
