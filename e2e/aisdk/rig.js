// A server with the route, a session in it, and mooring run with an agent that plays scripts.

import * as fs from "node:fs/promises";
import * as path from "node:path";
import { fileURLToPath } from "node:url";
import { Commands, Server, folder } from "../rig/mooring.js";
import { Run } from "../rig/run.js";

export const chatPath = "/api/ai/chat";

export class Chats {
  server;
  commands;
  run;
  /** The text of the ref of whoever chats: it reads and asks. */
  ref;
  #dir;

  static async start(t, flags = []) {
    const c = new Chats();
    c.server = await Server.start(t, ["--ai-sdk", ...flags]);
    c.commands = await Commands.with(t);
    await c.commands.run(["session", "list", "--owner", await c.server.owner()]);
    c.#dir = await folder(t, "chat");
    const agent = fileURLToPath(new URL("agent.js", import.meta.url));
    const file = path.join(c.#dir, "chat.ref");
    c.run = await Run.start(t, c.commands, { dir: c.#dir, agent: [process.execPath, agent, c.#dir] }, []);
    await c.commands.run(["share", c.session, "--rights", "read,ask", "--ask", "prompt,stop", "--to", file]);
    c.ref = (await fs.readFile(file, "utf8")).trim();
    return c;
  }

  get session() {
    return this.run.session;
  }

  get api() {
    return this.server.origin + chatPath;
  }

  get headers() {
    return { Authorization: `Bearer ${this.ref}` };
  }

  /** Opens a gate of the agent. */
  open(gate) {
    return fs.writeFile(path.join(this.#dir, gate), "");
  }

  /** What the agent was prompted with, in order. */
  async prompted() {
    return (await fs.readFile(path.join(this.#dir, "prompts"), "utf8")).trimEnd().split("\n");
  }

  stop() {
    return fetch(`${this.api}/${this.session}/stop`, { method: "POST", headers: this.headers });
  }
}
