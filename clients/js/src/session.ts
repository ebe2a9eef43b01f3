// Reading a session: its state, its log, and subscriptions that resume by cursor.

import { newBackoff } from "./backoff.js";
import { sleep, type Client, type Waiting } from "./client.js";
import { codeNameOf, fault, faultOf, MooringError, refusalOf, type CodeName } from "./fault.js";
import type { Held } from "./link.js";
import type { ChildRight, Right } from "./batch.js";
import { checkKeys, features } from "./methods.js";
import type { Ref } from "./ref.js";
import type { Peer } from "./server.js";
import { dispose, type Struct, type StubPromise } from "./wire.js";

/** An event of a session's log; hidden ones are marks that only advance the cursor. */
export interface SessionEvent {
  readonly cursor: number;
  readonly method: string;
  readonly key: string;
  readonly schema: number;
  /** JSON text, "" if it was purged. */
  readonly payload: string;
  readonly ref: string;
  readonly actor: string;
  readonly op: string;
  readonly batch: string;
  readonly at: number;
  readonly outbox: string;
  readonly hash: Uint8Array;
  readonly purged: boolean;
  readonly hidden: boolean;
}

/** A page of a session's log. */
export interface Events {
  events: SessionEvent[];
  /** The session's cursor: the log may continue after events. */
  cursor: number;
}

/** An entry of a session's state. payload is JSON text. */
export interface Entry {
  readonly key: string;
  readonly cursor: number;
  readonly schema: number;
  readonly payload: string;
  /** Its position in the session's order: by the first number, the second, then the key. Both are 0 from a server without positions. */
  readonly ord: readonly [number, number];
}

/** A turn of a session. */
export interface Turn {
  readonly message: string;
  /** streaming, interrupted, completed, failed, aborted. */
  readonly status: string;
  readonly begun: number;
  readonly ended: number;
  readonly outbox: string;
  /** The id of the ref under which it was begun; empty if no row has it, or from an older server. */
  readonly ref: string;
}

/** A session's folded state. */
export interface State {
  cursor: number;
  /** The hash of the event there, to follow the state; empty from older servers. */
  hash: Uint8Array;
  /**
   * In the session's order, as iterated: by first put or, for a session that is ordered by time
   * (SessionInfo.order), by creation.
   */
  entries: Map<string, Entry>;
  turns: Turn[];
  /** Who works on which key, by key; some may be of keys whose value the ref does not show. */
  claims: Map<string, Claim>;
  /** What a revert has hidden, if fold has seen the revert; it is in none of the above. */
  hidden?: Hidden | undefined;
  /** Of the compacted view (snapshot with compacted): what it is a view of. */
  view?: View | undefined;
  /**
   * Set by fold: what a revert hid is shown again, or moved, or what the compacted view left out is shown again, and the state does not have
   * it, since it was read in between or its ref does not show all of the session. Read the state again.
   */
  stale?: boolean | undefined;
}

/** A compacted view. */
export interface View {
  /** Up to where the session is compacted; undefined if it is not, while a revert hides that, and for a ref that does not show all of it. */
  compacted: Pick<Compacted, "upto" | "ord" | "summary" | "place"> | undefined;
  /** The ids of the messages that are left out: fold leaves out what comes of them. */
  leftOut: Set<string>;
}

/** What a revert has hidden of a state. */
export interface Hidden {
  /** message/ID or part/MESSAGE/ID: this and what comes after it. */
  readonly to: string;
  /** The place of the message, and of the part. */
  readonly ord: Entry["ord"];
  readonly part: Entry["ord"] | undefined;
  readonly entries: Map<string, Entry>;
  turns: Turn[];
}

/** Who works on a key (Batch.claim): while it is in force, no other outbox changes it. */
export interface Claim {
  /** Of the event that made it: what its owner's ops name (withClaim). */
  readonly cursor: number;
  /** When its lease is over, by the server's clock, Unix milliseconds. */
  readonly until: number;
  /** The outbox that owns it, and the worker of that, as it named itself. */
  readonly outbox: string;
  readonly worker: string;
  /** The id of the ref that it was last claimed under, and who claimed it, as that ref says. */
  readonly ref: string;
  readonly actor: string;
}

