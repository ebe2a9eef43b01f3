// Records the transcripts that the Go tests read: node record.js [FOLDER]. Paths of this machine are replaced, and what is
// the programs' own (prompts, lists of tools) is cut.

import * as fs from "node:fs/promises";
import * as os from "node:os";
import * as path from "node:path";
import { test } from "node:test";
import { repo } from "../rig/mooring.js";
import { Claude, Codex } from "./programs.js";
import { forClaude, forCodex } from "./story.js";

const to = process.argv[2] ?? repo("testdata/transcripts");

/** A value without what is long in it. */
function cut(v) {
  if (typeof v === "string") return v.length > 400 ? `${v.slice(0, 40)}…` : v;
  if (Array.isArray(v)) return v.slice(0, 20).map(cut);
  if (v === null || typeof v !== "object") return v;
  return Object.fromEntries(Object.entries(v).map(([name, of]) => [name, cut(of)]));
}

async function save(program, file, name) {
  let text = await fs.readFile(file, "utf8");
  for (const [dir, as] of [[program.dir, "/home/ada/project"], [program.home, "/home/ada"]]) {
    text = text.replaceAll(dir, as).replaceAll(dir.replaceAll("/", "-"), as.replaceAll("/", "-"));
  }
  text = text.replaceAll(`${os.type()} ${os.release()}`, "Linux 6.1");
  const lines = text.trim().split("\n").map((line) => JSON.stringify(cut(JSON.parse(line))));
  await fs.writeFile(path.join(to, name), `${lines.join("\n")}\n`);
}

test("record", async (t) => {
  await fs.mkdir(to, { recursive: true });
  const claude = await Claude.start(t);
  for (const turn of forClaude(claude.dir)) await claude.ask(...turn);
  const [own, agent] = await claude.files();
  await save(claude, own, "claude-2.1.332.jsonl");
  await save(claude, agent, "claude-agent-2.1.332.jsonl");
  const codex = await Codex.start(t);
  for (const turn of forCodex()) await codex.ask(...turn);
  await save(codex, (await codex.files())[0], "codex-0.169.0.jsonl");
});
