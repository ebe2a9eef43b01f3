// The real opencode as an agent: mooring run hands it prompts, asks its permissions, and goes on with it when it was killed.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import * as fs from "node:fs/promises";
import * as path from "node:path";
import { test } from "node:test";
import { Commands, mooring, Server } from "../rig/mooring.js";
import { until } from "../rig/wait.js";
import { Machine } from "./machine.js";
import { Model } from "./model.js";

/** A running `mooring run`, killed with the test. */
class Run {
  session;
  said = "";
  #child;
  #exit;

  static async start(t, commands, machine, flags) {
    const r = new Run();
    r.#child = spawn(mooring(), ["run", "--home", commands.home, "--dir", machine.project, ...flags, "--", ...machine.agent], { stdio: ["ignore", "pipe", "pipe"] });
    r.#exit = once(r.#child, "exit");
    let out = "";
    r.#child.stdout.setEncoding("utf8").on("data", (text) => (out += text));
    r.#child.stderr.setEncoding("utf8").on("data", (text) => (r.said += text));
    t.after(() => r.end("SIGKILL"));
    r.session = await until("the run begins", () => {
      assert.equal(r.#child.exitCode, null, r.said);
      return /^(ses_\S+)\n/.exec(out)?.[1];
    });
    return r;
  }

  async end(signal) {
    this.#child.kill(signal);
    await this.#exit;
    return this.#child.exitCode;
  }
}

test("opencode is prompted, asks, is answered, stopped, and goes on after its runner was killed", async (t) => {
  const server = await Server.start(t);
  const model = await Model.start(t);
  const machine = await Machine.with(t, "agent", { share: server.origin, model, permission: { edit: "ask", bash: "ask" } });
  const commands = await Commands.with(t);
  await commands.run(["session", "list", "--owner", await server.owner()]);
  const phone = path.join(machine.project, "..", "phone.ref");
  let run = await Run.start(t, commands, machine, ["--share-to", phone]);
  const lines = async (args) => (await commands.run(args)).split("\n").filter((l) => l !== "").map((l) => JSON.parse(l));
  const requests = () => lines(["session", "requests", run.session, "--all", "--json"]);
  const ask = async (text) => (await commands.run(["session", "ask", `@${phone}`, "prompt", text])).trim();
  const ended = (id) => until(`prompt ${id} ends`, async () => {
    const r = (await requests()).find((r) => r.request === id);
    return ["answered", "unknown"].includes(r?.state) && r;
  });
  const permission = () => until("it asks", async () => (await requests()).find((r) => r.kind === "permission" && r.state === "open"));

  // An edit that is allowed, and a command that is not.
  const file = path.join(machine.project, "greeting.txt");
  model.script(
    [{ reasoning: "A file." }, { text: "I write it." }, { call: "write", input: { filePath: file, content: "hello\n" } }],
    [{ text: "Written. " }, { call: "bash", input: { command: "rm -r /nowhere", description: "Remove it" } }],
  );
  const first = await ask("Please write a greeting.");
  const edit = await permission();
  assert.match(JSON.stringify(edit.payload), /greeting\.txt/);
  assert.equal(edit.message, `turn_${first}`);
  await commands.run(["session", "answer", `@${phone}`, edit.request, edit.choices.find((c) => c.kind === "allow_once").id]);
  const bash = await until("it asks again", async () => (await requests()).find((r) => r.kind === "permission" && r.state === "open" && r.request !== edit.request));
  assert.match(JSON.stringify(bash.payload), /rm -r \/nowhere/);
  assert.equal(await fs.readFile(file, "utf8"), "hello\n");
  await commands.run(["session", "answer", `@${phone}`, bash.request, bash.choices.find((c) => c.kind === "reject_once").id]);
  assert.equal((await ended(first)).answer.stopReason, "end_turn");
  const doc = JSON.parse(await commands.run(["session", "export", run.session]));
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
  assert.equal((await ended(second)).answer.stopReason, "cancelled");

  // The runner is killed in the middle: the turn is interrupted, and what comes then goes to the same session of opencode.
  model.script([{ text: "Thinking about it" }, { until: new Promise(() => {}) }]);
  const third = await ask("Think.");
  await until("it thinks", async () => (await commands.run(["session", "export", run.session])).includes("Thinking"));
  await run.end("SIGKILL");
  run = await Run.start(t, commands, machine, ["--session", run.session]);
  assert.match((await ended(third)).answer.error, /ended/);
  model.script([{ text: "Here again." }]);
  const fourth = await ask("Are you there?");
  const answer = await ended(fourth);
  assert.equal(answer.answer.text, "Here again.", JSON.stringify(answer));
  const agent = JSON.parse(await commands.run(["session", "get", run.session, "agent"]));
  assert.equal(agent.note, undefined, "it went on with its own session");
  assert.equal(await run.end("SIGINT"), 0, run.said);
});
