// A client: an open outbox with its connections, and the spaces and sessions of sturdy refs. Getting one asks no
// server; its ref is stored in the outbox, because a later process may have to send what is committed under it.

import { abortTurns, type AbortedTurns, type AbortOptions } from "./aborting.js";
import { type AuditOptions, type AuditRow, type AuditVerification, readAudit, verifyAudit } from "./audit.js";
import { newBackoff } from "./backoff.js";
import { type AskOptions, type AttenuateOptions, Batch, type BatchHome, type OwnerRef, type ShareOptions, Ticket, type Value } from "./batch.js";
import { fault, faultOf, MooringError } from "./fault.js";
import { defaultLimits, type Limits } from "./intent.js";
import { type EntryInfo, type EntryPage, type KeyOptions, type KeyPageOptions, readAllKeys, readKeyPage, readKeys } from "./keys.js";
import { reached, type Held, type Link, type LinkStream, type StreamRequest } from "./link.js";
import { attenuate, Live, LiveSession, mint } from "./live.js";
import { type OldPage, type OlderOptions, removeOlder } from "./older.js";
import { Outbox } from "./outbox.js";
import type { OutboxOptions, OutboxStatus } from "./outbox_types.js";
import { isSession, isSpace, Ref } from "./ref.js";
import type { Role } from "./rows.js";
import type { ReconcileOptions, Reconciliation } from "./reconcile.js";
import { reconcile } from "./reconciling.js";
import { followRequests, listRequests, openRequests, type Request, type RequestOptions, RequestTicket } from "./requests.js";
import { resumeRotation, rotate, type Rotated } from "./rotate.js";
import { type Found, type FoundPage, readAllFound, readFoundPage, type SearchPageOptions } from "./search.js";
import { type Peer, Server } from "./server.js";
import { type Child, type Cut, type Description, type Events, follow, num, type Origin, readChildren, readEvents, readInfo, readParams, readRefs, readSnapshot, readStat, type RefInfo, type RefsOptions, type SessionEvent, type SessionInfo, type SnapshotOptions, type Stat, type State, str, subscribe, type SubscribeOptions } from "./session.js";
import type { Store } from "./store.js";
import type { WebSocketConstructor } from "./transport.js";
import { newULID } from "./ulid.js";
import { type Verification, type VerifyOptions, verifySession } from "./verify.js";
import { Why } from "./waiting.js";
import { dispose, type Struct, type StubPromise } from "./wire.js";

/** A client's settings; all are optional except those that the storage needs. */
export interface ClientOptions {
  /** Settings of the outbox. */
  outbox?: OutboxOptions;
  /** Starts no sender: ops become durable, and another client sends them. */
  offline?: boolean;
  /** Allows sending secrets in clear to other machines. */
  allowPlaintext?: boolean;
  /** The private key of sealed refs, without which they are refused (newSealKey). */
  sealKey?: CryptoKey;
  /**
   * Makes WebSockets; default that of the package ws in Node, else globalThis.WebSocket. Node's own has no terminate, so a
   * server that falls silent keeps the process of a closed client running.
   */
  WebSocket?: unknown;
  /** How long, in milliseconds, reads and direct calls are retried over links that break; default 10,000. */
  patience?: number;
  /** Names this program to servers' logs. */
  agent?: string;
  /** Bounds the wait, in milliseconds, between attempts to connect; default 100 and 5000. */
  reconnect?: { initial?: number; max?: number };
  /** How long, in milliseconds, a connection may be silent before it is probed, and then before it is given up; default 20,000. */
  quiet?: number;
  /** Called with what goes wrong in the background, as text for people without secrets. */
  log?: (message: string) => void;
  /**
   * Called with what a call waits for that has not returned after two seconds (a ticket's wait, drain, reads, direct
   * calls), as text for people, each reason once: "unavailable: …", "disk_full: …". Subscriptions report to SubscribeOptions.trouble.
   */
  onWaiting?: (reason: string) => void;
}

/** A signal that cancels waiting. */
export interface Waiting {
  signal?: AbortSignal;
}

/** Which sessions are listed, and in what order. */
export interface ListOptions extends Waiting {
  /** oldest first (default), newest first, last changed first, or by title with sessions without one last. */
  order?: "oldest" | "newest" | "changed" | "title";
  /** Only sessions with this text in their title or an id, ignoring case. */
  search?: string;
  /** Includes deleted sessions. */
  deleted?: boolean;
  /** Only the children of this session, by its id, oldest first. */
  parent?: string;
}

