// A server's connection: the hosts of a ref are tried in turn, and one connection is kept to the first that
// answers. When it is lost it is dialled again with jittered backoff, or at once when a caller needs
// it or the machine is back online.

import { RpcPromise, RpcSession } from "capnweb";
import { newBackoff } from "./backoff.js";
import { fault, faultOf, MooringError } from "./fault.js";
import { type Arg, hintsOf, outcomeOf, type Limits } from "./intent.js";
import type { Held, LinkStream, StreamRequest, WireBatch } from "./link.js";
import type { Reply } from "./machine.js";
import { featuresOf } from "./methods.js";
import { isSealed, isSpace, type Ref } from "./ref.js";
import { prove, Turns } from "./seal.js";
import { Transport, type WebSocketConstructor } from "./transport.js";
import { dispose, type Struct, type Stub, type StubPromise } from "./wire.js";

/** The version of the protocol that this client speaks. */
const protocolVersion = 1;

const maxIdle = 256; // how many capabilities are kept for reuse

const lasting = 5000; // how long a connection must have lasted for the pause to be reset

export interface ServerOptions {
  readonly address: string;
  readonly hosts: readonly string[];
  readonly urls: readonly string[];
  readonly WebSocket: WebSocketConstructor;
  readonly agent: string;
  readonly sealKey: CryptoKey | undefined;
  /** Milliseconds. */
  readonly reconnect: { readonly initial: number; readonly max: number };
  readonly connectTimeout: number;
  /** How long nothing may be heard before the server is probed, and then until it answers. */
  readonly quiet: number;
  /** Called when a connection is established. */
  readonly back: () => void;
}

/** Keeps the connection of one address. */
export class Server {
  readonly #options: ServerOptions;
  readonly #life = new AbortController();
  readonly #running: Promise<void>;
  readonly #limits: Partial<Limits> = {};
  #current: Peer | undefined;
  #failed = 0; // rounds through all hosts without a connection
  #lastErr: MooringError | undefined;
  #waiting: (() => void)[] = [];
  #hurry: (() => void) | undefined; // ends the pause between rounds
  #ask: (() => void) | undefined; // the same, if callers may end it

  constructor(options: ServerOptions) {
    this.#options = options;
    this.#running = this.#run();
  }

  /** The server's limits, as far as known. */
  get limits(): Partial<Limits> {
    return this.#limits;
  }

  /** The present connection, or the result of one attempt at every host. unavailable, incompatible, canceled. */
  async peer(): Promise<Peer> {
    for (const before = this.#failed; ; ) {
      if (this.#life.signal.aborted) throw fault("canceled", "the client was closed");
      if (this.#current && !this.#current.over) return this.#current;
      if (this.#failed > before) throw this.#lastErr!;
      this.#ask?.();
      await new Promise<void>((changed) => this.#waiting.push(changed));
    }
  }

  /** Dials now, if there is no connection. */
  hurry(): void {
    this.#hurry?.();
  }

  async close(): Promise<void> {
    this.#life.abort();
    this.#current?.close();
    this.hurry();
    this.#changed();
    await this.#running;
  }

  #changed(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const w of waiting) w();
  }

  async #run(): Promise<void> {
    const { reconnect } = this.#options, life = this.#life.signal;
    const wait = newBackoff({ ...reconnect, factor: 1.5, jitter: 0.5 });
    for (let host = 0; !life.aborted; host++) {
      let began = 0; // when the connection was established
      try {
        const peer = await this.#connect(host);
        began = Date.now();
        this.#current = peer;
        this.#changed();
        this.#options.back();
        const why = await peer.ended;
        this.#current = undefined;
        if (why.codeName === "incompatible") {
          this.#failed++;
          this.#lastErr = why;
        }
      } catch (err) {
        this.#failed++;
        this.#lastErr = faultOf(err);
      }
      this.#changed();
      if (life.aborted) return;
      if (began > 0 && Date.now() - began >= lasting) wait.reset();
      // A caller ends the pause, except after a connection that did not last, since the next may not either.
      else await this.#pause(wait.next(), began === 0);
    }
  }

  #pause(ms: number, askable: boolean): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        this.#hurry = this.#ask = undefined;
        resolve();
      };
      const timer = setTimeout(done, ms);
      this.#hurry = done;
      if (askable) this.#ask = done;
    });
  }

  /** Tries every host once, beginning with the one after the last. */
  async #connect(first: number): Promise<Peer> {
    const { hosts, urls, WebSocket, connectTimeout } = this.#options;
    let failed: unknown;
    for (let i = 0; i < urls.length && !this.#life.signal.aborted; i++) {
      try {
        const host = (first + i) % urls.length;
        const transport = await Transport.connect(urls[host]!, WebSocket, connectTimeout, this.#life.signal);
        return new Peer(transport, hosts[host]!, this.#options, (l) => Object.assign(this.#limits, l));
      } catch (err) {
        failed = err;
      }
    }
    throw failed ?? fault("canceled", "the client was closed");
  }
}

