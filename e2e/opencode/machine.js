// A developer's machine: a home folder, a project, and the real opencode.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import * as fs from "node:fs/promises";
import * as path from "node:path";
import { fileURLToPath } from "node:url";
import { folder, output } from "../rig/mooring.js";
import { until } from "../rig/wait.js";

const binary = fileURLToPath(new URL("node_modules/.bin/opencode", import.meta.url));

export class Machine {
  /** The project's folder. */
  project;
  /** Of the running opencode's API, if it has one. */
  password;
  #home;
  #env;
  #child;
  #exit = Promise.resolve();
  #said = "";
  #origin = "";

  /** A machine whose project's config says to share at `share` and to ask `model`. Its processes end with the test. */
  static async with(t, name, { share, model, mode = "manual", permission = "allow", env = {} }) {
    const m = new Machine();
    const dir = await folder(t, name);
    m.#home = path.join(dir, "home");
    m.project = path.join(dir, "project");
    await fs.mkdir(m.project, { recursive: true });
    const xdg = (kind) => path.join(m.#home, kind);
    m.#env = {
      PATH: process.env.PATH, HOME: m.#home, TMPDIR: dir,
      XDG_DATA_HOME: xdg("data"), XDG_CONFIG_HOME: xdg("config"), XDG_STATE_HOME: xdg("state"), XDG_CACHE_HOME: xdg("cache"),
      OPENCODE_DISABLE_AUTOUPDATE: "1", OPENCODE_DISABLE_MODELS_FETCH: "1", OPENCODE_DISABLE_LSP_DOWNLOAD: "1", ...env,
    };
    await fs.writeFile(path.join(m.project, "README.md"), "# a project\n");
    for (const args of [["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", "init"]]) {
      await output("git", args, { cwd: m.project, env: m.#env });
    }
    await m.configure({ share, model, mode, permission });
    t.after(() => m.stop());
    return m;
  }

  /** Its home folder, which the environment of its processes names. */
  get home() {
    return this.#home;
  }

  /** The command line of this machine's opencode, speaking the Agent Client Protocol. */
  get agent() {
    return ["env", ...Object.entries(this.#env).map(([name, value]) => `${name}=${value}`), binary, "acp"];
  }

  /** Writes the project's config anew; a running opencode has to be started again to see it. */
  async configure({ share, model, mode = "manual", permission = "allow" }) {
    const config = {
      $schema: "https://opencode.ai/config.json",
      enterprise: { url: share },
      share: mode,
      permission,
      model: "scripted/large",
      small_model: "scripted/small",
      provider: {
        scripted: {
          npm: "@ai-sdk/openai-compatible", // opencode brings it along
          name: "Scripted",
          options: { baseURL: model.url, apiKey: "none" },
          models: {
            large: { name: "Large", limit: { context: 100_000, output: 8_000 }, cost: { input: 3, output: 15 } },
            small: { name: "Small", limit: { context: 100_000, output: 8_000 } },
          },
        },
      },
    };
    await fs.writeFile(path.join(this.project, "opencode.json"), JSON.stringify(config, null, 2));
  }

  /** Runs `opencode serve`, at a port if it is to be known before. */
  async start(port = 0) {
    const child = spawn(binary, ["serve", "--hostname", "127.0.0.1", "--port", `${port}`], { cwd: this.project, env: this.#env, stdio: ["ignore", "pipe", "pipe"] });
    this.#child = child;
    this.#exit = once(child, "exit");
    this.#said = "";
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (text) => (this.#said += text));
    const at = await until("opencode serve listens", () => {
      assert.equal(child.exitCode, null, `opencode ended: ${this.#said}`);
      return /listening on (http:\S+)/.exec(this.#said);
    });
    this.#origin = at[1];
  }

  /** Ends it at once, as a crash does. */
  async stop() {
    this.#child?.kill("SIGKILL");
    await this.#exit;
    this.#child = undefined;
  }

  /** Asks the running opencode. */
  async ask(method, where, body) {
    const res = await fetch(this.#origin + where, {
      method,
      headers: {
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...(this.password === undefined ? {} : { authorization: `Basic ${btoa(`opencode:${this.password}`)}` }),
      },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await res.text();
    assert.ok(res.ok, `opencode: ${method} ${where}: ${res.status} ${text.slice(0, 500)}`);
    return text === "" ? undefined : JSON.parse(text);
  }

  /** Sends a prompt and gives the last answer when the model has done all it wants to. */
  async prompt(session, text) {
    return this.ask("POST", `/session/${session}/message`, { parts: [{ type: "text", text }] });
  }

  /** What the running opencode holds of a session, in the form of its export. */
  async state(session) {
    return { info: await this.ask("GET", `/session/${session}`), messages: await this.ask("GET", `/session/${session}/message`) };
  }

  /** `opencode export`. */
  async export(session) {
    return JSON.parse(await this.run(["export", session]));
  }

  /** Runs `opencode ARGS…` in the project and gives what it printed. */
  async run(args) {
    return output(binary, args, { cwd: this.project, env: this.#env });
  }
}
