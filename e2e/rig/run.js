// mooring run, as a process, and what is asked and answered in its session.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mooring } from "./mooring.js";
import { until } from "./wait.js";

/** A running `mooring run`, killed with the test. */
export class Run {
  session;
  /** What it has written to standard error so far, over all its starts. */
  said = "";
  #commands;
  #args;
  #agent;
  #child;
  #exit;

  /** Runs the agent, a command line, in a folder. */
  static async start(t, commands, { dir, agent }, flags) {
    const r = new Run();
    r.#commands = commands;
    r.#args = ["run", "--home", commands.home, "--dir", dir];
    r.#agent = agent;
    t.after(() => r.end("SIGKILL"));
    await r.start(flags);
    return r;
  }

  /** Starts it again, after it has ended, with the session that it had. */
  again() {
    return this.start(["--session", this.session]);
  }

  async start(flags) {
    const child = spawn(mooring(), [...this.#args, ...flags, "--", ...this.#agent], { stdio: ["ignore", "pipe", "pipe"] });
    this.#child = child;
    this.#exit = once(child, "exit");
    let out = "";
    child.stdout.setEncoding("utf8").on("data", (text) => (out += text));
    child.stderr.setEncoding("utf8").on("data", (text) => (this.said += text));
    this.session = await until("the run begins", () => {
      assert.equal(child.exitCode, null, this.said);
      return /^(ses_\S+)\n/.exec(out)?.[1];
    });
  }

  /** The runner's process. */
  get pid() {
    return this.#child.pid;
  }

  /** Whether it has ended. */
  get over() {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
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
