// What the tests against a real server need: the server as a process, folders, and a link that breaks.

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import * as fs from "node:fs/promises";
import * as net from "node:net";
import * as os from "node:os";
import * as path from "node:path";
import type { TestContext } from "node:test";
import { WebSocket, WebSocketServer } from "ws";
import { Ref, type SessionEvent, type Session } from "../src/index.js";
import { mooring } from "./paths.js";

/** A folder that is removed after the test. */
export async function folder(t: TestContext, name = "x"): Promise<string> {
  const dir = await fs.mkdtemp(path.join(os.tmpdir(), `mooring-${name}-`));
  t.after(() => fs.rm(dir, { recursive: true, force: true }));
  return dir;
}

/** A port that nobody listens at just now. */
export async function freePort(): Promise<number> {
  const taker = net.createServer().listen(0, "127.0.0.1");
  await once(taker, "listening");
  const { port } = taker.address() as net.AddressInfo;
  taker.close();
  await once(taker, "close");
  return port;
}

/** A server that runs for a test, on a port that it keeps over restarts. */
export class TestServer {
  port = 0;
  ref!: Ref;
  readonly #dir: string;
  readonly #flags: string[];
  #child: ChildProcess | undefined;
  #exit: Promise<unknown> = Promise.resolve();

  private constructor(dir: string, flags: string[]) {
    this.#dir = dir;
    this.#flags = flags;
  }

  static async start(t: TestContext, flags: string[] = []): Promise<TestServer> {
    const s = new TestServer(path.join(await folder(t, "server"), "srv"), flags);
    t.after(() => s.kill());
    await s.start();
    return s;
  }

