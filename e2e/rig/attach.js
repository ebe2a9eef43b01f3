// `mooring attach opencode`, as a process, beside an opencode.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mooring } from "./mooring.js";
import { until } from "./wait.js";

export class Attach {
  /** The session's id. */
  session = "";
  /** What it has written to standard error so far, over all its starts. */
  log = "";
  #home;
  #args;
  #env;
  #child;
  #exit = Promise.resolve();

  /** Starts one that ends with the test, with a home folder that knows an owner's ref. */
  static async start(t, home, flags, env = {}) {
    const a = new Attach();
    a.#home = home;
    a.#args = flags;
    a.#env = { ...process.env, ...env };
    t.after(() => a.end("SIGKILL"));
    await a.start();
    return a;
  }

  /** Starts it, with more flags; gives the session's id, which is the same as before unless it is tied to `other` things. */
  async start(more = [], { other = false } = {}) {
    const child = spawn(mooring(), ["attach", "opencode", "--home", this.#home, ...this.#args, ...more], { stdio: ["ignore", "pipe", "pipe"], env: this.#env });
    this.#child = child;
    this.#exit = once(child, "exit");
    let out = "";
    child.stdout.setEncoding("utf8").on("data", (text) => (out += text));
    child.stderr.setEncoding("utf8").on("data", (text) => (this.log += text));
    const session = await until("the attach begins", () => {
      assert.equal(child.exitCode, null, `it ended: ${this.log}`);
      return /^(ses_\S+)\n/.exec(out)?.[1];
    });
    if (other) return session;
    if (this.session !== "") assert.equal(session, this.session, "it goes on with the same session");
    return (this.session = session);
  }

  /** Ends it, and gives its exit code. */
  async end(signal) {
    this.#child?.kill(signal);
    await this.#exit;
    const code = this.#child?.exitCode;
    this.#child = undefined;
    return code;
  }
}