/** A session in lists and in info. */
export interface SessionInfo {
  readonly id: string;
  readonly external: string;
  readonly cursor: number;
  readonly created: number;
  readonly updated: number;
  readonly title: string;
  readonly epoch: number;
  readonly base: number;
  readonly deleted: boolean;
  /** "time": the session is ordered by creation times; "" by its log. */
  readonly order: string;
  /** What it was forked from; undefined if it was not, and for a ref that does not show all of the session. */
  readonly origin: Origin | undefined;
  /** The session whose child it is; undefined as origin. */
  readonly parent: Parent | undefined;
  /** What it is reverted to; undefined if it is not. */
  readonly reverted: Reverted | undefined;
  /** Up to where it is compacted; undefined if it is not, while a revert hides that, and for a ref that does not show all of the session. */
  readonly compacted: Compacted | undefined;
}

/** Up to where a session is compacted: the compacted view has the summary in place of this message and those before it. */
export interface Compacted {
  /** message/ID. */
  readonly upto: string;
  readonly summary: string;
  /** The places of upto and the summary in the session's order, as of entries. */
  readonly ord: Entry["ord"];
  readonly place: Entry["ord"];
  /** Of the event. */
  readonly cursor: number;
  /** Who did it. */
  readonly actor: string;
  /** When, Unix ms. */
  readonly at: number;
}

/** The session under which a child was created. */
export interface Parent {
  readonly session: string;
  /** The key of the parent's message or part that started it; empty if none is named. */
  readonly key: string;
}

/** A child of a session. */
export interface Child {
  readonly id: string;
  /** The key of the session's message or part that started it; empty if none is named. */
  readonly key: string;
  readonly created: number;
}

/** What a session is reverted to: this and what comes after it is hidden. A ref that does not show all of the session is told the cursor alone. */
export interface Reverted {
  /** message/ID or part/MESSAGE/ID. */
  readonly to: string;
  /** Of the event. */
  readonly cursor: number;
  /** Who did it. */
  readonly actor: string;
  /** When, Unix ms. */
  readonly at: number;
}

/** What a fork began as a copy of. */
export interface Origin {
  readonly session: string;
  /** Of that session, as of which it was copied. */
  readonly cursor: number;
  /** The id of the last message, in the session's order, that was copied; empty: all. */
  readonly message: string;
}

/** What a ref allows. */
export interface Grant {
  readonly id: string;
  readonly target: string;
  readonly owner: boolean;
  readonly epoch: number;
  readonly rights: readonly Right[];
  readonly methods: readonly string[];
  readonly expires: number;
  readonly from: number;
  readonly limit: number;
  readonly used: number;
  readonly label: string;
  readonly actor: string;
  /** The code with which it is refused; "none" if it is alive. */
  readonly dead: CodeName;
  readonly cut: number;
  readonly message: string;
  /** The keys that it shows and writes, and all below those that end in "/"; empty: all. */
  readonly readKeys: readonly string[];
  readonly writeKeys: readonly string[];
  /** The kinds of requests that it asks, and that it claims and answers; empty: all. */
  readonly ask: readonly string[];
  readonly answer: readonly string[];
  /** The rights in the session's children; empty: it does not reach them. */
  readonly children: readonly ChildRight[];
}

/** A ref of a tree. */
export interface RefInfo {
  readonly grant: Grant;
  /** The id of the ref it was made from. */
  readonly parent: string;
  readonly created: number;
  /** 0: never. */
  readonly lastUsed: number;
  /** The number of calls and ops under it. */
  readonly uses: number;
  /** Revocation time; 0 if it was not revoked. */
  readonly revoked: number;
  /** The ref under which it was revoked, or that replaced it. */
  readonly revokedBy: string;
}

/** A description for a ref's holder. */
export interface Description {
  /** undefined for a space. */
  session: SessionInfo | undefined;
  grant: Grant;
  /** The server's clock; 0 from older servers. */
  now: number;
}

/** How much of a session a ref shows. */
export interface Stat {
  /** The cursor of the session's last event. */
  cursor: number;
  /** The number of events that the ref shows, without cursor marks. */
  events: number;
  /** When the first and the last of them were committed, Unix milliseconds; 0 if there is none. */
  first: number;
  last: number;
  /** The keys that the ref shows, with the approximate size of their values. */
  kinds: { kind: string; keys: number; bytes: number }[];
}

/** The cut of an authority. */
export interface Cut {
  /** Nothing under that authority commits after it. */
  cursor: number;
  /** The session's epoch afterwards. */
  epoch: number;
  /** If a ref that reaches children has ended: the cuts in these, by id, the first 1,000 of childCount. */
  children: { session: string; cursor: number }[];
  childCount: number;
}