  async start(): Promise<void> {
    const child = spawn(mooring(), ["serve", "--data", this.#dir, "--listen", `127.0.0.1:${this.port}`, ...this.#flags], { stdio: ["ignore", "pipe", "inherit"] });
    this.#child = child;
    this.#exit = once(child, "exit");
    let said = "";
    child.stdout.setEncoding("utf8");
    while (!said.includes("\n")) {
      const [text] = (await Promise.race([once(child.stdout, "data"), this.#exit.then(() => assert.fail("the server ended"))])) as [string];
      said += text;
    }
    child.stdout.resume();
    this.port = Number(/listening on [^ ]*:(\d+)/.exec(said)![1]);
    this.ref = Ref.parse((await fs.readFile(path.join(this.#dir, "owner.ref"), "utf8")).trim());
  }

  /** Ends it at once, as a crash does. */
  async kill(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    this.#child?.kill(signal);
    await this.#exit;
    this.#child = undefined;
  }

  /** Runs it again on what its data was at some earlier time: save gives how. */
  async save(): Promise<() => Promise<void>> {
    await this.kill();
    const copy = `${this.#dir}.saved`;
    await fs.cp(this.#dir, copy, { recursive: true });
    await this.start();
    return async () => {
      await this.kill();
      await fs.rm(this.#dir, { recursive: true });
      await fs.cp(copy, this.#dir, { recursive: true });
      await this.start();
    };
  }

  /** Ends it at once and starts it again on what it left. */
  async restart(): Promise<void> {
    await this.kill();
    await this.start();
  }
}

/** One link through a proxy. kept is what is kept back of what goes to the server, once anything is. */
interface Pair {
  readonly near: net.Socket;
  readonly far: net.Socket;
  deaf: boolean;
  kept: Buffer[] | undefined;
}

/** A TCP proxy whose links break when told to. */
export class Proxy {
  /** How many connections there were. */
  links = 0;
  /** How many bytes the server has sent. */
  received = 0;
  /** Links are refused while this is set. */
  refusing = false;
  /** Asked of every so many bytes that come for the server: whether they are kept back, with all that follows on their link. */
  keeps: (bytes: number) => boolean = () => false;
  readonly #server: net.Server;
  readonly #pairs = new Set<Pair>();
  readonly #target: () => number;
  #cutAfter = Infinity; // bytes from the server
  #swallow = false;
  #onCut: () => void = () => {};
  #onKept: (pair: Pair) => void = () => {};

  private constructor(target: () => number) {
    this.#target = target;
    this.#server = net.createServer((near) => this.#admit(near));
  }

  static async start(t: TestContext, target: TestServer): Promise<Proxy> {
    const p = new Proxy(() => target.port);
    p.#server.listen(0, "127.0.0.1");
    await once(p.#server, "listening");
    t.after(async () => {
      p.#server.close();
      p.cut();
    });
    return p;
  }

  get port(): number {
    return (this.#server.address() as net.AddressInfo).port;
  }

  /** A ref as it is reached through the proxy. */
  ref(ref: Ref): Ref {
    return refAt(ref, this);
  }

  #admit(near: net.Socket): void {
    near.on("error", () => {});
    if (this.refusing) {
      near.resetAndDestroy();
      return;
    }
    this.links++;
    const far = net.connect(this.#target(), "127.0.0.1");
    const pair: Pair = { near, far, deaf: false, kept: undefined };
    this.#pairs.add(pair);
    far.on("error", () => {});
    const end = (): void => {
      this.#pairs.delete(pair);
      near.destroy();
      far.destroy();
    };
    near.on("close", () => {
      if (!pair.kept) end();
    });
    far.on("close", end);
    near.on("data", (d) => {
      if (!pair.kept && !this.keeps(d.length)) {
        far.write(d);
        return;
      }
      (pair.kept ??= []).push(d);
      this.#onKept(pair);
    });
    far.on("data", (d) => {
      this.received += d.length;
      if (pair.deaf) return;
      this.#cutAfter -= d.length;
      if (this.#cutAfter > 0) {
        near.write(d);
        return;
      }
      this.#cutAfter = Infinity;
      if (this.#swallow) {
        pair.deaf = true; // what comes from the server goes nowhere; what goes to it still arrives
        setTimeout(end, 30);
      } else end();
      this.#onCut();
    });
  }

  /** Breaks all links now. */
  cut(): void {
    for (const { near, far } of this.#pairs) {
      near.resetAndDestroy();
      far.resetAndDestroy();
    }
  }

  /**
   * Waits until something is kept back. What it gives lets that through to the server, which does not know if the client
   * has gone meanwhile, and waits for an answer.
   */
  kept(): Promise<() => Promise<void>> {
    return new Promise((resolve) => {
      this.#onKept = (pair) => resolve(async () => {
        const kept = pair.kept!;
        pair.kept = undefined;
        for (const d of kept) pair.far.write(d);
        await once(pair.far, "data");
      });
    });
  }

  /** Breaks all links now, of which the server does not hear where something is kept back. */
  async leave(): Promise<void> {
    await Promise.all([...this.#pairs].map(({ near }) => once(near.resetAndDestroy(), "close")));
  }

  /** Lets nothing through any more on the links there are, without ending them. */
  deafen(): void {
    for (const pair of this.#pairs) {
      pair.deaf = true;
      pair.near.removeAllListeners("data");
      pair.near.resume();
    }
  }

  /** Breaks the link after so many bytes from the server; or swallows its answers from then on, and breaks it a little later. */
  cutAfter(bytes: number, how: "cut" | "swallow" = "cut"): Promise<void> {
    this.#cutAfter = bytes;
    this.#swallow = how === "swallow";
    return new Promise((resolve) => { this.#onCut = resolve; });
  }
}

/** What leads to a server by WebSocket, and changes messages. */
export class Rewriting {
  toServer = (message: string): string => message;
  toClient = (message: string): string => message;
  /** What clients have sent. */
  readonly sent: string[] = [];
  readonly #server = new WebSocketServer({ port: 0, host: "127.0.0.1" });

  static async start<T extends Rewriting>(this: new () => T, t: TestContext, to: TestServer): Promise<T> {
    const r = new this();
    r.#server.on("connection", (near: WebSocket) => {
      const far = new WebSocket(`ws://127.0.0.1:${to.port}/rpc`), early: string[] = [];
      near.on("message", (m) => {
        const text = r.toServer(String(m));
        r.sent.push(text);
        if (far.readyState === WebSocket.OPEN) far.send(text);
        else early.push(text);
      });
      far.on("open", () => { for (const m of early) far.send(m); });
      far.on("message", (m) => near.send(r.toClient(String(m))));
      near.on("close", () => far.terminate());
      far.on("close", () => near.terminate());
      far.on("error", () => near.terminate());
    });
    await once(r.#server, "listening");
    t.after(() => {
      for (const s of r.#server.clients) s.terminate();
      r.#server.close();
    });
    return r;
  }

  /** A ref as it is reached this way. */
  ref(ref: Ref): Ref {
    return refAt(ref, this.#server.address() as net.AddressInfo);
  }
}

/** A ref as it is reached at another port of this machine. */
const refAt = (ref: Ref, { port }: { port: number }): Ref => Ref.parse(ref.text.replace(/^mooring:\/\/[^/]*/, `mooring://127.0.0.1:${port}`));

/** The whole log of a session, and that it is whole: cursors 1, 2, 3 … without gaps. */
export async function logOf(session: Session): Promise<SessionEvent[]> {
  const all: SessionEvent[] = [];
  for (;;) {
    const page = await session.events(all.length);
    all.push(...page.events);
    if (all.length >= page.cursor) break;
    assert.ok(page.events.length > 0);
  }
  assert.deepEqual(all.map((e) => e.cursor), all.map((_, i) => i + 1));
  return all;
}

/** The keys of the puts in a log, in order. */
export const putKeys = (log: SessionEvent[]): string[] => log.filter((e) => e.method === "put").map((e) => e.key);
