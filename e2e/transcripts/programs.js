// The real programs: each is run with a scripted model, in folders of its own, and writes its transcript.

import * as fs from "node:fs/promises";
import * as path from "node:path";
import { fileURLToPath } from "node:url";
import { Model } from "../claude/model.js";
import { folder, output } from "../rig/mooring.js";
import { Responses } from "./responses.js";

const installed = (file) => fileURLToPath(new URL(`node_modules/${file}`, import.meta.url));
const claude = () => installed("@anthropic-ai/claude-code-linux-x64/claude");
const codex = () => installed("@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex");

/** The transcripts below a folder, the shortest path first. */
async function transcripts(dir) {
  const names = (await fs.readdir(dir, { recursive: true })).filter((name) => name.endsWith(".jsonl"));
  return names.sort((a, b) => a.split(path.sep).length - b.split(path.sep).length).map((name) => path.join(dir, name));
}

/** Claude Code, as it is run by `claude -p`. */
export class Claude {
  /** Where it works, and what has its settings and transcripts. */
  dir;
  home;
  #env;
  #model;

  static async start(t) {
    const c = new Claude();
    c.dir = await folder(t, "project");
    c.home = await folder(t, "claude-home");
    c.#model = await Model.start(t);
    c.#env = {
      PATH: process.env.PATH, HOME: c.home, TMPDIR: c.home, CLAUDE_CONFIG_DIR: path.join(c.home, "claude"), ANTHROPIC_BASE_URL: c.#model.url, ANTHROPIC_API_KEY: "sk-ant-scripted",
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", DISABLE_AUTOUPDATER: "1", DISABLE_TELEMETRY: "1",
    };
    return c;
  }

  /** Asks it for something, with what the model says to it; goes on with its last session where there is one. */
  async ask(prompt, ...replies) {
    this.#model.script(...replies);
    const more = (await this.files()).length > 0 ? ["--continue"] : [];
    await output(claude(), ["-p", ...more, prompt, "--allowedTools", "Bash,Write,Edit,Read,TaskCreate,TaskUpdate,Agent"], { cwd: this.dir, env: this.#env });
  }

  /** Its transcripts, the session's own first. */
  async files() {
    return transcripts(path.join(this.home, "claude/projects")).catch(() => []);
  }
}

/** Codex, as it is run by `codex exec`. */
export class Codex {
  dir;
  home;
  #env;
  #model;

  static async start(t) {
    const c = new Codex();
    c.dir = await folder(t, "project");
    c.home = await folder(t, "codex-home");
    c.#model = await Responses.start(t);
    c.#env = { PATH: process.env.PATH, HOME: c.home, TMPDIR: c.home, CODEX_HOME: path.join(c.home, "codex"), SCRIPTED_KEY: "scripted" };
    await fs.mkdir(c.#env.CODEX_HOME);
    const config = [
      'model = "gpt-5.5"', 'model_provider = "scripted"', 'approval_policy = "never"', 'sandbox_mode = "danger-full-access"',
      "[tools.update_plan]", "enabled = true", "[analytics]", "enabled = false",
      "[model_providers.scripted]", 'name = "scripted"', `base_url = "${c.#model.url}"`, 'wire_api = "responses"', 'env_key = "SCRIPTED_KEY"', "request_max_retries = 0", "stream_max_retries = 0",
    ];
    await fs.writeFile(path.join(c.#env.CODEX_HOME, "config.toml"), config.join("\n"));
    return c;
  }

  /** Asks it for something, with what the model says to it; goes on with its last session where there is one. */
  async ask(prompt, ...replies) {
    this.#model.script(...replies);
    const more = (await this.files()).length > 0 ? ["resume", "--last"] : [];
    await output(codex(), ["exec", "--skip-git-repo-check", ...more, prompt], { cwd: this.dir, env: this.#env });
  }

  /** Its transcripts. */
  async files() {
    return transcripts(path.join(this.#env.CODEX_HOME, "sessions")).catch(() => []);
  }
}
