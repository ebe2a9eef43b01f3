// The example agent of the protocol's own SDK, behind mooring run: its turn, the permission that it asks, a stop, and its runner's end by a kill. It cannot load
// a session, so what comes after the kill goes to a new session of its own, and the state says so.

import assert from "node:assert/strict";
import * as path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Commands, Server } from "../rig/mooring.js";
import { Run } from "../rig/run.js";
import { until } from "../rig/wait.js";

// Not an entry of the package: it is found beside one.
const agent = [process.execPath, path.join(path.dirname(fileURLToPath(import.meta.resolve("acp-example"))), "examples", "agent.js")];

test("the example agent of the protocol's SDK is prompted, asks, is answered, stopped, and begins anew after its runner was killed", async (t) => {
  const server = await Server.start(t);
  const commands = await Commands.with(t);
  await commands.run(["session", "list", "--owner", await server.owner()]);
  const phone = path.join(commands.home, "phone.ref");
  let run = await Run.start(t, commands, { dir: commands.home, agent }, ["--share-to", phone]);
  const ask = async (...args) => (await commands.run(["session", "ask", `@${phone}`, ...args])).trim();
  const text = async () => (await run.exported()).messages.flatMap((m) => m.parts).filter((p) => p.type === "text").map((p) => p.text).join("");

  // One change is allowed, the next is not.
  const asked = [];
  for (const [choice, says] of [["allow", "successfully updated"], ["reject", "skip the configuration update"]]) {
    const prompt = await ask("prompt", `Improve the project (${choice}).`);
    const permission = await run.permission(...asked);
    asked.push(permission.request);
    assert.match(JSON.stringify(permission.payload), /new-host/);
    assert.deepEqual(permission.choices.map((c) => c.id), ["allow", "reject"]);
    await commands.run(["session", "answer", `@${phone}`, permission.request, choice]);
    assert.equal((await run.ended(prompt)).answer.stopReason, "end_turn");
    assert.ok((await text()).includes(says));
  }
  const tools = (await run.exported()).messages.flatMap((m) => m.parts).filter((p) => p.type === "tool");
  assert.ok(tools.some((p) => p.state.title === "Reading project files" && p.state.status === "completed"), JSON.stringify(tools));

  // One turn is stopped.
  const stopped = await ask("prompt", "Once more.");
  await until("it reads", async () => (await run.exported()).messages.at(-1).parts.some((p) => p.type === "tool"));
  await ask("stop", "--message", `turn_${stopped}`);
  assert.equal((await run.ended(stopped)).answer.stopReason, "cancelled");

  // The runner is killed in the middle of one.
  const cut = await ask("prompt", "And again.");
  await until("it reads", async () => (await run.exported()).messages.at(-1).parts.some((p) => p.type === "tool"));
  await run.end("SIGKILL");
  run = await Run.start(t, commands, { dir: commands.home, agent }, ["--session", run.session]);
  assert.match((await run.ended(cut)).answer.error, /ended/);
  const last = await ask("prompt", "Are you there?");
  const permission = await run.permission(...asked);
  await commands.run(["session", "answer", `@${phone}`, permission.request, "allow"]);
  assert.equal((await run.ended(last)).answer.stopReason, "end_turn");
  assert.match(JSON.parse(await commands.run(["session", "get", run.session, "agent"])).note, /cannot go on/);
  assert.equal(await run.end("SIGINT"), 0, run.said);
});
