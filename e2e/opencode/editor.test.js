// An editor, made with the protocol's own SDK, whose agent is mooring acp with the real opencode behind it: it prompts, is shown what others prompt, and
// answers permissions that others may answer, too; killed, it loads the session again.

import assert from "node:assert/strict";
import * as fs from "node:fs/promises";
import * as path from "node:path";
import { test } from "node:test";
import { Commands, Server } from "../rig/mooring.js";
import { until } from "../rig/wait.js";
import { Editor } from "./editor.js";
import { Machine } from "./machine.js";
import { Model } from "./model.js";

test("an editor and others prompt one opencode, and either answers what it asks", async (t) => {
  const server = await Server.start(t);
  const model = await Model.start(t);
  const machine = await Machine.with(t, "editor", { share: server.origin, model, permission: { edit: "ask", bash: "ask" } });
  const commands = await Commands.with(t);
  const phone = path.join(machine.project, "..", "phone.ref");
  let editor = Editor.start(t, commands, machine, ["--owner", await server.owner(), "--share-to", phone]);
  assert.equal((await editor.initialize()).agentCapabilities.loadSession, true);
  const { sessionId } = await editor.request("session/new", { cwd: machine.project, mcpServers: [] });
  const requests = async () => (await commands.run(["session", "requests", sessionId, "--all", "--json"])).split("\n").filter((l) => l !== "").map((l) => JSON.parse(l));
  const say = (text) => editor.request("session/prompt", { sessionId, prompt: [{ type: "text", text }] });

  // The editor prompts, and allows.
  const file = path.join(machine.project, "greeting.txt");
  model.script([{ text: "I write it." }, { call: "write", input: { filePath: file, content: "hello\n" } }], [{ text: "Written." }]);
  const first = say("Please write a greeting.");
  const edit = await until("the editor is asked", () => editor.asked[0]);
  edit.answer("allow_once");
  assert.equal((await first).stopReason, "end_turn");
  assert.equal(await fs.readFile(file, "utf8"), "hello\n");
  assert.match(editor.text("agent_message_chunk"), /I write it\..*Written\./s);
  const [, allowed] = await requests();
  assert.deepEqual([allowed.kind, allowed.state, allowed.choices.find((c) => c.id === allowed.choice)?.kind], ["permission", "answered", "allow_once"]);

  // Somebody else prompts, and rejects: the editor is shown it, and its own answer comes too late.
  model.script([{ call: "bash", input: { command: "rm -r /nowhere", description: "Remove it" } }]); // a rejection ends its turn
  const other = (await commands.run(["session", "ask", `@${phone}`, "prompt", "Tidy up."])).trim();
  await until("the editor is asked again", () => editor.asked[1]);
  assert.match(editor.text("user_message_chunk"), /Tidy up\./);
  const rm = await until("it is asked", async () => (await requests()).find((r) => r.kind === "permission" && r.state === "open"));
  await commands.run(["session", "answer", `@${phone}`, rm.request, rm.choices.find((c) => c.kind === "reject_once").id]);
  editor.asked[1].answer("allow_once");
  const ended = await until("it ends", async () => (await requests()).find((r) => r.request === other && r.state === "answered"));
  assert.equal(ended.answer.stopReason, "end_turn");
  assert.equal((await requests()).find((r) => r.request === rm.request).choice, rm.choices.find((c) => c.kind === "reject_once").id);

  // It cancels.
  model.script([{ text: "Counting: one" }, { until: new Promise(() => {}) }]);
  const counting = say("Count.");
  await until("it counts", () => editor.text("agent_message_chunk").includes("Counting"));
  await editor.notify("session/cancel", { sessionId });
  assert.equal((await counting).stopReason, "cancelled");

  // It is killed in the middle, and loads the session again.
  model.script([{ text: "Thinking about it" }, { until: new Promise(() => {}) }]);
  const third = say("Think.").catch((err) => err);
  await until("it thinks", () => editor.text("agent_message_chunk").includes("Thinking"));
  await editor.end("SIGKILL");
  assert.ok((await third) instanceof Error);
  editor = Editor.start(t, commands, machine, ["--owner", await server.owner()]);
  await editor.initialize();
  await editor.request("session/load", { sessionId, cwd: machine.project, mcpServers: [] });
  for (const text of ["Please write a greeting.", "Tidy up.", "Think."]) assert.ok(editor.text("user_message_chunk").includes(text), `${text} is shown again`);
  model.script([{ text: "Here again." }]);
  const before = editor.updates.length;
  assert.equal((await say("Are you there?")).stopReason, "end_turn");
  assert.ok(editor.updates.slice(before).some((u) => u.sessionUpdate === "agent_message_chunk" && u.content.text.includes("Here again.")));
  const states = (await requests()).filter((r) => r.kind === "prompt").map((r) => r.state);
  assert.deepEqual(states, ["answered", "answered", "answered", "answered", "answered"]);
  assert.equal(model.asked, 6, "nothing was asked twice");
  assert.equal(await editor.end(), 0, editor.said);
});