export const num = (v: unknown): number => Number(v ?? 0);
export const str = (v: unknown): string => (typeof v === "string" ? v : "");

export function readInfo(answer: Struct): Description {
  // A space's info is the grant itself.
  const grant = ((answer["grant"] ?? answer["info"] ?? answer) ?? {}) as Struct;
  const session = answer["grant"] === undefined ? undefined : readSessionInfo(answer["info"] as Struct);
  const out: Description = { session, now: num(answer["now"]), grant: readGrant(grant) };
  dispose(answer);
  return out;
}

export function readStat(stat: Struct): Stat {
  const out = {
    cursor: num(stat["cursor"]), events: num(stat["events"]), first: num(stat["first"]), last: num(stat["last"]),
    kinds: ((stat["kinds"] ?? []) as Struct[]).map((k) => ({ kind: str(k["kind"]), keys: num(k["keys"]), bytes: num(k["bytes"]) })),
  };
  dispose(stat);
  return out;
}

function readGrant(grant: Struct): Grant {
  return {
    id: str(grant["id"]), target: str(grant["target"]), owner: grant["owner"] === true, epoch: num(grant["epoch"]),
    rights: (grant["rights"] ?? []) as Right[], methods: (grant["methods"] ?? []) as string[], expires: num(grant["expires"]),
    from: num(grant["from"]), limit: num(grant["limit"]), used: num(grant["used"]), label: str(grant["label"]), actor: str(grant["actor"]),
    dead: codeNameOf(grant["dead"]), cut: num(grant["cut"]), message: str(grant["message"]),
    readKeys: (grant["readKeys"] ?? []) as string[], writeKeys: (grant["writeKeys"] ?? []) as string[],
    ask: (grant["ask"] ?? []) as string[], answer: (grant["answer"] ?? []) as string[],
    children: (grant["children"] ?? []) as ChildRight[],
  };
}

function readRefInfo(r: Struct): RefInfo {
  return {
    grant: readGrant((r["grant"] ?? {}) as Struct), parent: str(r["parent"]), created: num(r["created"]), lastUsed: num(r["lastUsed"]),
    uses: num(r["uses"]), revoked: num(r["revoked"]), revokedBy: str(r["revokedBy"]),
  };
}

/** Options of listing a tree of refs. */
export interface RefsOptions extends Waiting {
  /** The root of the tree; by default the ref through which it is listed. */
  under?: Ref | string;
}

/** A tree of refs, a page at a time. */
export async function* readRefs(client: Client, held: Held, { under = "", ...waiting }: RefsOptions): AsyncGenerator<RefInfo, void, void> {
  for (let after = "", more = true; more; ) {
    const query = { under: typeof under === "string" ? under : under.id, after, limit: 500 };
    const page = await client.call(held, async (live) => {
      const answer = (await live["refs"]!(query)) as Struct;
      const refs = ((answer["refs"] ?? []) as Struct[]).map(readRefInfo);
      // Older servers continue after an id.
      const read = { refs, next: str(answer["next"]) || (refs.at(-1)?.grant.id ?? ""), more: answer["more"] === true };
      dispose(answer);
      return read;
    }, waiting);
    yield* page.refs;
    after = page.next;
    more = page.more && after !== "";
  }
}

const readReverted = (r: Struct | null | undefined): Reverted | undefined =>
  r ? { to: str(r["to"]), cursor: num(r["cursor"]), actor: str(r["actor"]), at: num(r["at"]) } : undefined;

const readCompacted = (c: Struct | null | undefined): Compacted | undefined =>
  c ? {
    upto: str(c["upto"]), summary: str(c["summary"]), ord: [num(c["ord"]), num(c["ordIndex"])], place: [num(c["place"]), num(c["placeIndex"])],
    cursor: num(c["cursor"]), actor: str(c["actor"]), at: num(c["at"]),
  } : undefined;

const readOrigin = (o: Struct | null | undefined): Origin | undefined =>
  o ? { session: str(o["session"]), cursor: num(o["cursor"]), message: str(o["message"]) } : undefined;

const readParent = (p: Struct | null | undefined): Parent | undefined => (p ? { session: str(p["session"]), key: str(p["key"]) } : undefined);

