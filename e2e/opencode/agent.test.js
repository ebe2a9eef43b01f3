// The real opencode as an agent: mooring run hands it prompts, asks its permissions, and goes on with it when it was killed.

import assert from "node:assert/strict";
import * as fs from "node:fs/promises";
import * as path from "node:path";
import { test } from "node:test";
import { Commands, Server } from "../rig/mooring.js";
import { Run } from "../rig/run.js";
import { until } from "../rig/wait.js";
import { Machine } from "./machine.js";
import { Model } from "./model.js";

test("opencode is prompted, asks, is answered, stopped, and goes on after its runner was killed", async (t) => {
  const server = await Server.start(t);
  const model = await Model.start(t);
  const machine = await Machine.with(t, "agent", { share: server.origin, model, permission: { edit: "ask", bash: "ask" } });
  const commands = await Commands.with(t);
  await commands.run(["session", "list", "--owner", await server.owner()]);
  const phone = path.join(machine.project, "..", "phone.ref");
  let run = await Run.start(t, commands, { dir: machine.project, agent: machine.agent }, ["--share-to", phone]);
  const ask = async (text) => (await commands.run(["session", "ask", `@${phone}`, "prompt", text])).trim();

  // An edit that is allowed, and a command that is not.
  const file = path.join(machine.project, "greeting.txt");
  model.script(
    [{ reasoning: "A file." }, { text: "I write it." }, { call: "write", input: { filePath: file, content: "hello\n" } }],
    [{ text: "Written. " }, { call: "bash", input: { command: "rm -r /nowhere", description: "Remove it" } }],
  );
  const first = await ask("Please write a greeting.");
  const edit = await run.permission();
  assert.match(JSON.stringify(edit.payload), /greeting\.txt/);
  assert.equal(edit.message, `turn_${first}`);
  await commands.run(["session", "answer", `@${phone}`, edit.request, edit.choices.find((c) => c.kind === "allow_once").id]);
  const bash = await run.permission(edit.request);
  assert.match(JSON.stringify(bash.payload), /rm -r \/nowhere/);
  assert.equal(await fs.readFile(file, "utf8"), "hello\n");
  await commands.run(["session", "answer", `@${phone}`, bash.request, bash.choices.find((c) => c.kind === "reject_once").id]);
  assert.equal((await run.ended(first)).answer.stopReason, "end_turn");
  const doc = await run.exported();
  const parts = doc.messages.flatMap((m) => m.parts);
  assert.deepEqual(doc.messages.map((m) => m.info.role), ["user", "assistant"]);
  assert.ok(parts.some((p) => p.type === "reasoning" && p.text === "A file."), "the thought");
  assert.ok(parts.some((p) => p.type === "text" && p.text.startsWith("I write it.")), "the text");
  const [write, rm] = parts.filter((p) => p.type === "tool");
  assert.equal(write.state.status, "completed");
  assert.equal(rm.tool, "bash");
  assert.equal(rm.state.input.command, "rm -r /nowhere");
  assert.equal(rm.state.status, "error");
  assert.equal(doc.state.agent.name, "OpenCode");
  model.done();

  // A turn that is stopped.
  model.script([{ text: "Counting: one" }, { until: new Promise(() => {}) }]);
  const second = await ask("Count.");
  await until("it counts", async () => (await commands.run(["session", "export", run.session])).includes("Counting"));
  await commands.run(["session", "ask", `@${phone}`, "stop", "--message", `turn_${second}`]);
  assert.equal((await run.ended(second)).answer.stopReason, "cancelled");

  // The runner is killed in the middle: the turn is interrupted, and what comes then goes to the same session of opencode.
  model.script([{ text: "Thinking about it" }, { until: new Promise(() => {}) }]);
  const third = await ask("Think.");
  await until("it thinks", async () => (await commands.run(["session", "export", run.session])).includes("Thinking"));
  await run.end("SIGKILL");
  run = await Run.start(t, commands, { dir: machine.project, agent: machine.agent }, ["--session", run.session]);
  assert.match((await run.ended(third)).answer.error, /ended/);
  model.script([{ text: "Here again." }]);
  const fourth = await ask("Are you there?");
  const answer = await run.ended(fourth);
  assert.equal(answer.answer.text, "Here again.", JSON.stringify(answer));
  const agent = JSON.parse(await commands.run(["session", "get", run.session, "agent"]));
  assert.equal(agent.note, undefined, "it went on with its own session");
  assert.equal(await run.end("SIGINT"), 0, run.said);
});
