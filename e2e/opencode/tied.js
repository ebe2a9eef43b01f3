// An opencode that is tied to a session by mooring attach.

import assert from "node:assert/strict";
import * as path from "node:path";
import { Attach } from "../rig/attach.js";
import { Commands, Server } from "../rig/mooring.js";
import { freePort } from "../rig/relay.js";
import { until } from "../rig/wait.js";
import { Machine } from "./machine.js";
import { Model } from "./model.js";

/** What opencode is to ask for. */
export const ask = { edit: "ask", bash: "ask" };

/** A server, a model, an opencode with a session, and what is tied to it; with `listen`, what is tied is opencode's share server, too. */
export async function rig(t, { permission = ask, env = {}, between, listen = false } = {}) {
  const server = await Server.start(t);
  const model = await Model.start(t);
  const port = await freePort();
  const own = listen ? `127.0.0.1:${await freePort()}` : undefined;
  const machine = await Machine.with(t, "attach", { share: listen ? `http://${own}` : server.origin, model, permission, env });
  await machine.start(port);
  const { id } = await machine.ask("POST", "/session", {});
  const commands = await Commands.with(t);
  await commands.run(["session", "list", "--owner", await server.owner()]);
  const phone = path.join(machine.project, "..", "phone.ref");
  const at = between === undefined ? port : await between.start(t, port);
  const attach = await Attach.start(t, commands.home, ["--url", `http://127.0.0.1:${at}`, "--opencode-session", id, ...(listen ? ["--listen", own] : [])]);
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
export async function same(r) {
  await until("the session equals opencode's", async () => {
    const { info, messages } = await r.export();
    assert.deepEqual({ info, messages }, await r.machine.state(r.id));
    return true;
  }, 30_000);
}