/** Options of a new session. */
export interface CreateOptions {
  /** The session's id in another system; unique among the living sessions made under one ref. */
  external?: string;
  /** The owner's ref's label. */
  label?: string;
  /** The owner's ref's actor; default "owner". */
  actor?: string;
  /** "time": messages are ordered by their time.created, as in opencode, instead of by the log. A fork has its source's order. */
  order?: "time";
  /** The owner's ref, if it was made before (newOwner). With it and the batch's id the creation can be repeated after a crash. */
  owner?: Ref;
  /** The id of the creating batch, if it is to be repeatable. */
  batchID?: string;
}

/** Whose child a new session is. */
export interface ParentOptions {
  /** The parent, in the same space, under a ref that may append to it; it is passed along. Older servers do not know it: the batch waits. */
  parent?: Session;
  /** The key of the parent's message or part that starts the child. */
  part?: string;
}

/** What a new session was forked from where it was exported. */
export interface OriginOptions {
  /** It is shown of the new session too; nothing is read of it, and it gives no right. Older servers leave it out. */
  origin?: Origin;
}

/** An open outbox with its connections. */
export class Client implements Link {
  readonly #outbox: Outbox;
  readonly #options: ClientOptions;
  readonly #WebSocket: WebSocketConstructor;
  readonly #servers = new Map<string, Server>();
  readonly #stopListening: () => void;
  readonly #rotations = new Map<string, Promise<void>>(); // those that are finished in the background, by the old ref's id

  private constructor(outbox: Outbox, options: ClientOptions, WebSocket: WebSocketConstructor) {
    this.#outbox = outbox;
    this.#options = options;
    this.#WebSocket = WebSocket;
    const target = globalThis as unknown as Partial<EventTarget>;
    const online = (): void => this.hurry();
    target.addEventListener?.("online", online);
    this.#stopListening = () => target.removeEventListener?.("online", online);
  }

  /** Opens a client on a store; the package entry's open makes the store for Node or the browser. */
  static async on(store: Store, options: ClientOptions, WebSocket: WebSocketConstructor): Promise<Client> {
    const outbox = await Outbox.open(store, {
      ...options.outbox, ...(options.log && { log: options.log }), ...(options.onWaiting && { onWaiting: options.onWaiting }),
    });
    const client = new Client(outbox, options, WebSocket);
    if (options.offline) return client;
    outbox.run(client);
    for (const { old } of outbox.rotations()) client.#finish(old);
    return client;
  }

  /** The client's outbox: its status, its rows, drop and retry. */
  get outbox(): Outbox {
    return this.#outbox;
  }

