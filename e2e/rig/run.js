// mooring run, as a process, and what is asked and answered in its session.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mooring } from "./mooring.js";
import { until } from "./wait.js";

/** A running `mooring run`, killed with the test. */
export class Run {
  session;
  said = "";
  #commands;
  #child;
  #exit;

  /** Runs the agent, a command line, in a folder. */
  static async start(t, commands, { dir, agent }, flags) {
    const r = new Run();
    r.#commands = commands;
    r.#child = spawn(mooring(), ["run", "--home", commands.home, "--dir", dir, ...flags, "--", ...agent], { stdio: ["ignore", "pipe", "pipe"] });
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

  /** Ends it by a signal, and gives its exit code. */
  async end(signal) {
    this.#child.kill(signal);
    await this.#exit;
    return this.#child.exitCode;
  }

  /** All that was asked in its session. */
  async requests() {
    return (await this.#commands.run(["session", "requests", this.session, "--all", "--json"])).split("\n").filter((l) => l !== "").map((l) => JSON.parse(l));
  }

  /** Waits until a prompt has ended, and gives its request. */
  ended(id) {
    return until(`prompt ${id} ends`, async () => {
      const r = (await this.requests()).find((r) => r.request === id);
      return ["answered", "unknown"].includes(r?.state) && r;
    });
  }

  /** Waits until the agent asks a permission, other than some, and gives that. */
  permission(...others) {
    return until("it asks", async () => (await this.requests()).find((r) => r.kind === "permission" && r.state === "open" && !others.includes(r.request)));
  }

  /** The session's export. */
  async exported() {
    return JSON.parse(await this.#commands.run(["session", "export", this.session]));
  }
}
