// A server as this client knows it: the hosts of a ref, tried in turn, and the one connection to whichever of them
// answers. The connection is kept: it is dialled again with jittered backoff when it is lost, at once when someone asks
// for it or the machine is back on its network, and those who wait are told when it is there.

import { RpcPromise, RpcSession } from "capnweb";
import { newBackoff } from "./backoff.js";
import { fault, faultOf, MooringError } from "./fault.js";
import { type Arg, hintsOf, outcomeOf, type Limits } from "./intent.js";
import type { Held, LinkStream, StreamRequest, WireBatch } from "./link.js";
import type { Reply } from "./machine.js";
import { isSealed, type Ref } from "./ref.js";
import { prove, Turns } from "./seal.js";
import { Transport, type WebSocketConstructor } from "./transport.js";
import { dispose, type Struct, type Stub, type StubPromise } from "./wire.js";

/** The version of the protocol that this client speaks. */
const protocolVersion = 1;

const maxIdle = 256; // how many capabilities are kept to be used again

const lasting = 5000; // how long a connection must have held for the next wait to be short again

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
  /** How long nothing may be heard before the server is asked whether it is there, and then until it answers. */
  readonly quiet: number;
  /** Called when a connection is there. */
  readonly back: () => void;
}

/** The keeping of one address's connection. */
export class Server {
  readonly #options: ServerOptions;
  readonly #life = new AbortController();
  readonly #running: Promise<void>;
  readonly #limits: Partial<Limits> = {};
  #current: Peer | undefined;
  #failed = 0; // rounds through all hosts that got no connection
  #lastErr: MooringError | undefined;
  #waiting: (() => void)[] = [];
  #hurry: (() => void) | undefined; // ends the pause between rounds
  #ask: (() => void) | undefined; // the same, where it may be ended by those who want a connection

  constructor(options: ServerOptions) {
    this.#options = options;
    this.#running = this.#run();
  }

  /** What the server has told of its limits. */
  get limits(): Partial<Limits> {
    return this.#limits;
  }

  /** The present connection, or that of one attempt at every host. unavailable, incompatible, canceled. */
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
      let began = 0; // when the connection was there
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
      // Who wants a connection need not wait, but after one that did not last: the next may not, either.
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
 * The name that a ref's live capability is found by. The secret is in it: a caller that knows the id alone must not be given
 * the capability that another has restored.
 */
const liveName = (ref: Ref): string => `${ref.id}#${ref.secretText}`;

/**
 * One live connection. When it ends, everything got through it is dead and one starts over from sturdy refs at another.
 * Nothing here waits for an answer before it goes on: restore, open and apply leave at once.
 */
export class Peer {
  /** Fulfilled when the connection has ended, with why. */
  readonly ended: Promise<MooringError>;
  /** Called then, too: what lives for less than the connection takes itself out again. */
  readonly onEnd = new Set<(why: MooringError) => void>();
  over = false;
  readonly #transport: Transport;
  readonly #main: Stub;
  readonly #at: string;
  readonly #sealKey: CryptoKey | undefined;
  readonly #proofs = new Turns(32); // a server forgets the oldest of 64 challenges
  readonly #live = new Map<string, StubPromise>(); // by liveName, or "create " and of what; the last used is last
  readonly #got = new Map<string, unknown>(); // what those have come to
  #bad: MooringError | undefined; // why this server is of no use
  #setFeatures!: (features: ReadonlySet<string>) => void;
  /** What the server understands that the first version did not: Cap'n Web refuses what a server does not know. */
  readonly features = new Promise<ReadonlySet<string>>((resolve) => { this.#setFeatures = resolve; });

  /** at: HOST:PORT as it was dialled. */
  constructor(transport: Transport, at: string, { agent, quiet, sealKey }: ServerOptions, limits: (l: Partial<Limits>) => void) {
    this.#transport = transport;
    this.#at = at;
    this.#sealKey = sealKey;
    this.#main = new RpcSession(transport, undefined, {
      onSendError: () => new Error("the client could not take this"), // what is wrong here is nobody's affair there
      limits: { maxMessageSize: 128 << 20 },
    }).getRemoteMain() as unknown as Stub;
    let watch: ReturnType<typeof setInterval> | undefined;
    this.ended = transport.ended.then((why) => {
      this.over = true;
      clearInterval(watch);
      this.#setFeatures(new Set()); // if it has not said
      why = this.#bad ?? why;
      for (const f of this.onEnd) f(why);
      return why;
    });
    void this.#hello(agent, limits);
    // A link that is dead without saying so is found out by asking.
    let asked = 0;
    watch = setInterval(() => {
      const silent = Date.now() - transport.heard;
      if (silent < quiet) asked = 0;
      else if (asked > 0 && Date.now() - asked >= quiet) transport.close(fault("disconnected", "the server has not answered for long"));
      else if (asked === 0) {
        asked = Date.now();
        void this.#hello(agent, limits);
      }
    }, Math.max(quiet / 4, 10));
    (watch as { unref?: () => void }).unref?.();
  }

