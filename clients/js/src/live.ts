// Live capabilities: narrower ones than a ref's, without a ref of their own. They end with the connection that they came over,
// and with the ref that they were made from.

import { type AttenuateOptions, endOf, type ShareOptions } from "./batch.js";
import { type Client, unless, type Waiting } from "./client.js";
import { fault, MooringError } from "./fault.js";
import type { Held } from "./link.js";
import { checkLimits } from "./methods.js";
import type { Ref } from "./ref.js";
import { type Description, type Events, readEvents, readInfo, readParams, readSnapshot, type SnapshotOptions, type State } from "./session.js";
import type { Peer } from "./server.js";
import { dispose, type Struct, type StubPromise } from "./wire.js";

/** A capability on a connection. */
interface Cap {
  readonly stub: StubPromise;
  readonly peer: Peer;
  readonly from: Ref; // which it was made from
}

/** The wire's form of limits. The server gets a lifetime if it knows lifetimes, and else the end by this machine's clock. */
async function limitsOf(options: AttenuateOptions, peer: Peer): Promise<Struct> {
  const { rights, children, methods, lifetime, from = 0, message = "", label = "", actor = "", readKeys, writeKeys, ask, answer } = options, expires = endOf(options) ?? 0;
  const known = lifetime !== undefined && (await peer.has("lifetime"));
  return {
    expires, from, message, label, actor, ...(rights && { rights }), ...(children && { children }),
    ...(methods && { methods }), ...(readKeys && { readKeys }), ...(writeKeys && { writeKeys }), ...(ask && { ask }), ...(answer && { answer }), ...(known && { lifetime }),
  };
}

/** Refuses limits that could never be right, or would be read as none. */
function check(options: AttenuateOptions): void {
  const { rights, children, methods, from, message, label, actor, readKeys, writeKeys, ask, answer } = options, ends = endOf(options);
  checkLimits({ rights, children, methods, from, message, label, actor, read_keys: readKeys, write_keys: writeKeys, ask, answer, expires_at: ends });
}

/** Mints a ref whose secret this client has made. */
export async function mint(live: StubPromise, peer: Peer, ref: Ref, options: ShareOptions): Promise<void> {
  const { redemptions = 0, seal = "" } = options;
  dispose(await live["share"]!({ id: ref.id, hash: ref.hashText, limits: await limitsOf(options, peer), redemptions, seal }));
}

/** Session.attenuate and Space.attenuate. */
export async function attenuate<T>(client: Client, held: Held, options: AttenuateOptions, waiting: Waiting | undefined, made: (cap: Cap) => T): Promise<T> {
  check(options);
  return client.call(held, async (live, peer) => made(await narrower({ stub: live, peer, from: held.ref }, options, waiting)), waiting);
}

async function narrower({ stub, peer, from }: Cap, options: AttenuateOptions, waiting: Waiting | undefined): Promise<Cap> {
  const made = (await stub["attenuate"]!(await limitsOf(options, peer))) as StubPromise;
  if (waiting?.signal?.aborted) dispose(made); // nobody gets it
  return { stub: made, peer, from };
}

/**
 * A live capability. Its methods are tried once, over the connection that it is bound to: disconnected when that has ended.
 * Release it when it is no longer needed.
 */
export class Live {
  readonly #cap: Cap;

  constructor(cap: Cap) {
    this.#cap = cap;
  }

  /** The Cap'n Web stub, to be passed in a call of a Cap'n Web session, this server's or another one's. */
  get stub(): unknown {
    return this.#cap.stub;
  }

  /** Releases the capability: further calls fail. */
  release(): void {
    dispose(this.#cap.stub);
  }

  [Symbol.dispose](): void {
    this.release();
  }

  protected async ask<T>(f: (cap: Cap) => Promise<T>, waiting: Waiting = {}): Promise<T> {
    const { peer } = this.#cap;
    if (peer.over) throw fault("disconnected", "the link that this capability was bound to has ended: attenuate again");
    try {
      return await unless(waiting.signal, f(this.#cap));
    } catch (err) {
      throw err instanceof MooringError ? err : peer.fail(err);
    }
  }

  /** What the capability is for, and what it allows. */
  describe(waiting?: Waiting): Promise<Description> {
    return this.ask(async ({ stub }) => readInfo(await stub["info"]!()), waiting);
  }

  /** A still narrower capability. widening if it would allow more. */
  async attenuate(options: AttenuateOptions, waiting?: Waiting): Promise<this> {
    check(options);
    return this.ask(async (cap) => new (this.constructor as new (cap: Cap) => this)(await narrower(cap, options, waiting)), waiting);
  }

  /**
   * Mints a durable ref that allows at most what the capability does, and dies with the ref that the capability was made from. It
   * needs the right to share. The ref works when the promise is fulfilled; if the answer is lost, it may have been made.
   */
  async share(options: ShareOptions, waiting?: Waiting): Promise<Ref> {
    const { from } = this.#cap, ref = from.for(from.target, Boolean(options.seal));
    await this.ask(({ stub, peer }) => mint(stub, peer, ref, options), waiting);
    return ref;
  }
}

/** A live capability of a session. */
export class LiveSession extends Live {
  /** Up to limit events after a cursor, as Session.events. */
  events(after = 0, limit = 0, options: Waiting & { hash?: Uint8Array; keys?: readonly string[] } = {}): Promise<Events> {
    return this.ask(async ({ stub, peer }) => {
      return readEvents(await stub["events"]!({ from: after, limit, ...(await readParams(peer, options.hash, options.keys)) }));
    }, options);
  }

  /** The folded state, as Session.snapshot. */
  snapshot(options: SnapshotOptions = {}): Promise<State> {
    return this.ask(({ stub, peer }) => readSnapshot(stub, peer, options), options);
  }
}