/**
 * The key of a ref's live capability. It has the secret, so that a caller that knows only the id does not get
 * the capability that another caller has restored.
 */
const liveName = (ref: Ref): string => `${ref.id}#${ref.secretText}`;

/**
 * One connection. When it ends, all its objects are dead and have to be restored from sturdy refs over another.
 * Nothing waits for an answer before the next call: restore, open and apply leave at once.
 */
export class Peer {
  /** Fulfilled with the reason when the connection has ended. */
  readonly ended: Promise<MooringError>;
  /** Called then, too; objects that end before the connection remove themselves. */
  readonly onEnd = new Set<(why: MooringError) => void>();
  over = false;
  readonly #transport: Transport;
  readonly #main: Stub;
  readonly #at: string;
  readonly #sealKey: CryptoKey | undefined;
  readonly #proofs = new Turns(32); // a server forgets the oldest of 64 challenges
  readonly #live = new Map<string, StubPromise>(); // by liveName, or "create " and the session; the least recently used first
  readonly #got = new Map<string, unknown>(); // their results
  readonly #agent: string;
  readonly #setLimits: (l: Partial<Limits>) => void;
  #bad: MooringError | undefined; // why this server cannot be used
  #features: ReadonlySet<string> = new Set(); // by its last answer to hello
  #answered!: () => void;
  readonly #hello: Promise<void>; // the first hello was answered, or will not be