  async #hello(agent: string, limits: (l: Partial<Limits>) => void): Promise<void> {
    try {
      const answer = (await this.#main["hello"]!({ version: protocolVersion, agent })) as { version: number; limits?: Struct; features?: string[] };
      if (!(answer.version >= 1 && answer.version <= protocolVersion)) {
        throw fault("incompatible", `the server speaks version ${answer.version} of the protocol and this client ${protocolVersion}: update the older one`);
      }
      const l: Partial<Limits> = {};
      for (const name of ["batchOps", "batchBytes", "payloadBytes"] as const) {
        const n = Number(answer.limits?.[name] ?? 0);
        if (n > 0) l[name] = n;
      }
      limits(l);
      this.#setFeatures(new Set(answer.features ?? []));
      dispose(answer);
    } catch (err) {
      const f = faultOf(err);
      if (f.codeName !== "incompatible") return;
      this.#bad = f;
      this.#transport.close(f);
    }
  }

  close(): void {
    this.#transport.close();
  }

  /** What a call's error means. */
  fail(err: unknown): MooringError {
    return this.#bad ?? faultOf(err);
  }

  /** The live capability of a ref, for as long as the connection lasts; the same one, so that calls keep their order. */
  restore(held: Held): StubPromise {
    const { ref, redemption } = held, wire = { id: ref.id, secret: ref.secretText };
    const name = liveName(ref);
    if (!isSealed(ref.id)) return this.#reuse(name, () => this.#main["restore"]!(wire, redemption));
    const key = this.#sealKey;
    if (key === undefined) {
      throw fault("sealed", "the ref is bound to a key, and there is none here: redeem it where its key is, or give its sharer the public key of this place (newSealKey) and ask for a new ref");
    }
    // What is called on it meanwhile waits; nothing else does.
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
        // What could not be got is asked for anew by the next use.
        if (this.#live.get(key) === fresh) this.#live.delete(key);
      });
    }
    this.#live.set(key, live);
    return live;
  }

  /** Lets go of the capabilities that nobody has used for longest: a server holds only so many for a connection. */
  #letGo(): void {
    for (const [key, live] of this.#live) {
      if (this.#live.size <= maxIdle) return;
      if (!this.#got.has(key)) continue; // it is on its way
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
      : this.restore(req.through!);
    const stub = target["openStream"]!(req.outbox, req.secret, req.incarnation);
    // What is proof of an authority beside a batch must be settled when the batch arrives: its outcome is recorded. What
    // is passed is the stub and not its promise, whose id is no longer good once it is fulfilled. One that could not be
    // got is left out; the server says that it is missing.
    const held = await Promise.allSettled(req.with.map((h) => this.restore(h)));
    // They are the stream's own, which lives longer than they may be kept for reuse.
    return new PeerStream(this, stub, held.flatMap((h) => (h.status === "fulfilled" ? [(h.value as { dup(): unknown }).dup()] : [])));
  }
}

/** A batch with its ops' hints beside them. */
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
  #features: Promise<ReadonlySet<string>> | undefined; // waited for since a batch had hints, by all, so that they keep their order
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
      const bare = withoutHints(batch);
      if (bare !== batch) this.#features ??= this.#peer.features;
      if (this.#features && !(await this.#features).has("hints")) batch = { ...bare, hints: [] };
      else batch = bare;
      const { hints, ...plain } = batch, sent = hints === undefined || hints.length === 0 ? plain : batch;
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
