// An editor, made with the protocol's own SDK, whose agent is `mooring acp`.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { Readable, Writable } from "node:stream";
import { client, ndJsonStream } from "@agentclientprotocol/sdk";
import { mooring } from "../rig/mooring.js";

/** An editor with its agent, a process of `mooring acp`; killed with the test. */
export class Editor {
  /** The updates of its sessions. */
  updates = [];
  /** The permissions that it is asked, each with `answer(kind)`. */
  asked = [];
  said = "";
  #child;
  #exit;
  #connection;

  static start(t, commands, machine, flags) {
    const e = new Editor();
    e.#child = spawn(mooring(), ["acp", "--home", commands.home, ...flags, "--", ...machine.agent], { stdio: ["pipe", "pipe", "pipe"] });
    e.#exit = once(e.#child, "exit");
    e.#child.stderr.setEncoding("utf8").on("data", (text) => (e.said += text));
    t.after(() => e.end("SIGKILL"));
    e.#connection = client({ name: "editor" })
      .onNotification("session/update", ({ params }) => void e.updates.push(params.update))
      .onRequest("session/request_permission", ({ params }) => new Promise((resolve) => {
        const answer = (kind) => resolve({ outcome: { outcome: "selected", optionId: params.options.find((o) => o.kind === kind).optionId } });
        e.asked.push({ ...params, answer });
      }))
      .connect(ndJsonStream(Writable.toWeb(e.#child.stdin), Readable.toWeb(e.#child.stdout)));
    return e;
  }

  /** The process of the agent. */
  get pid() {
    return this.#child.pid;
  }

  /** Whether that has ended. */
  get over() {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  request(method, params) {
    return this.#connection.agent.request(method, params);
  }

  notify(method, params) {
    return this.#connection.agent.notify(method, params);
  }

  initialize() {
    return this.request("initialize", { protocolVersion: 1, clientCapabilities: {} });
  }

  /** The text of the updates of a kind. */
  text(kind) {
    return this.updates.filter((u) => u.sessionUpdate === kind).map((u) => u.content.text).join("");
  }

  /** Ends the agent by a signal, or, without one, as an editor does that is closed; gives its exit code. */
  async end(signal) {
    if (signal) this.#child.kill(signal);
    else this.#child.stdin.end();
    await this.#exit;
    return this.#child.exitCode;
  }
}
