// The real Claude Code as an agent, by its adapter to the Agent Client Protocol: prompted, asked, answered, stopped, and gone on with when its runner was killed.

import assert from "node:assert/strict";
import * as fs from "node:fs/promises";
import * as path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Commands, folder, Server } from "../rig/mooring.js";
import { Run } from "../rig/run.js";
import { until } from "../rig/wait.js";
import { Model } from "./model.js";

const adapter = fileURLToPath(new URL("node_modules/@zed-industries/claude-code-acp/dist/index.js", import.meta.url));

test("Claude Code is prompted, asks, is answered, stopped, and goes on after its runner was killed", async (t) => {
  const server = await Server.start(t);
  const model = await Model.start(t);
  const home = await folder(t, "claude"), dir = await folder(t, "project");
  const env = {
    PATH: process.env.PATH, HOME: home, TMPDIR: home, ANTHROPIC_BASE_URL: model.url, ANTHROPIC_API_KEY: "sk-ant-scripted",
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", DISABLE_AUTOUPDATER: "1", DISABLE_TELEMETRY: "1",
  };
  const machine = { dir, agent: ["env", "-i", ...Object.entries(env).map(([name, value]) => `${name}=${value}`), process.execPath, adapter] };
  const commands = await Commands.with(t);
  const phone = path.join(home, "phone.ref");
  let run = await Run.start(t, commands, machine, ["--owner", await server.owner(), "--share-to", phone]);
  const ask = async (text) => (await commands.run(["session", "ask", `@${phone}`, "prompt", text])).trim();
  const answer = (request, kind) => commands.run(["session", "answer", `@${phone}`, request.request, request.choices.find((c) => c.kind === kind).id]);

  // A command that is allowed, and one that is not.
  const made = path.join(dir, "made");
  model.script([{ text: "I make it." }, { call: "Bash", input: { command: `touch ${made}`, description: "Make a file" } }], [{ call: "Bash", input: { command: "rm -r /nowhere", description: "Remove it" } }]);
  const first = await ask("Please make a file.");
  const touch = await run.permission();
  assert.equal(touch.payload.tool.input.command, `touch ${made}`);
  assert.equal(touch.message, `turn_${first}`);
  await assert.rejects(fs.access(made));
  await answer(touch, "allow_once");
  const rm = await run.permission(touch.request);
  assert.equal(rm.payload.tool.input.command, "rm -r /nowhere");
  await fs.access(made);
  await answer(rm, "reject_once");
  const end = await run.ended(first);
  assert.ok(end.answer.stopReason, JSON.stringify(end));
  const doc = await run.exported();
  assert.deepEqual(doc.messages.map((m) => m.info.role), ["user", "assistant"]);
  const parts = doc.messages.flatMap((m) => m.parts);
  assert.ok(parts.some((p) => p.type === "text" && p.text.includes("I make it.")), "the text");
  const tools = parts.filter((p) => p.type === "tool");
  assert.deepEqual(tools.map((p) => [p.state.input.command, p.state.status]), [[`touch ${made}`, "completed"], ["rm -r /nowhere", "error"]]);
  assert.match(doc.state.agent.name, /claude/);

  // A turn that is stopped.
  model.script([{ text: "Counting: one" }, { until: new Promise(() => {}) }]);
  const second = await ask("Count.");
  await until("it counts", async () => JSON.stringify(await run.exported()).includes("Counting"));
  await commands.run(["session", "ask", `@${phone}`, "stop", "--message", `turn_${second}`]);
  assert.equal((await run.ended(second)).answer.stopReason, "cancelled");

  // The runner is killed in the middle: the turn is interrupted, and what comes then goes to the same session of Claude's.
  model.script([{ text: "Thinking about it" }, { until: new Promise(() => {}) }]);
  const third = await ask("Think.");
  await until("it thinks", async () => JSON.stringify(await run.exported()).includes("Thinking"));
  await run.end("SIGKILL");
  run = await Run.start(t, commands, machine, ["--session", run.session]);
  assert.match((await run.ended(third)).answer.error, /ended/);
  model.script([{ text: "Here again." }]);
  const fourth = await run.ended(await ask("Are you there?"));
  assert.match(fourth.answer.text, /Here again\./);
  assert.deepEqual(model.prompts, ["Please make a file.", "Count.", "Think.", "Are you there?"], "each once");
  const agent = JSON.parse(await commands.run(["session", "get", run.session, "agent"]));
  assert.equal(agent.note, undefined, "it went on with its own session");
  assert.equal(await run.end("SIGINT"), 0, run.said);
});