  /** at: HOST:PORT as it was dialled. */
  constructor(transport: Transport, at: string, { agent, quiet, sealKey }: ServerOptions, limits: (l: Partial<Limits>) => void) {
    this.#transport = transport;
    this.#at = at;
    this.#sealKey = sealKey;
    this.#agent = agent;
    this.#setLimits = limits;
    this.#main = new RpcSession(transport, undefined, {
      onSendError: () => new Error("the client could not take this"), // errors here are not sent to the server
      limits: { maxMessageSize: 128 << 20 },
    }).getRemoteMain() as unknown as Stub;
    this.#hello = new Promise((resolve) => { this.#answered = resolve; });
    let watch: ReturnType<typeof setInterval> | undefined;
    this.ended = transport.ended.then((why) => {
      this.over = true;
      clearInterval(watch);
      this.#answered();
      why = this.#bad ?? why;
      for (const f of this.onEnd) f(why);
      return why;
    });
    void this.#ask().catch(() => {});
    // A dead link is detected by pings.
    let asked = 0;
    watch = setInterval(() => {
      const silent = Date.now() - transport.heard;
      if (silent < quiet) asked = 0;
      else if (asked > 0 && Date.now() - asked >= quiet) transport.close(fault("disconnected", "the server has not answered for long"));
      else if (asked === 0) {
        asked = Date.now();
        void this.#ask().catch(() => {});
      }
    }, Math.max(quiet / 4, 10));
    (watch as { unref?: () => void }).unref?.();
  }

  /** Says hello: the answer has the server's limits and features. A server of no common version is left. */
  async #ask(): Promise<void> {
    try {
      const answer = (await this.#main["hello"]!({ version: protocolVersion, agent: this.#agent })) as { version: number; limits?: Struct; features?: string[] };
      if (!(answer.version >= 1 && answer.version <= protocolVersion)) {
        throw fault("incompatible", `the server speaks version ${answer.version} of the protocol and this client ${protocolVersion}: update the older one`);
      }
      const l: Partial<Limits> = {};
      for (const name of ["batchOps", "batchBytes", "payloadBytes"] as const) {
        const n = Number(answer.limits?.[name] ?? 0);
        if (n > 0) l[name] = n;
      }
      this.#setLimits(l);
      this.#features = new Set(answer.features ?? []);
      this.#answered();
      dispose(answer);
    } catch (err) {
      const f = faultOf(err);
      if (f.codeName === "incompatible") {
        this.#bad = f;
        this.#transport.close(f);
      }
      throw f;
    }
  }

  close(): void {
    this.#transport.close();
  }

  /** Whether the server has a feature beyond the first version: it refuses fields that it does not know. */
  async has(feature: string): Promise<boolean> {
    await this.#hello;
    return this.#features.has(feature);
  }

  /** Whether the server is known to have all of these features. */
  hasAll(features: readonly string[]): boolean {
    return features.every((f) => this.#features.has(f));
  }

  /**
   * Waits until it is known whether the server has features that ops need: unsupported if not. It is asked again each time, since
   * they come into use while it runs.
   */
  async require(features: readonly string[]): Promise<void> {
    await this.#hello;
    if (this.hasAll(features)) return;
    if (this.over) throw await this.ended;
    await this.#ask();
    const missing = features.filter((f) => !this.#features.has(f));
    if (missing.length === 0) return;
    throw fault("unsupported", `the server at ${this.#at} does not have ${missing.join(", ")} in use (it, or another replica, is of an earlier version): the op is kept, and sent once it has`);
  }

  /** The error of a call, translated. */
  fail(err: unknown): MooringError {
    return this.#bad ?? faultOf(err);
  }

  /** The live capability of a ref for the life of the connection; always the same one, so that calls keep their order. */
  restore(held: Held): StubPromise {
    const { session } = held;
    if (session !== undefined) {
      const open = (): StubPromise => this.restore({ ref: held.ref, redemption: held.redemption })["open"]!(session);
      const needs = [isSpace(held.ref.target) ? "manage" : "reach"];
      return this.#reuse(`open ${session} ${liveName(held.ref)}`, () => this.hasAll(needs) ? open() : new RpcPromise((async () => {
        await this.require(needs);
        return (await open()) as never;
      })()) as unknown as StubPromise);
    }
    const { ref, redemption } = held, wire = { id: ref.id, secret: ref.secretText };
    const name = liveName(ref);
    if (!isSealed(ref.id)) return this.#reuse(name, () => this.#main["restore"]!(wire, redemption));
    const key = this.#sealKey;
    if (key === undefined) {
      throw fault("sealed", "the ref is bound to a key, and there is none here: redeem it where its key is, or give its sharer the public key of this place (newSealKey) and ask for a new ref");
    }
    // Only calls on it wait for it.
    return this.#reuse(name, () => new RpcPromise(this.#proofs.take(async () => {
      const proof = await prove(key, await this.#main["challenge"]!(), this.#at, held);
      return (await this.#main["restore"]!(wire, redemption, proof)) as never;
    })) as unknown as StubPromise);
  }

  #reuse(key: string, ask: () => StubPromise): StubPromise {
    let live = this.#live.get(key);
    this.#live.delete(key);
    if (live === undefined) {
      const fresh = (live = ask());
      fresh.then((stub: unknown) => {
        this.#got.set(key, stub);
        this.#letGo();
      }, () => {
        // After a failure the next use asks again.
        if (this.#live.get(key) === fresh) this.#live.delete(key);
      });
    }
    this.#live.set(key, live);
    return live;
  }

  /** Releases the least recently used capabilities: a server has a limit per connection. */
  #letGo(): void {
    for (const [key, live] of this.#live) {
      if (this.#live.size <= maxIdle) return;
      if (!this.#got.has(key)) continue; // it is not resolved yet
      const stub = this.#got.get(key);
      this.#live.delete(key);
      this.#got.delete(key);
      dispose(stub);
      dispose(live);
    }
  }

  /** Opens a stream, without waiting for the server. */
  async openStream(req: StreamRequest): Promise<LinkStream> {
    const target = req.space
      ? this.#reuse(`create ${req.session} ${req.ownerRef} ${liveName(req.space.ref)}`, () => this.restore(req.space!)["create"]!(req.session, req.ownerRef))
      : this.restore(req.through!.ref.target !== req.session ? { ...req.through!, session: req.session } : req.through!);
    const stub = target["openStream"]!(req.outbox, req.secret, req.incarnation);
    // Capabilities that prove an authority must be resolved when the batch arrives, since its outcome is recorded. The
    // stub is passed and not its promise, whose id is no longer valid once it is fulfilled. One that failed
    // is left out; the server says that it is missing. One that is still to be minted, as that of a session whose
    // creation is on its way, is waited for.
    const held = await Promise.allSettled(req.with.map((h) => this.restore(h)));
    for (const h of held) {
      if (h.status === "rejected" && faultOf(h.reason).codeName === "not_yet_known") throw h.reason;
    }
    // The stream has its own references, which may live longer than the reuse cache's.
    return new PeerStream(this, stub, held.flatMap((h) => (h.status === "fulfilled" ? [(h.value as { dup(): unknown }).dup()] : [])));
  }
}