/** All children of a session, a page at a time. */
export async function* readChildren(call: (ask: (live: StubPromise) => Promise<{ page: Child[]; next: string }>) => Promise<{ page: Child[]; next: string }>): AsyncGenerator<Child, void, void> {
  for (let after = "", more = true; more; more = after !== "") {
    const { page, next } = await call(async (live) => {
      const answer = (await live["children"]!(after, 200)) as Struct;
      const page = ((answer["sessions"] ?? []) as Struct[]).map((s) => ({
        id: str(s["id"]), key: readParent(s["parent"] as Struct | null | undefined)?.key ?? "", created: num(s["created"]),
      }));
      const read = { page, next: str(answer["next"]) };
      dispose(answer);
      return read;
    });
    yield* page;
    after = next;
  }
}

function readSessionInfo(s: Struct): SessionInfo {
  return {
    id: str(s["id"]), external: str(s["external"]), cursor: num(s["cursor"]), created: num(s["created"]), updated: num(s["updated"]),
    title: str(s["title"]), epoch: num(s["epoch"]), base: num(s["base"]), deleted: s["deleted"] === true,
    order: str(s["order"]), origin: readOrigin(s["origin"] as Struct | null | undefined), parent: readParent(s["parent"] as Struct | null | undefined),
    reverted: readReverted(s["reverted"] as Struct | null | undefined),
    compacted: readCompacted(s["compacted"] as Struct | null | undefined),
  };
}

export function readEvent(e: Struct): SessionEvent {
  return {
    cursor: num(e["cursor"]), method: str(e["method"]), key: str(e["key"]), schema: num(e["schema"]), payload: str(e["payload"]),
    ref: str(e["ref"]), actor: str(e["actor"]), op: str(e["op"]), batch: str(e["batch"]), at: num(e["at"]), outbox: str(e["outbox"]),
    hash: e["hash"] instanceof Uint8Array ? e["hash"] : new Uint8Array(), purged: e["purged"] === true, hidden: e["hidden"] === true,
  };
}

export function readEvents(answer: Struct): Events {
  const page = { events: ((answer["events"] ?? []) as Struct[]).map(readEvent), cursor: num(answer["cursor"]) };
  dispose(answer);
  return page;
}

/**
 * The parameters that every read has: the hash of the event that one has, which keys are wanted, and what this client understands, without
 * which a server refuses sessions that it would misread. Those that an older server does not know are left out.
 */
export async function readParams(peer: Peer, hash: Uint8Array | undefined, keys: readonly string[] | undefined): Promise<Struct> {
  if (keys !== undefined) checkKeys("keys", keys);
  return {
    ...(hash && hash.length > 0 && (await peer.has("resume")) && { hash }),
    ...((await peer.has("understands")) && { understands: features }),
    ...(keys && { keys }),
  };
}

/** Reads the claim of an entry; undefined if it has none. */
export function readClaim(entry: Struct): Claim | undefined {
  const c = entry["claim"] as Struct | null | undefined;
  if (!c || num(c["cursor"]) === 0) return undefined;
  return { cursor: num(c["cursor"]), until: num(c["until"]), outbox: str(c["outbox"]), worker: str(c["worker"]), ref: str(c["ref"]), actor: str(c["actor"]) };
}

/** Which state is read, and what of it. */
export interface SnapshotOptions extends Waiting {
  /** A cursor; by default it is the present state. */
  at?: number;
  /** The hash of the event there (SessionEvent.hash, State.hash): server_behind if the log has another one. */
  hash?: Uint8Array;
  /** The only keys that are wanted, as in SubscribeOptions. */
  keys?: readonly string[];
  /**
   * The compacted view: of a session that is compacted (Batch.compact), the summary and the messages after the mark, with their parts and
   * turns, and all other keys. It is the whole state if the session is not compacted, and for a ref that does not show all of it.
   */
  compacted?: boolean;
}