  /** Tries to connect now wherever there is no connection, and sends what is pending. */
  hurry(): void {
    for (const s of this.#servers.values()) s.hurry();
    this.#outbox.wake();
  }

  /**
   * Stops sending, closes every connection and the outbox. Subscriptions and waits end with canceled. Unsent batches
   * stay in the outbox for the next open.
   */
  async close(): Promise<void> {
    this.#stopListening();
    await this.#outbox.close();
    await Promise.all([...this.#servers.values()].map((s) => s.close()));
    await Promise.all(this.#rotations.values());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** The space of a ref, given as text or as a Ref. The ref is stored in the outbox. */
  async space(ref: Ref | string): Promise<Space> {
    ref = typeof ref === "string" ? Ref.parse(ref.trim()) : ref;
    if (!isSpace(ref.target)) throw fault("bad_ref_text", "this is not a space's ref: its id does not begin with spc_");
    return new Space(this, await this.#keep(ref));
  }

  /** The session of a ref, given as text or as a Ref. The ref is stored in the outbox and checked when it is used. */
  async session(ref: Ref | string): Promise<Session> {
    ref = typeof ref === "string" ? Ref.parse(ref.trim()) : ref;
    if (!isSession(ref.target)) throw fault("bad_ref_text", "this is not a session's ref: its id does not begin with ses_");
    return new Session(this, await this.#keep(ref));
  }

  /** A session by its id or external id, under the best ref that the outbox has for it. not_found, ambiguous. */
  sessionByID(id: string): Session {
    const row = this.#outbox.refFor(id), ref = Ref.parse(row.text);
    if (!isSession(ref.target)) throw fault("not_found", `the ref stored for ${id} is not a session's`);
    ref.checkPlaintext(this.#options.allowPlaintext ?? false);
    return new Session(this, { ref, redemption: row.redemption });
  }

  /** The ticket of a batch committed earlier, here or in another process. */
  ticket(batch: string): Ticket {
    return new Ticket(this.#outbox, batch);
  }

  /** Waits until nothing is pending. */
  drain(options: Waiting & { progress?: (done: number, total: number) => void } = {}): Promise<void> {
    return this.#outbox.drain(options.progress, options.signal);
  }

  /**
   * Compares a session's log with what was committed to it here, and commits ops again that applied but are missing
   * from it: under new ids, in order, in a new stream, followed by the pending ops. It continues a session whose stream has
   * stopped for good, and repairs what a restored server has lost, whether anything has stopped or not. It needs
   * a ref that shows the whole log, and may be interrupted or repeated. A session that the server has lost is
   * made again if it was made here. in_use while ops are in flight; not_found, missing_right.
   */
  reconcile(session: string, options: ReconcileOptions & Waiting = {}): Promise<Reconciliation> {
    return reconcile(this, session, options);
  }

  /** Gives up everything unfinished of a session and begins another stream for it, without the server and without affecting other sessions. Returns the ops that ended. */
  abandon(session: string): Promise<string[]> {
    return this.#outbox.abandon(session);
  }

  /** The sessions of which the outbox has ops, unfinished or of the last 30 days, in order of their first. */
  sessions(): string[] {
    return this.#outbox.sessions();
  }

  /** The state of the outbox. */
  status(): OutboxStatus {
    return this.#outbox.status();
  }

  /**
   * Stores a ref unless it is known. Other hosts replace the stored ones. A secret that does not fit the id is refused
   * (unknown_ref); one that differs from the stored one is tried beside it.
   */
  async #keep(ref: Ref): Promise<Held> {
    ref.checkPlaintext(this.#options.allowPlaintext ?? false);
    if (!ref.fits) throw fault("unknown_ref", "the ref's secret does not belong to its id: was it mistyped or cut off?");
    const row = this.#outbox.refRow(ref.id);
    if (row) {
      const kept = Ref.parse(row.text);
      if (kept.secretText !== ref.secretText || kept.address === ref.address) return { ref, redemption: row.redemption };
    }
    const put = await this.#outbox.putRef(ref, row ? { role: row.role, external: row.external, label: row.label } : {});
    return { ref, redemption: put.redemption };
  }

  /** Replaces a ref: Session.rotate, Space.rotate. */
  rotate(held: Held, waiting: Waiting | undefined): Promise<Rotated> {
    return rotate(this, held, waiting, (old) => this.#finish(old));
  }

  /** Finishes a rotation in the background. */
  #finish(old: Ref): void {
    if (this.#options.offline || this.life.aborted || this.#rotations.has(old.id)) return;
    this.#rotations.set(old.id, resumeRotation(this, old, this.#options.log ?? (() => {})).finally(() => this.#rotations.delete(old.id)));
  }

  /** The limits of a ref's server, as far as known. */
  limitsFor(ref: Ref): Limits {
    return { ...defaultLimits, ...this.#servers.get(ref.address)?.limits };
  }

  /** The server of a ref. It refuses a ref whose secret would be sent in clear. */
  serverFor(ref: Ref): Server {
    ref.checkPlaintext(this.#options.allowPlaintext ?? false);
    if (this.#outbox.life.aborted) throw fault("canceled", "the client was closed");
    let s = this.#servers.get(ref.address);
    if (s === undefined) {
      const { agent = "mooring-js", reconnect, quiet = 20_000 } = this.#options;
      s = new Server({
        address: ref.address, hosts: ref.hosts, urls: ref.urls, sealKey: this.#options.sealKey, WebSocket: this.#WebSocket, agent, quiet, connectTimeout: 5000,
        reconnect: { initial: reconnect?.initial ?? 100, max: reconnect?.max ?? 5000 }, back: () => this.#outbox.wake(),
      });
      this.#servers.set(ref.address, s);
    }
    return s;
  }

  async openStream(req: StreamRequest): Promise<LinkStream> {
    const peer = await this.serverFor((req.space ?? req.through!).ref).peer();
    return peer.openStream(req);
  }

  /**
   * Makes one call on a ref's live capability and reads its results; transient errors are retried for as long as
   * patience allows.
   */
  async call<T>(held: Held, ask: (live: StubPromise, peer: Peer) => Promise<T>, options: Waiting = {}): Promise<T> {
    const server = this.serverFor(held.ref), life = this.#outbox.life;
    const until = Date.now() + (this.#options.patience ?? 10_000);
    const wait = newBackoff({ initial: 100, max: 1000, factor: 2, jitter: 0.5 }), why = new Why((reason) => this.#options.onWaiting?.(reason));
    for (;;) {
      if (life.aborted || options.signal?.aborted) throw fault("canceled", "the call was given up");
      let peer: Peer | undefined;
      try {
        peer = await unless(options.signal, server.peer());
        return await unless(options.signal, ask(peer.restore(held), peer));
      } catch (err) {
        const f = peer && !(err instanceof MooringError) ? peer.fail(err) : faultOf(err), pause = wait.next();
        if (!f.transient || Date.now() + pause > until) throw f;
        why.now(f.message);
        await sleep(pause, this.#outbox, options.signal);
      }
    }
  }

  get life(): AbortSignal {
    return this.#outbox.life;
  }
}

/** The result of a promise, unless the signal fires first. */
export function unless<T>(signal: AbortSignal | undefined, p: Promise<T>): Promise<T> {
  if (signal === undefined) return p;
  return new Promise((resolve, reject) => {
    const gone = (): void => reject(fault("canceled", "the call was given up"));
    signal.addEventListener("abort", gone);
    if (signal.aborted) gone();
    p.then(resolve, reject).finally(() => signal.removeEventListener("abort", gone));
  });
}

/** Waits until the time is over, the outbox is closed or the signal fires. */
export function sleep(ms: number, outbox: Outbox, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      outbox.onClose.delete(done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", done);
    outbox.onClose.add(done);
    if (signal?.aborted || outbox.life.aborted) done();
  });
}

function homeOf(client: Client, at: Ref): BatchHome {
  return {
    outbox: client.outbox,
    limits: () => client.limitsFor(at),
    ticket: (batch, session, ops) => new Ticket(client.outbox, batch, session, ops),
  };
}

const hex = (bytes: Uint8Array): string => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");

/** The ref of a session that is passed along with a batch: its own, not one that it was opened through. */
function ownRef(session: Session): Ref {
  if (session.ref.target === session.id) return session.ref;
  throw fault("bad_argument", "the session is opened through a ref of another, and a fork or a child takes one of the session's own: make it with share");
}

/** A space under one ref. */
export class Space {
  readonly #client: Client;
  readonly #held: Held;

  constructor(client: Client, held: Held) {
    this.#client = client;
    this.#held = held;
  }

  /** The space's id. */
  get id(): string {
    return this.#held.ref.target;
  }

  /** The ref it is reached by. Its text has the secret. */
  get ref(): Ref {
    return this.#held.ref;
  }

  /** Makes an id for a new session and its owner's ref. Nothing is created. */
  newOwner(): Ref {
    return this.#held.ref.for(`ses_${newULID()}`);
  }

  /**
   * Makes a new session, offline. The session can be used at once. Its batch begins with the create op, may get more
   * ops, and creates the session when it is committed.
   */
  create(options: CreateOptions & ParentOptions & OriginOptions = {}): { session: Session; batch: Batch } {
    const { session, batch, creation } = this.#newSession(options), { parent, origin: from } = options;
    if (parent) batch.source = ownRef(parent);
    const origin = from && { origin: from.session, origin_at: from.cursor, origin_message: from.message || undefined };
    batch.do("create", { ...creation, parent: parent?.id, via: parent?.ref.id, part: options.part, order: options.order, ...origin });
    return { session, batch };
  }

  /**
   * Makes a new session that begins as a copy of another at a cursor (default: when the op applies), where the event must
   * have that hash. With a message's id, other messages that come after it in the source's order are not copied, nor their parts.
   */
  fork(source: Session, options: CreateOptions & { at?: number; atHash?: Uint8Array; message?: string } = {}): { session: Session; batch: Batch } {
    const { session, batch, creation } = this.#newSession(options);
    batch.source = ownRef(source);
    batch.do("fork", { source: source.id, via: source.ref.id, at: options.at, ...(options.atHash && { at_hash: hex(options.atHash) }), message: options.message, ...creation });
    return { session, batch };
  }

  #newSession(o: CreateOptions) {
    const owner = o.owner ?? this.newOwner();
    const meta: OwnerRef["meta"] = { role: "owner" as Role, ...(o.external && { external: o.external }), ...(o.label && { label: o.label }) };
    const session = new Session(this.#client, { ref: owner, redemption: "" });
    const batch = new Batch(homeOf(this.#client, owner), owner.target, this.#held.ref, owner, { ref: owner, meta }, o.batchID);
    const creation = { ref: owner.id, hash: owner.hashText, external: o.external, label: o.label, actor: o.actor };
    return { session, batch, creation };
  }

  /**
   * Mints a ref of the space, with at most this one's rights and limits: create, list, share, revoke. It needs the server;
   * the ref is valid when the promise is fulfilled.
   */
  async share(options: ShareOptions, waiting?: Waiting): Promise<Ref> {
    const ref = this.#held.ref.for(this.id, Boolean(options.seal));
    await this.#client.call(this.#held, (live, peer) => mint(live, peer, ref, options), waiting);
    return ref;
  }

  /**
   * A live capability of the space that allows at most this, over the present connection: to use it, or to pass it in a call. It
   * takes no right. widening if it would allow more.
   */
  attenuate(options: AttenuateOptions, waiting?: Waiting): Promise<Live> {
    return attenuate(this.#client, this.#held, options, waiting, (cap) => new Live(cap));
  }

  /** Revokes a ref of the space and all made from it, those of sessions created under it too; returns how many refs died. */
  revoke(ref: Ref | string, waiting?: Waiting): Promise<number> {
    return this.#client.call(this.#held, async (live) => {
      const answer = (await live["revoke"]!(typeof ref === "string" ? ref : ref.id)) as Struct | number;
      const refs = Number(typeof answer === "object" ? answer["refs"] : answer);
      dispose(answer);
      return refs;
    }, waiting);
  }

  /**
   * The tree of refs below the space's ref, or one below that: depth first, siblings by creation. It includes the refs of
   * sessions that were made under it, and needs the right to revoke. Refs minted or revoked in the meantime do not disturb
   * the list; conflict, if a rotation has moved the refs where it stood.
   */
  refs(options: RefsOptions = {}): AsyncGenerator<RefInfo, void, void> {
    return readRefs(this.#client, this.#held, options);
  }

  /** Replaces the space's root ref by a new one, like Session.rotate; not_an_owner for any other ref. */
  async rotate(waiting?: Waiting): Promise<Space> {
    return new Space(this.#client, (await this.#client.rotate(this.#held, waiting)).held);
  }

  /** The space's audit, like Session.audit; missing_right for any ref but the space's root ref. */
  audit(options: AuditOptions = {}): AsyncGenerator<AuditRow, void, void> {
    return readAudit(this.#client, this.#held, options);
  }

  /** Reads the whole audit and checks its hash chain, like Session.verifyAudit. */
  verifyAudit(options: Waiting = {}): Promise<AuditVerification> {
    return verifyAudit(this.#client, this.#held, options);
  }

  /** What the ref allows. */
  describe(options?: Waiting): Promise<Description> {
    return this.#client.call(this.#held, async (live) => readInfo(await live["info"]!()), options);
  }

  /** The older name of describe. */
  info(options?: Waiting): Promise<Description> {
    return this.describe(options);
  }

  /**
   * A session of the space by its id, whoever made it, with all rights and under this ref, which needs the right manage. Batches are
   * sent through this ref, also by a later process. unsupported while servers run that do not know the right. bad_argument if id
   * is not a session's.
   */
  open(id: string): Session {
    if (!isSession(id)) throw fault("bad_argument", "open takes a session's id: ses_ and a ULID");
    return new Session(this.#client, { ...this.#held, session: id });
  }

  /**
   * Deletes the sessions of the space in which nothing has changed for options.age, whoever made them, or purges a key of each, or
   * lists them. It yields page by page, by id, and needs the right manage. It goes to the server directly, not through the
   * outbox: each session is looked at again where it is removed, and one that has changed meanwhile, or in which a turn is
   * running, is left. What is done stays done, and a repetition does nothing to it. After an error it throws, behind a page
   * with what was done before.
   */
  removeOlder(options: OlderOptions): AsyncGenerator<OldPage, void, void> {
    return removeOlder(this.#client, this.#held, options);
  }

  /** The space's sessions, any number of them: the server sorts and searches them. */
  async *list({ order = "oldest", search = "", deleted = false, parent = "", ...waiting }: ListOptions = {}): AsyncGenerator<SessionInfo> {
    for (let after = "", more = true; more; ) {
      const page = await this.#client.call(this.#held, async (live) => (await live["list"]!(after, 200, order, search, deleted, ...(parent ? [parent] : []))) as Struct, waiting);
      const sessions = page["sessions"] as SessionInfo[];
      yield* sessions;
      // Older servers list by id only, and do not say where the next page begins.
      after = (page["next"] as string | undefined) || (sessions.at(-1)?.id ?? "");
      more = page["more"] === true && after !== "";
    }
  }
}

/** A session under one ref. */
export class Session {
  readonly #client: Client;
  readonly #held: Held;

  constructor(client: Client, held: Held) {
    this.#client = client;
    this.#held = held;
  }

  /** The session's id. */
  get id(): string {
    return reached(this.#held);
  }

  /** The ref it is reached by: its own, or the one through which it was opened (Space.open, Session.open). Its text has the secret. */
  get ref(): Ref {
    return this.#held.ref;
  }

  /**
   * A session below this one, at any depth, by its id, through this one's ref, which needs rights in children (children of
   * share): these are the rights that it has there. Batches are sent through that ref, also by a later process. unsupported
   * while servers run that do not know such refs. bad_argument if id is not a session's.
   */
  open(id: string): Session {
    if (!isSession(id)) throw fault("bad_argument", "open takes a session's id: ses_ and a ULID");
    return new Session(this.#client, { ...this.#held, session: id });
  }

  /** The redemption id is stored in the outbox; a new session gets its own with its batch. */
  #now(): Held {
    const row = this.#client.outbox.refRow(this.#held.ref.id);
    return row ? { ...this.#held, redemption: row.redemption } : this.#held;
  }

  /** Begins a batch of ops for the session. id: of the batch, if it is to be repeatable after a crash (newBatchID). */
  batch(id?: string): Batch {
    const { ref } = this.#held;
    return new Batch(homeOf(this.#client, ref), this.id, ref, ref, undefined, id);
  }

  /** Waits until nothing of the session that was committed before is pending, here or by an earlier process; a Standstill if it has stopped. */
  async drain({ signal }: Waiting = {}): Promise<void> {
    const { outbox } = this.#client;
    for (const { id } of outbox.tables.unfinished(this.id)) await outbox.wait(id, signal);
  }

  /** Commits one put. */
  async put(key: string, payload: Value): Promise<Ticket> {
    const b = this.batch();
    b.put(key, payload);
    return b.commit();
  }

  /** Makes a request (Batch.ask) and returns its ticket: the request is durable, also without a server. */
  async ask(kind: string, payload?: Value, options: AskOptions = {}): Promise<RequestTicket> {
    const b = this.batch(), { id } = b.ask(kind, payload, options);
    return this.requestTicket(id, (await b.commit()).batch);
  }

  /** The ticket of a request that was asked earlier, by any client. batch: the ticket's, if it is known. */
  requestTicket(id: string, batch = ""): RequestTicket {
    return new RequestTicket(this, id, batch && new Ticket(this.#client.outbox, batch, this.id));
  }

  /** The session's present requests, in the order in which they were asked: those that are open or claimed. It takes the right read. */
  listRequests(options: RequestOptions = {}): Promise<Request[]> {
    return listRequests(this, options);
  }

  /** listRequests one by one, and each that changes from then on, until options.signal is aborted or the loop is left. */
  followRequests(options: RequestOptions = {}): AsyncGenerator<Request, void, void> {
    return followRequests(this, options);
  }

  /**
   * The requests of some kinds, or of all, that this client may work on: each that is open, in the order in which they were asked, and each that
   * another asks from then on. One that is claimed by this client's outbox when it begins, as by an earlier process, is given too. What is open
   * again after a claim is given again. It claims nothing: Batch.claimRequest does, and is a conflict for all but the first. It takes the right read.
   */
  requests(kinds: readonly string[] = [], options: Waiting = {}): AsyncGenerator<Request, void, void> {
    return openRequests(this, this.#client.outbox.id, kinds, options);
  }

  /** Commits a share and returns the new ref: the batch is durable, the ref works when it has arrived. */
  async share(options: ShareOptions): Promise<{ ref: Ref; ticket: Ticket }> {
    const b = this.batch(), { ref } = b.share(options);
    return { ref, ticket: await b.commit() };
  }

  /** Describes the session and the ref it is reached by. */
  describe(options?: Waiting): Promise<Description> {
    return this.#client.call(this.#now(), async (live) => readInfo(await live["info"]!()), options); // older servers have only info
  }

  /** The older name of describe. */
  info(options?: Waiting): Promise<Description> {
    return this.describe(options);
  }

  /** How much of the session the ref shows; incompatible if the server is too old for it. */
  stat(options?: Waiting): Promise<Stat> {
    return this.#client.call(this.#now(), async (live) => readStat(await live["stat"]!()), options);
  }

  /**
   * The living sessions that were created with this one as their parent, by id. A ref of some keys shows those that were started
   * by these, one with a first cursor none. incompatible if the server is too old.
   */
  children(options: Waiting = {}): AsyncGenerator<Child, void, void> {
    return readChildren((ask) => this.#client.call(this.#now(), ask, options));
  }

  /**
   * The entries of keys, in their order. A key without a value, or that the ref does not show, has none. A call asks for up to
   * 64 keys and gets about 4 MiB of values, of one snapshot; get makes as many calls as it takes, and the cursor is the first
   * one's. bad_key if one of them is not a key; incompatible if the server is too old.
   */
  get(keys: string | readonly string[], options?: Waiting): Promise<EntryPage> {
    return readKeys(typeof keys === "string" ? [keys] : keys, (ask) => this.#client.call(this.#now(), ask, options));
  }

  /**
   * The entries of the keys below a prefix, any number of them, page by page. Each page is of a snapshot of its own: a key that
   * is there all the time, and is not removed and put again, comes once. incompatible if the server is too old.
   */
  list(options: KeyOptions = {}): AsyncGenerator<EntryInfo, void, void> {
    return readAllKeys(options, (ask) => this.#client.call(this.#now(), ask, options));
  }

  /**
   * A page of list. It may be empty and have a next, since the server looks at a limited number of keys that the ref does not
   * show.
   */
  listPage(options: KeyPageOptions = {}): Promise<EntryPage> {
    return readKeyPage(options, (ask) => this.#client.call(this.#now(), ask, options));
  }

  /**
   * The entries in whose values all words of a query are, the last in the session's order first, any number of them, page by
   * page. Words are letters and digits in any case; those of identifiers (user_name, userName) are found one by one as well, as
   * are characters of scripts without spaces, and emoji; words in double quotes are found one after the other. Searched are
   * titles, messages, parts and the values of your own kinds, as far as the ref shows them, text that streams included. If the
   * session's index is not made yet, search waits for it. bad_argument for a query without a word or of more than 1,000 bytes or
   * 64 words; incompatible if the server is too old, unsupported while servers of an earlier version run beside it.
   */
  search(query: string, options: Waiting = {}): AsyncGenerator<Found, void, void> {
    return readAllFound(query, options, (ask) => this.#client.call(this.#now(), ask, options));
  }

  /**
   * A page of search. It may be empty and have a next, since the server compares a limited number of bytes for it. Where
   * indexing is set, the next search goes on with the index.
   */
  searchPage(query: string, options: SearchPageOptions = {}): Promise<FoundPage> {
    return readFoundPage(query, options, (ask) => this.#client.call(this.#now(), ask, options));
  }

  /** The folded state, by default the present one and whole. */
  snapshot(options: SnapshotOptions = {}): Promise<State> {
    return this.#client.call(this.#now(), async (live, peer) => readSnapshot(live, peer, options), options);
  }

  /**
   * Up to limit events after a cursor, and the session's cursor. cursor_expired if the log no longer reaches back,
   * server_behind if it ends before the cursor, or has another event there than the one of hash (SessionEvent.hash). keys are the only ones
   * wanted, as in SubscribeOptions.
   */
  events(after = 0, limit = 0, options: Waiting & { hash?: Uint8Array; keys?: readonly string[] } = {}): Promise<Events> {
    return this.#client.call(this.#now(), async (live, peer) => {
      return readEvents(await live["events"]!({ from: after, limit, ...(await readParams(peer, options.hash, options.keys)) }));
    }, options);
  }

  /**
   * Calls handle with every event after a cursor, once and in order, over any number of connections; while handle runs, at
   * most a window is sent ahead. The promise is fulfilled when the signal fires, and rejected with the error that handle
   * throws, or with the reason if the server ends it: revoked, stale_epoch, expired, missing_right, unknown_ref, cursor_expired,
   * server_behind (the log is not the one that was followed: the server was restored from a backup), session_deleted.
   */
  subscribe(options: SubscribeOptions, handle: (event: SessionEvent) => void | Promise<void>): Promise<void> {
    return subscribe(this.#client, this.#now(), options, handle);
  }

  /** subscribe as an iterator. Leaving the loop ends the subscription. */
  follow(options: SubscribeOptions = {}): AsyncGenerator<SessionEvent, void, void> {
    return follow((o, handle) => this.subscribe(o, handle), options);
  }

  /** Revokes a ref of the session and all made from it, at once, without the outbox. A repeat returns the same cut. */
  revoke(ref: Ref | string, options?: Waiting): Promise<Cut> {
    return this.#revoke(typeof ref === "string" ? ref : ref.id, false, options);
  }

  /**
   * revoke of the owner's ref of a session that was opened through its space, which revoke refuses (not_an_owner): whoever has it
   * loses the session, with all refs made from it.
   */
  revokeOwner(ref: Ref | string, options?: Waiting): Promise<Cut> {
    return this.#revoke(typeof ref === "string" ? ref : ref.id, false, options, true);
  }

  /**
   * Replaces the owner's ref of a session that was opened through its space by a new one, which is in the outbox before the server
   * is asked: whoever has the old one loses the session. If the answer is lost it may be repeated. not_an_owner for any other session.
   */
  async takeOver(waiting?: Waiting): Promise<{ session: Session; cut: number }> {
    const held = this.#now();
    if (held.session === undefined || !isSpace(held.ref.target)) throw fault("not_an_owner", "a session that was opened through its space is taken over: rotate replaces the ref that it is reached by here");
    const fresh = held.ref.for(held.session), { redemption } = await this.#client.outbox.putRef(fresh);
    const cut = await this.#client.call(held, async (live) => {
      const answer = (await live["rotate"]!(fresh.id, fresh.hashText, true)) as Struct | number, at = typeof answer === "object" ? answer["cut"] : answer;
      dispose(answer);
      return Number(at);
    }, waiting);
    return { session: new Session(this.#client, { ref: fresh, redemption }), cut };
  }

  /** Revokes every share of the session, at once, without the outbox. */
  bumpEpoch(options?: Waiting): Promise<Cut> {
    return this.#revoke(null, true, options);
  }

  /** The tree of refs below the session's ref, or one below that (with an owner's: any of the session's), like Space.refs. */
  refs(options: RefsOptions = {}): AsyncGenerator<RefInfo, void, void> {
    return readRefs(this.#client, this.#now(), options);
  }

  /**
   * The session's audit: what was done under which ref, in order, and what was refused. With follow it continues with new rows.
   * Each page is compared with the row before it: server_behind if the server was restored from a backup and has other rows now.
   * Rows inside a page are as the server sends them; verifyAudit checks all. not_an_owner for a ref that is not an owner's.
   */
  audit(options: AuditOptions = {}): AsyncGenerator<AuditRow, void, void> {
    return readAudit(this.#client, this.#now(), options);
  }

  /**
   * Reads the whole audit and checks its hash chain: findings are rows that were changed, removed or reordered by hand. Who can write to
   * the database can also make a whole new chain: keep the head elsewhere, since a row that was the last stays in the chain.
   */
  verifyAudit(options: Waiting = {}): Promise<AuditVerification> {
    return verifyAudit(this.#client, this.#now(), options);
  }

  /**
   * Replaces this ref, which is an owner's, by a new one, which takes over its rights and all that was shared from it. The old one is
   * dead from the cut on. It returns the session under the new ref; this object still has the old one, but batches that were or
   * are committed with it are sent under the new one.
   *
   * The new ref is durable in the outbox before the server is asked. If the answer is lost, this client goes on asking in the
   * background, as does any later one of the outbox; until then nothing new is sent under the old ref. Batches in flight are waited
   * for, but not for ever: those of a link that broke may be denied. Repeated after it was rotated here, it returns what replaced it. not_an_owner
   * for a ref that is not an owner's; not_found if it is not in the outbox.
   */
  async rotate(waiting?: Waiting): Promise<{ session: Session; cut: number }> {
    if (this.#held.session !== undefined) throw fault("not_an_owner", "the session was opened through another ref: of one that was opened through its space takeOver replaces the ref of its owner, who loses it then");
    const { held, cut } = await this.#client.rotate(this.#now(), waiting);
    return { session: new Session(this.#client, held), cut };
  }

  /**
   * Reads the whole log as far as the ref shows it, checks its hash chain, folds it, and compares the result with the server's
   * state. The result names what was changed, removed or reordered by hand, and what could not be verified; its check throws
   * that. It throws itself only if it cannot read: missing_right for a ref that shows a part of the session alone.
   */
  verify(options: VerifyOptions = {}): Promise<Verification> {
    return verifySession(this.#client, this.#now(), options);
  }

  /**
   * A live capability of the session that allows at most this, over the present connection: to use it, or to pass it in a call. It
   * takes no right, and dies with this ref. widening if it would allow more.
   */
  attenuate(options: AttenuateOptions, waiting?: Waiting): Promise<LiveSession> {
    return attenuate(this.#client, this.#now(), options, waiting, (cap) => new LiveSession(cap));
  }

  /**
   * Ends the session's open turns, or those of dead refs, as aborted, at once, without the outbox: turns whose writers are
   * gone. What was written to them stays. It needs the rights to read and to revoke.
   */
  abortTurns(options: AbortOptions = {}): Promise<AbortedTurns> {
    return abortTurns(this.#client, this.#now(), options);
  }

  #revoke(ref: string | null, epoch: boolean, options: Waiting | undefined, takeOver = false): Promise<Cut> {
    return this.#client.call(this.#now(), async (live) => {
      const answer = (await (takeOver ? live["revoke"]!(ref, epoch, true) : live["revoke"]!(ref, epoch))) as Struct;
      const cut = {
        cursor: Number(answer["cut"]), epoch: Number(answer["epoch"]), childCount: num(answer["childCount"]),
        children: ((answer["children"] ?? []) as Struct[]).map((c) => ({ session: str(c["session"]), cursor: num(c["cut"]) })),
      };
      dispose(answer);
      return cut;
    }, options);
  }
}