/** A batch with its ops' hints. */
function withoutHints(batch: WireBatch): WireBatch {
  const hints: { op: number; args: readonly Arg[] }[] = [];
  const ops = batch.ops.map((op, i) => {
    const { args, hints: of } = hintsOf(op.method, op.args ?? []);
    if (of.length === 0) return op;
    hints.push({ op: i, args: of });
    return { ...op, args };
  });
  return hints.length === 0 ? batch : { ...batch, ops, hints };
}

class PeerStream implements LinkStream {
  onGone: (err: MooringError) => void = () => {};
  readonly #peer: Peer;
  readonly #stub: StubPromise;
  readonly #held: readonly unknown[];
  #before: Promise<unknown> = Promise.resolve();
  #ready: Promise<void> | undefined; // set once a batch had to wait for the server's features, and awaited by all after it, so that they keep their order
  #closed = false;
  readonly #gone = (err: MooringError): void => { if (!this.#closed) this.onGone(err); };

  constructor(peer: Peer, stub: StubPromise, held: readonly unknown[]) {
    this.#peer = peer;
    this.#stub = stub;
    this.#held = held;
    if (peer.over) queueMicrotask(() => this.#gone(fault("disconnected", "the link broke")));
    else peer.onEnd.add(this.#gone);
  }

  apply(batch: WireBatch): Promise<Reply> {
    const answer = this.#ask(batch), before = this.#before;
    const inOrder = answer.then(async (r) => {
      await before;
      return r;
    });
    this.#before = inOrder;
    return inOrder;
  }

  async #ask(batch: WireBatch): Promise<Reply> {
    try {
      const peer = this.#peer, needs = featuresOf(batch.ops), { hints, ...plain } = withoutHints(batch);
      if (hints || !peer.hasAll(needs)) {
        const before = this.#ready;
        this.#ready = (async () => {
          await before;
          await peer.require(needs);
        })();
      }
      if (this.#ready) await this.#ready;
      if (this.#closed) throw fault("disconnected", "the stream was closed");
      const sent = hints && peer.hasAll(["hints"]) ? { ...plain, hints } : plain;
      const args = this.#held.length > 0 ? [sent, this.#held] : [sent];
      const answer = (await this.#stub["apply"]!(...args)) as Struct;
      try {
        if (!Array.isArray(answer["outcomes"])) throw fault("incompatible", "the server's answer to a batch cannot be read");
        return { outcomes: answer["outcomes"].map(outcomeOf) };
      } finally {
        dispose(answer);
      }
    } catch (err) {
      return { err: this.#peer.fail(err) };
    }
  }

  acknowledge(through: number): void {
    const answer = this.#stub["acknowledge"]!(through);
    answer.then(dispose, () => {});
  }

  async lastSeq(): Promise<number> {
    try {
      return Number(await (this.#stub["lastSeq"] as unknown as Promise<number>));
    } catch (err) {
      throw this.#peer.fail(err);
    }
  }

  close(): void {
    this.#closed = true;
    this.#peer.onEnd.delete(this.#gone);
    dispose(this.#stub);
    for (const h of this.#held) dispose(h);
  }
}