/** Requests the state in pieces, so that it may exceed a message. */
export async function readSnapshot(live: StubPromise, peer: Peer, { at = 0, hash, keys, compacted = false }: SnapshotOptions = {}): Promise<State> {
  const entries: Entry[] = [];
  const state: State = { cursor: 0, hash: new Uint8Array(), entries: new Map(), turns: [], claims: new Map() };
  if (compacted) state.view = { compacted: undefined, leftOut: new Set() };
  const sink = (piece: Struct): void => {
    const s = (piece["state"] ?? {}) as Struct;
    if (s["hash"] instanceof Uint8Array) state.hash = s["hash"]; // the last piece's
    for (const e of (s["entries"] ?? []) as Struct[]) {
      const ord = [num(e["ord"]), num(e["ordIndex"])] as const;
      entries.push({ key: str(e["key"]), cursor: num(e["cursor"]), schema: num(e["schema"]), payload: str(e["payload"]), ord });
      const claim = readClaim(e);
      if (claim) state.claims.set(str(e["key"]), claim);
    }
    if (state.view) {
      state.view.compacted = readCompacted(s["compacted"] as Struct | null | undefined);
      for (const message of (s["leftOut"] ?? []) as string[]) state.view.leftOut.add(message);
    }
    for (const t of (s["turns"] ?? []) as Struct[]) {
      state.turns.push({ message: str(t["message"]), status: str(t["status"]), begun: num(t["begun"]), ended: num(t["ended"]), outbox: str(t["outbox"]), ref: str(t["ref"]) });
    }
  };
  const answer = (await live["snapshot"]!({
    at, sink, ...(await readParams(peer, hash, keys)), ...(compacted && (await peer.has("compact")) && { compacted }),
  })) as Struct | number;
  state.cursor = typeof answer === "number" ? answer : num(answer["cursor"]);
  dispose(answer);
  for (const e of entries.sort(compareEntries)) state.entries.set(e.key, e);
  return state;
}

/** Compares entries by the session's order: negative if a is before b. By key if the server has no positions. */
export function compareEntries(a: Entry, b: Entry): number {
  return a.ord[0] - b.ord[0] || a.ord[1] - b.ord[1] || (a.key < b.key ? -1 : Number(a.key > b.key));
}

/** Where and how a subscription starts. */
export interface SubscribeOptions {
  /** The last cursor that the subscriber has; by default from the start. To follow a state, its cursor. */
  after?: number;
  /**
   * The hash of the event there (SessionEvent.hash, State.hash), which detects that a server restored from a
   * backup has other events after it. Hashes of handled events are always compared.
   */
  hash?: Uint8Array;
  /**
   * Called with the session's present state instead of ending with server_behind or cursor_expired. The state replaces
   * everything handled before, and the next events come after it. An error it throws ends the subscription.
   */
  startOver?: (state: State) => void | Promise<void>;
  /**
   * Only these keys, and all below those that end in "/": marks stand for events about others, and startOver is called with
   * the state of these.
   */
  keys?: readonly string[];
  /** startOver is called with the compacted view (SnapshotOptions); events are sent as they are. */
  compacted?: boolean;
  /** How much the server sends ahead of the handler; by default the server's setting. */
  windowBytes?: number;
  /** Called each time the link is lost or cannot be established. */
  trouble?: (err: MooringError) => void;
  /** Ends the subscription. */
  signal?: AbortSignal;
}

type Handle = (event: SessionEvent) => void | Promise<void>;

/** One subscriber over all its connections: Session.subscribe. */
export async function subscribe(client: Client, held: Held, options: SubscribeOptions, handle: Handle): Promise<void> {
  if (options.keys !== undefined) checkKeys("keys", options.keys);
  const sub = new Subscription(client, held, options, handle);
  const wait = newBackoff({ initial: 100, max: 5000, factor: 1.5, jitter: 0.5 });
  for (;;) {
    const before = sub.cursor;
    let err: MooringError | undefined;
    try {
      err = await sub.once();
    } catch (e) {
      if (sub.failed) throw e;
      err = faultOf(e);
    }
    if (options.signal?.aborted) return;
    if (client.life.aborted) throw fault("canceled", "the client was closed");
    if (options.startOver && (err.codeName === "server_behind" || err.codeName === "cursor_expired")) {
      options.trouble?.(err);
      try {
        await sub.startOver(options.startOver);
        err = undefined;
      } catch (e) {
        if (sub.failed) throw e;
        err = faultOf(e);
      }
    }
    if (err && !err.transient && err.codeName !== "slow_consumer") throw err;
    if (err) options.trouble?.(err);
    if (sub.cursor > before) wait.reset();
    await sleep(wait.next(), client.outbox, options.signal);
    if (options.signal?.aborted) return;
  }
}

class Subscription {
  cursor: number; // of the last event handled
  #hash: Uint8Array | undefined; // its hash
  failed = false; // handle threw
  #seen = false; // an event was handled
  readonly #client: Client;
  readonly #held: Held;
  readonly #options: SubscribeOptions;
  readonly #handle: Handle;

  constructor(client: Client, held: Held, options: SubscribeOptions, handle: Handle) {
    this.#client = client;
    this.#held = held;
    this.#options = options;
    this.#handle = handle;
    this.cursor = options.after ?? 0;
    this.#hash = options.hash;
  }

