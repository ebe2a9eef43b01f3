// The real opencode, tied to a session by mooring attach: both ways, and over kills of each.

import assert from "node:assert/strict";
import * as path from "node:path";
import { test } from "node:test";
import { Attach } from "../rig/attach.js";
import { Commands, Server } from "../rig/mooring.js";
import { freePort } from "../rig/relay.js";
import { until } from "../rig/wait.js";
import { Machine } from "./machine.js";
import { Model } from "./model.js";

const ask = { edit: "ask", bash: "ask" };

/** A server, a model, an opencode with a session, and what is tied to it. */
async function rig(t, { permission = ask, env = {}, attachEnv = {} } = {}) {
  const server = await Server.start(t);
  const model = await Model.start(t);
  const port = await freePort();
  const machine = await Machine.with(t, "attach", { share: server.origin, model, permission, env });
  await machine.start(port);
  const { id } = await machine.ask("POST", "/session", {});
  const commands = await Commands.with(t);
  await commands.run(["session", "list", "--owner", await server.owner()]);
  const phone = path.join(machine.project, "..", "phone.ref");
  const attach = await Attach.start(t, commands.home, ["--url", `http://127.0.0.1:${port}`, "--opencode-session", id], attachEnv);
  await commands.run(["share", attach.session, "--rights", "read,ask,answer", "--to", phone]);
  const lines = async (args) => (await commands.run(args)).split("\n").filter((l) => l !== "").map((l) => JSON.parse(l));
  const requests = () => lines(["session", "requests", attach.session, "--all", "--json"]);
  return {
    server, model, machine, commands, attach, id, port,
    requests,
    ask: async (...args) => (await commands.run(["session", "ask", `@${phone}`, ...args])).trim(),
    answer: (...args) => commands.run(["session", "answer", `@${phone}`, ...args]),
    ended: (id) => until(`request ${id} ends`, async () => (await requests()).find((r) => r.request === id && ["answered", "unknown", "withdrawn"].includes(r.state))),
    open: (kind, but = []) => until(`a ${kind} is asked`, async () => (await requests()).find((r) => r.kind === kind && r.state === "open" && !but.includes(r.request))),
    export: async () => JSON.parse(await commands.run(["session", "export", attach.session])),
    lines,
  };
}

/** The session is what opencode has. */
async function same(r) {
  await until("the session equals opencode's", async () => {
    const { info, messages } = await r.export();
    assert.deepEqual({ info, messages }, await r.machine.state(r.id));
    return true;
  }, 30_000);
}

test("opencode is recorded, prompted, stopped, and goes on after attach was ended", async (t) => {
  const r = await rig(t);
  // What is typed into opencode itself.
  r.model.script([{ reasoning: "A greeting." }, { text: "Hello " }, { text: "there." }]);
  await r.machine.prompt(r.id, "Say hello.");
  await same(r);

  // A prompt from here, and a stop.
  r.model.script([{ text: "Hello from **here**." }]);
  const first = await r.ask("prompt", "And from here?");
  const end = await r.ended(first);
  assert.equal(end.answer.text, "Hello from **here**.");
  assert.equal(end.answer.stopReason, "end_turn");
  assert.ok((await r.export()).messages.some((m) => m.info.id === end.answer.message));
  r.model.script([{ text: "Counting: one" }, { until: new Promise(() => {}) }]);
  const second = await r.ask("prompt", "Count.");
  await until("it is shown while it streams", async () => JSON.stringify(await r.export()).includes("Counting: one"));
  const turn = (await r.export()).messages.findLast((m) => m.info.role === "assistant").info.id;
  await r.ask("stop", "--message", end.answer.message); // of a turn that is over
  const stop = await r.ask("stop", "--message", turn);
  assert.deepEqual((await r.ended(stop)).answer, { stopped: true });
  assert.equal((await r.ended(second)).answer.stopReason, "cancelled");
  await same(r);

  // Ended and started again: the same session, with what was missed.
  assert.equal(await r.attach.end("SIGINT"), 0, r.attach.log);
  r.model.script([{ text: "Nobody heard that." }], [{ text: "And this is asked later." }]);
  await r.machine.prompt(r.id, "While nobody listens.");
  const third = await r.ask("prompt", "Asked while nobody listens.");
  await r.attach.start();
  assert.equal((await r.ended(third)).answer.text, "And this is asked later.");
  await same(r);
  r.model.done();
});
