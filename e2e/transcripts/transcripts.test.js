// The real Claude Code and the real Codex, each with a scripted model: what they write of their sessions is imported while they
// go on, and shows what they did.

import assert from "node:assert/strict";
import * as fs from "node:fs/promises";
import { test } from "node:test";
import { Commands, Server } from "../rig/mooring.js";
import { Claude, Codex } from "./programs.js";
import { forClaude, forCodex } from "./story.js";

// A token of no account, in pieces, so that nobody who looks for such finds it here.
const token = "ghp_" + "R7kQm2Zx9VbT4nLw8YcJ5sHd1GfP6aEu3oXi";

/** Plays a story turn by turn, imports the transcript after each, and gives the session's export and those of the other transcripts. */
async function imported(t, program, story) {
  const server = await Server.start(t);
  const commands = await Commands.with(t);
  const owner = await server.owner();
  const ids = new Set();
  let events = 0;
  for (const turn of story) {
    await program.ask(...turn);
    const [own] = await program.files();
    const run = () => commands.run(["session", "import", own, "--redact", "--owner", owner]);
    ids.add((await run()).trim());
    const so = (await commands.run(["session", "tail", [...ids][0]])).trim().split("\n").length;
    await run();
    assert.equal((await commands.run(["session", "tail", [...ids][0]])).trim().split("\n").length, so, "imported again, nothing is new");
    assert.ok(so > events, "each turn adds something");
    events = so;
  }
  assert.equal(ids.size, 1, "it is one session");
  const [id] = ids;
  const others = [];
  for (const file of (await program.files()).slice(1)) others.push((await commands.run(["session", "import", file])).trim());
  const doc = JSON.parse(await commands.run(["session", "export", id]));
  assert.ok(!JSON.stringify(doc).includes(token), "the token is redacted");
  assert.match(JSON.stringify(doc), /\[redacted: github-pat\]/);
  const parts = doc.messages.flatMap((m) => m.parts);
  return { id, others, commands, doc, parts, tools: parts.filter((p) => p.type === "tool") };
}

const statuses = (tools) => tools.map((p) => [p.tool, p.state.status]);

test("Claude Code's transcript", async (t) => {
  const claude = await Claude.start(t);
  const { id, others, commands, doc, parts, tools } = await imported(t, claude, forClaude(claude.dir, token));
  assert.equal(doc.info.title, "Please make a.css blue.");
  assert.deepEqual(statuses(tools), [
    ["bash", "completed"], ["todowrite", "completed"], ["todowrite", "completed"], ["todowrite", "completed"], ["write", "completed"], ["edit", "completed"],
    ["todowrite", "completed"], ["bash", "completed"], ["read", "error"], ["task", "completed"],
  ]);
  assert.ok(parts.some((p) => p.type === "reasoning" && p.text === "I should look first."));
  assert.match(tools[5].state.metadata.files[0].patch, /-  color: red;\n\+  color: blue;/);
  assert.deepEqual(tools[6].state.metadata.todos.map((todo) => todo.status), ["completed", "pending"]);
  assert.equal(tools[7].state.metadata.exit, 3);
  assert.equal(await fs.readFile(`${claude.dir}/a.css`, "utf8"), "a {\n  color: blue;\n}\n", "it did what is shown");
  assert.equal(others.length, 1);
  assert.match(await commands.run(["session", "children", id]), new RegExp(others[0]));
  assert.ok(doc.messages.some((m) => m.info.summary === true), "the summary");
  const view = JSON.parse(await commands.run(["session", "export", id, "--compacted"]));
  assert.ok(view.messages.length < doc.messages.length, "it is marked as compacted");
});

test("Codex's rollout", async (t) => {
  const codex = await Codex.start(t);
  const { doc, parts, tools } = await imported(t, codex, forCodex(token));
  assert.equal(doc.info.title, "Please make a.css blue.");
  assert.deepEqual(statuses(tools), [
    ["bash", "completed"], ["todowrite", "completed"], ["apply_patch", "completed"], ["apply_patch", "completed"], ["todowrite", "completed"], ["bash", "completed"], ["apply_patch", "error"],
  ]);
  assert.ok(parts.some((p) => p.type === "reasoning" && p.text === "I should look first."));
  assert.match(tools[3].state.metadata.files[0].patch, /-  color: red;\n\+  color: blue;/);
  assert.deepEqual(tools[4].state.input.todos.map((todo) => todo.status), ["completed", "pending"]);
  assert.equal(tools[5].state.metadata.exit, 3);
  assert.equal(await fs.readFile(`${codex.dir}/a.css`, "utf8"), "a {\n  color: blue;\n}\n", "it did what is shown");
});