  /** Continues from the present state. */
  async startOver(handle: (state: State) => void | Promise<void>): Promise<void> {
    const { signal, keys, compacted = false } = this.#options;
    const state = await this.#client.call(this.#held, (live, peer) => readSnapshot(live, peer, { ...(keys && { keys }), compacted }), signal && { signal });
    try {
      await handle(state);
    } catch (err) {
      this.failed = true;
      throw err;
    }
    this.cursor = state.cursor;
    this.#hash = state.hash;
    this.#seen = false;
  }

  /** Subscribes over one connection, until it ends, and returns why. */
  async once(): Promise<MooringError> {
    const peer = await this.#client.serverFor(this.#held.ref).peer();
    let over = false, turn: Promise<void> = Promise.resolve();
    let end!: (err: MooringError) => void, crash!: (err: unknown) => void;
    const ended = new Promise<MooringError>((resolve, reject) => { end = resolve; crash = reject; });
    const receive = (piece: Struct): Promise<void> => {
      // One after the other: events that arrive while the handler runs wait, and their bytes are not returned to the window.
      turn = turn.then(async () => {
        if (over) return;
        if (piece["ended"]) {
          end(refusalOf(piece["ended"]) ?? fault("disconnected", "the server ended the subscription"));
          return;
        }
        try {
          for (const e of (piece["events"] ?? []) as Struct[]) {
            if (over) return;
            await this.#take(readEvent(e));
          }
        } catch (err) {
          if (err instanceof Skipped) end(fault("disconnected", err.message));
          else {
            this.failed = true;
            crash(err);
          }
        }
      });
      return turn;
    };
    const { signal, keys } = this.#options, stop = (): void => end(fault("canceled", "the subscription was given up"));
    const live = peer.restore(this.#held), params = await readParams(peer, this.#hash, keys);
    signal?.addEventListener("abort", stop);
    const sub = live["subscribe"]!({ from: this.cursor, ...params, snapshot: false, windowBytes: this.#options.windowBytes ?? 0 }, receive);
    sub.then(() => {}, (err: unknown) => end(peer.fail(err)));
    peer.onEnd.add(end);
    try {
      if (peer.over) end(fault("disconnected", "the link broke"));
      if (signal?.aborted) stop();
      return await ended;
    } finally {
      over = true;
      peer.onEnd.delete(end);
      signal?.removeEventListener("abort", stop);
      if (!peer.over) {
        const done = sub["cancel"]!();
        done.then(dispose, () => {});
      }
      dispose(sub);
      // Waits for a running handler, so that the next connection does not run concurrently.
      await turn;
    }
  }

  /** Passes an event to the handler, once and in order. */
  async #take(e: SessionEvent): Promise<void> {
    if (e.cursor <= this.cursor) return; // received over an earlier connection
    // A ref with a first cursor starts there; after that there are no gaps. A mark stands for all
    // hidden events up to its cursor.
    if (this.#seen && e.cursor !== this.cursor + 1 && !e.hidden) {
      throw new Skipped(`the server left out events ${this.cursor + 1} to ${e.cursor - 1}`);
    }
    await this.#handle(e);
    this.cursor = e.cursor;
    this.#hash = e.hash;
    this.#seen = true;
  }
}

class Skipped extends Error {}

/** A subscription as an iterator: Session.follow. */
export async function* follow(
  subscribe: (o: SubscribeOptions, handle: Handle) => Promise<void>, options: SubscribeOptions,
): AsyncGenerator<SessionEvent, void, void> {
  const stop = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, stop.signal]) : stop.signal;
  let offered: { event: SessionEvent; taken: () => void } | undefined;
  let wake: () => void = () => {};
  let end: { err?: unknown } | undefined;
  let letGo: () => void = () => {}; // acknowledges the event being handled
  signal.addEventListener("abort", () => letGo());
  const all = subscribe({ ...options, signal }, (event) => new Promise<void>((taken) => {
    letGo = taken;
    if (signal.aborted) return taken();
    offered = { event, taken };
    wake();
  }));
  all.then(() => { end = {}; wake(); }, (err: unknown) => { end = { err }; wake(); });
  try {
    for (;;) {
      if (offered) {
        const { event, taken } = offered;
        offered = undefined;
        yield event;
        taken(); // the request for the next event acknowledges this one
      } else if (end) {
        if ("err" in end) throw end.err;
        return;
      } else await new Promise<void>((r) => { wake = r; });
    }
  } finally {
    stop.abort();
    await all.catch(() => {});
  }
}
