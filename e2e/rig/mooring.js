// The real server and the real command line, as processes.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import * as fs from "node:fs/promises";
import * as os from "node:os";
import * as path from "node:path";
import { fileURLToPath } from "node:url";
import { database } from "./database.js";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");

/** A file of the repository. */
export const repo = (file) => path.join(root, file);

let built = process.env.MOORING_BIN === undefined ? "" : path.resolve(process.env.MOORING_BIN);

/** The binary: MOORING_BIN, or built from this repository. */
export function mooring() {
  if (built === "" || !existsSync(built)) {
    built = repo("bin/mooring");
    execFileSync("go", ["build", "-trimpath", "-o", built, "./cmd/mooring"], { cwd: root, stdio: "inherit", env: { ...process.env, CGO_ENABLED: "0" } });
  }
  return built;
}

/** A folder that is removed after the test. */
export async function folder(t, name) {
  const dir = await fs.mkdtemp(path.join(os.tmpdir(), `mooring-${name}-`));
  t.after(() => fs.rm(dir, { recursive: true, force: true, maxRetries: 5 }));
  return dir;
}

/** Runs a program to its end and gives its standard output; fails with what it said if it failed. */
export async function output(command, args, options = {}) {
  const { input = "", ...rest } = options;
  const child = spawn(command, args, { stdio: ["pipe", "pipe", "pipe"], ...rest });
  let out = "";
  let err = "";
  child.stdout.setEncoding("utf8").on("data", (text) => (out += text));
  child.stderr.setEncoding("utf8").on("data", (text) => (err += text));
  child.stdin.on("error", () => {}); // it may end before it has read all
  child.stdin.end(input);
  const [code, signal] = await once(child, "close");
  assert.equal(code, 0, `${path.basename(command)} ${args.slice(0, 2).join(" ")} ended with ${code ?? signal}:\n${err}`);
  return out;
}

/** Flags of a server with a certificate for this machine that nobody signed, made with what Go brings. */
export async function certificate(t) {
  const dir = await folder(t, "tls");
  const goroot = (await output("go", ["env", "GOROOT"])).trim();
  await output("go", ["run", path.join(goroot, "src/crypto/tls/generate_cert.go"), "--host", "127.0.0.1,localhost", "--ecdsa-curve", "P256"], { cwd: dir });
  return ["--tls-cert", path.join(dir, "cert.pem"), "--tls-key", path.join(dir, "key.pem")];
}

/** `mooring serve`, on a data folder of its own and on a port that it keeps over restarts. */
export class Server {
  port = 0;
  /** What it has written to its log so far, over all its starts. */
  log = "";
  #dir;
  #flags;
  #tls;
  #database;
  #child;
  #exit = Promise.resolve();

  constructor(dir, flags) {
    this.#dir = dir;
    this.#flags = [...flags];
    this.#tls = flags.includes("--tls-cert");
  }

  /** Starts one that ends with the test, on SQLite or where MOORING_TEST_DATABASE_URL leads. */
  static async start(t, flags = []) {
    const s = new Server(path.join(await folder(t, "server"), "data"), flags);
    t.after(() => s.kill());
    s.#database = await database(t);
    await s.start();
    return s;
  }

  async start() {
    const args = ["serve", "--data", this.#dir, "--listen", `127.0.0.1:${this.port}`, ...this.#flags];
    const env = this.#database === undefined ? process.env : { ...process.env, MOORING_DATABASE_URL: this.#database };
    const child = spawn(mooring(), args, { env, stdio: ["ignore", "pipe", "pipe"] });
    this.#child = child;
    this.#exit = once(child, "exit");
    child.stderr.setEncoding("utf8").on("data", (text) => (this.log += text));
    child.stdout.setEncoding("utf8");
    let said = "";
    while (!said.includes("\n")) {
      const ended = this.#exit.then(() => assert.fail(`the server ended: ${this.log}`));
      const [text] = await Promise.race([once(child.stdout, "data"), ended]);
      said += text;
    }
    child.stdout.resume();
    this.port = Number(/listening on [^ ]*:(\d+)/.exec(said)[1]);
  }

  /** Ends it at once, as a crash does. */
  async kill() {
    this.#child?.kill("SIGKILL");
    await this.#exit;
    this.#child = undefined;
  }

  /** Has it stand still, as on a machine that has come to a stop: it accepts connections and answers nothing, until it is resumed. */
  halt() {
    this.#child.kill("SIGSTOP");
  }

  resume() {
    this.#child.kill("SIGCONT");
  }

  /** Ends it at once and starts it again on what it left, with more flags if there are any. */
  async restart(flags = []) {
    await this.kill();
    this.#flags.push(...flags);
    await this.start();
  }

  /** Copies its data, which are SQLite's, aside; it is started again. */
  async save() {
    await this.kill();
    await fs.cp(this.#dir, `${this.#dir}.copy`, { recursive: true });
    await this.start();
  }

  /** Puts the copy in the place of its data; it is started again. */
  async restore() {
    await this.kill();
    await fs.rm(this.#dir, { recursive: true });
    await fs.cp(`${this.#dir}.copy`, this.#dir, { recursive: true });
    await this.start();
  }

  get origin() {
    return `${this.#tls ? "https" : "http"}://127.0.0.1:${this.port}`;
  }

  /** The owner's ref, as the first start or the last rotation wrote it. */
  async owner() {
    return (await fs.readFile(path.join(this.#dir, "owner.ref"), "utf8")).trim();
  }

  /** Makes a new owner's ref of one session, which needs the server to stand still, and gives its text. */
  async ownerOf(session) {
    await this.kill();
    const out = path.join(path.dirname(this.#dir), `${session}.ref`);
    await output(mooring(), ["admin", "rotate-owner", "--data", this.#dir, "--session", session, "--to", out]);
    await this.start();
    return (await fs.readFile(out, "utf8")).trim();
  }
}

/** A person's command line: `mooring`, with a home folder of its own. */
export class Commands {
  #home;

  constructor(home) {
    this.#home = home;
  }

  static async with(t, name = "home") {
    return new Commands(await folder(t, name));
  }

  /** The home folder. */
  get home() {
    return this.#home;
  }

  /** Runs `mooring ARGS…` and gives what it printed; `input` goes to its standard input. */
  async run(args, input) {
    const env = { ...process.env, MOORING_HOME: this.#home };
    return (await output(mooring(), args, { env, input })).trimEnd();
  }
}
