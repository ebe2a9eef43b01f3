// `mooring relay`, as a process, between opencode and a server.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { folder, mooring } from "./mooring.js";

/** A port of the loopback at which nobody listens. */
export async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

/** On a home folder of its own and on a port that it keeps over restarts. */
export class Relay {
  /** What it has written to standard error so far, over all its starts. */
  log = "";
  #args;
  #port;
  #child;
  #exit = Promise.resolve();

  /** Starts one that ends with the test: to a ref, and to where opencode's API is. */
  static async start(t, to, opencode) {
    const r = new Relay();
    r.#port = await freePort();
    r.#args = ["relay", "--to", to, "--listen", `127.0.0.1:${r.#port}`, "--home", await folder(t, "relay"), "--opencode", opencode];
    t.after(() => r.kill());
    await r.start();
    return r;
  }

  async start() {
    const child = spawn(mooring(), this.#args, { stdio: ["ignore", "pipe", "pipe"] });
    this.#child = child;
    this.#exit = once(child, "exit");
    child.stderr.setEncoding("utf8").on("data", (text) => (this.log += text));
    const ended = this.#exit.then(() => assert.fail(`the relay ended: ${this.log}`));
    await Promise.race([once(child.stdout, "data"), ended]);
    child.stdout.resume();
  }

  /** Ends it at once, as a crash does. */
  async kill() {
    this.#child?.kill("SIGKILL");
    await this.#exit;
    this.#child = undefined;
  }

  get origin() {
    return `http://127.0.0.1:${this.#port}`;
  }
}
