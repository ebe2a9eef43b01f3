// One term of sending: the machine, its open streams, and the writes that it asks for. Nothing is sent before its
// seq is durable, and nothing is acknowledged before its outcome is.

import { newBackoff } from "./backoff.js";
import { fault, faultOf, MooringError } from "./fault.js";
import type { Outcome } from "./intent.js";
import type { Link, LinkStream } from "./link.js";
import { type Action, aheadFactor, type Entry, lastSeqOf, Machine, noRoute, type Reply, type Route, serves } from "./machine.js";
import { broken, dropAsked, nextOf, openedStream, restored, wake } from "./machine_open.js";
import { type Refusal, refused } from "./machine_refused.js";
import { creates } from "./methods.js";
import { earlierOf, finderOf, holdOf, sizeOf, streamChange, wireOf } from "./lookup.js";
import type { Outbox } from "./outbox.js";
import { type Earlier, resolve } from "./resolve.js";
import { type BareOp, type BatchRow, deny, dropped, mergeOutcomes, noStream, type OpRow, opsOf, raised, rejectedOutcome, stateOf, type StoredRow, type StreamRow, travelling, travels } from "./rows.js";
import type { Change, Plan, Store, Tables } from "./store.js";

const lookBytes = 256 << 10; // bound of what one look reads
const headRows = 8; // rows that a look reads at once: the first ones may have outcomes already
const storePause = 200; // before a failed write is repeated
const doubtful = 3; // number of openings on which a server must say that it does not know a session that it has made

interface Conn {
  number: number;
  stream: LinkStream | undefined;
  over: boolean;
}

/** The result of load. */
interface Loaded {
  rows: { row: BatchRow; hold: number }[]; // have seqs now
  head: BatchRow | undefined; // the first one without seqs, if none were to be given
  more: boolean;
  blockedOn: string[]; // batches of other sessions that the first one waits for
  stream: StreamRow;
  done: BatchRow[]; // finished without a server
  known?: MooringError; // why nothing was refused
}

/** Why a term is over: left means that a stream was left, and everything has to be read again. */
type End = "closed" | "fenced" | "left";

/** A term of sending of one outbox. */
export class Sender {
  /** Fulfilled when the term is over: the outbox was closed, the server has seen a higher incarnation, or a stream was left. */
  readonly ended: Promise<End>;
  readonly #box: Outbox;
  readonly #store: Store;
  readonly #link: Link;
  readonly #m: Machine;
  readonly #conns = new Map<string, Conn>();
  readonly #doubts = new Map<string, Set<number>>(); // sessions that their server did not know though it has made them, with the openings
  readonly #events: ((now: number) => void)[] = [];
  #incarnation: number;
  #said = ""; // the last link error that was logged
  #busy = false;
  #over = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #end!: (why: End) => void;
  readonly #left: number; // how often streams had been left when it began

  private constructor(box: Outbox, store: Store, link: Link) {
    this.#box = box;
    this.#store = store;
    this.#link = link;
    this.#incarnation = store.tables.box!.incarnation;
    this.#left = store.tables.box!.left ?? 0;
    this.#m = new Machine(box.settings.window, () => newBackoff(box.settings.backoff));
    this.ended = new Promise((resolve) => { this.#end = resolve; });
  }

  /**
   * Begins a term: raises the incarnation, durably, and loads unanswered batches. begun is called with the sender
   * before anything else is written.
   */
  static async begin(box: Outbox, store: Store, link: Link, step: number, begun: (s: Sender) => void): Promise<Sender> {
    let sender!: Sender;
    await store.update((t): Plan<BatchRow[]> => {
      const changes: Change[] = [{ t: "box", k: "box", p: { incarnation: t.box!.incarnation + step, by: t.box!.incarnation + step } }];
      const rows = t.whole(t.unfinishedSessions().flatMap((s) => t.sequenced(s))).map((r): BatchRow => ({ ...r, state: "pending" }));
      for (const { id, state } of rows) if (t.batches.get(id)!.state !== state) changes.push({ t: "batch", k: id, p: { state } });
      for (const [k, s] of t.streams) if (s.stopped !== "none") changes.push({ t: "stream", k, p: { stopped: "none", reason: "" } });
      return { changes, value: rows };
    }, (rows) => {
      sender = new Sender(box, store, link);
      begun(sender);
      sender.#recover(rows);
    });
    return sender;
  }

  #recover(all: readonly BatchRow[]): void {
    const t = this.#store.tables;
    this.#post((now) => {
      const sessions = new Map<string, BatchRow[]>();
      for (const r of all) {
        const rows = sessions.get(r.session);
        if (rows) rows.push(r);
        else sessions.set(r.session, [r]);
      }
      for (const [session, rows] of sessions) {
        const drops = new Map<number, MooringError | null>(rows.filter((r) => r.dropping).map((r) => [r.num, null]));
        const entries = rows.map((r) => this.#entry(r, holdOf(t, r)));
        this.#m.recovered(session, entries, makingOf(t.streams.get(session)), drops, now);
      }
      this.#m.found(t.waitingSessions(), now);
    });
  }

  // ---- Events from outside

  /** Whether a batch that is being committed may get its seqs at once, because it would be sent at once. */
  takes(t: Tables, row: BatchRow): boolean {
    if (this.#moved(t)) return false;
    const s = this.#m.streams.get(row.session), win = this.#m.win;
    return !this.#over && s?.phase === "open" && !creates(row.ops[0]!.method) && s.queue.length < aheadFactor * win.batches &&
      s.queued + row.bytes <= aheadFactor * win.bytes;
  }

  /** Whether a stream was left since the term began: then the term is over, and its results do not count. */
  #moved(t: Tables): boolean {
    if ((t.box!.left ?? 0) === this.#left) return false;
    queueMicrotask(() => this.end("left"));
    return true;
  }

  /** A batch was committed with its seqs. */
  sequenced(row: BatchRow, hold: number): void {
    this.#post((now) => this.#m.sequenced(this.#entry(row, hold), now));
  }

  /** Sessions have batches without a seq. */
  found(sessions: string[]): void {
    this.#post((now) => this.#m.found(sessions, now));
  }

  /** A batch is finished. */
  finished(batch: string): void {
    this.#post((now) => this.#m.finished(batch, now));
  }

  /** An op of a batch with seqs is to be dropped. */
  dropAsked(session: string, num: number): void {
    this.#post((now) => dropAsked(this.#m, session, num, now));
  }

  /** Ops of batches without seqs were dropped. */
  headsDropped(): void {
    this.#post((now) => this.#m.headsDropped(now));
  }

  /** Links are back. */
  wake(): void {
    this.#post((now) => wake(this.#m, now));
  }

  /** Others have committed, dropped or stored. */
  othersWrote(): void {
    if (this.#moved(this.#store.tables)) return;
    this.#post((now) => {
      const t = this.#store.tables;
      this.#m.found(t.waitingSessions(), now);
      if ([...this.#m.streams.values()].some((s) => s.head && t.batches.get(s.head.id)?.state !== "pending")) this.#m.headsDropped(now);
      for (const s of [...this.#m.streams.values()]) {
        for (const r of t.sequenced(s.session)) {
          if (r.dropping && !s.drops.has(r.num) && !s.deciding) dropAsked(this.#m, s.session, r.num, now);
        }
      }
    });
  }

  /** The refs have changed: a stream may have another route, or a stopped one may continue. */
  refsChanged(): void {
    this.#post((now) => {
      for (const s of [...this.#m.streams.values()]) {
        const lost = nextOf(s)?.problem !== undefined || nextOf(s) === undefined;
        for (const e of s.queue) this.#find(e);
        if (s.head) this.#find(s.head);
        if (!s.stopped) {
          this.#m.step(s, now);
          continue;
        }
        const e = nextOf(s);
        if (!e || (!e.problem && (lost || e.route.proof !== s.opened.proof))) this.#m.resume(s.session, now);
      }
    });
  }

  /** How many batches are in flight under a ref. */
  inFlightVia(ref: string): number {
    return this.#m.inFlightVia(ref);
  }

  /** Ends the term. */
  end(why: End = "closed"): void {
    if (this.#over) return;
    this.#over = true;
    if (this.#timer !== undefined) clearTimeout(this.#timer);
    for (const [session, c] of this.#conns) this.#let(session, c);
    this.#end(why);
  }

  // ---- The loop

  /** Calls f and does the actions that the machine then asks for: at once, or after those in progress. */
  #post(f: (now: number) => void): void {
    if (this.#over) return;
    this.#events.push(f);
    if (this.#busy) return;
    this.#busy = true;
    try {
      const now = performance.now() + 1; // never 0, which means none to the machine
      for (let e; !this.#over && (e = this.#events.shift()) !== undefined; ) {
        e(now);
        this.#act(now);
      }
      this.#m.tick(now);
      this.#act(now);
      this.#busy = false;
      if (this.#timer !== undefined) clearTimeout(this.#timer);
      const at = this.#m.wakeAt;
      if (at !== undefined && !this.#over) {
        this.#timer = setTimeout(() => this.#post(() => {}), Math.min(Math.max(at - now, 0) + 1, 3600_000));
      }
    } finally {
      this.#busy = false;
    }
  }

  #act(now: number): void {
    for (let a; !this.#over && (a = this.#m.out.shift()) !== undefined; ) this.#one(a, now);
  }

  #one(a: Action, now: number): void {
    switch (a.do) {
      case "look": this.#load(a.session, 0, lookBytes); break;
      case "load": this.#load(a.session, a.batches, a.bytes); break;
      case "open": void this.#open(a); break;
      case "close": {
        const c = this.#conns.get(a.session);
        if (c?.number === a.conn) this.#let(a.session, c);
        break;
      }
      case "send": this.#send(a); break;
      case "ack": {
        const c = this.#conns.get(a.session);
        if (c?.number === a.conn) c.stream?.acknowledge(a.through);
        break;
      }
      case "finish": {
        const outcomes = mergeOutcomes(a.entry.ops, a.answer);
        this.#said = "";
        this.#box.tell(a.entry.id, outcomes, false);
        void this.#finish(a.entry, outcomes, a.making);
        break;
      }
      case "note": {
        const at = a.at === 0 ? 0 : Math.round(Date.now() + a.at - now);
        const { message } = a.err;
        if (a.at > 0 && message !== this.#said) this.#box.settings.log(`what waits is sent again until it arrives: ${this.#said = message}`); // each error once
        const notes = a.entries.map((e) => ({ id: e.id, attempts: e.attempts }));
        this.#write((t) => notes.flatMap(({ id, attempts }): Change[] => {
          const row = t.batches.get(id);
          return row && row.state !== "finished" ? [{ t: "batch", k: id, p: { attempts, nextRetryAt: at, lastError: message } }] : [];
        }));
        break;
      }
      case "mark":
        this.#write((t) => (t.batches.get(a.entry.id)?.state === "pending" ? [{ t: "batch", k: a.entry.id, p: { state: "in_flight" } }] : []));
        break;
      case "stop": {
        if (a.err) this.#box.settings.log(`session ${a.session} has stopped until someone decides: ${a.err.message}`);
        const p = { stopped: a.err?.codeName ?? ("none" as const), reason: a.err?.reason ?? "" };
        this.#write((t) => [streamChange(t, a.session, p)], () => this.#box.lookAgain());
        break;
      }
      case "raise": void this.#raise(); break;
      case "settle": void this.#settle(a); break;
      case "refuse": this.#load(a.session, aheadFactor * this.#m.win.batches, aheadFactor * this.#m.win.bytes, a); break;
      case "fenced": this.end("fenced"); break;
    }
  }

  /** Writes in the background. */
  #write(changes: (t: Tables) => Change[], done?: () => void): void {
    this.#store.update((t) => ({ changes: this.#moved(t) ? [] : changes(t), value: undefined }), done).catch((err: unknown) => this.#trouble(err));
  }

  #trouble(err: unknown): void {
    if (!this.#over) this.#box.settings.log(`the outbox's storage fails the sender: ${faultOf(err).message}`);
  }

  /** Writes until it succeeds or the term is over. */
  async #insist<T>(plan: (t: Tables) => Plan<T>, done: (value: T) => void): Promise<void> {
    while (!this.#over) {
      try {
        await this.#store.update(plan, done);
        return;
      } catch (err) {
        if (this.#over) return; // the next term gets the same answer
        this.#trouble(err);
        await new Promise((r) => setTimeout(r, storePause));
      }
    }
  }

  // ---- Streams

  async #open(a: Extract<Action, { do: "open" }>): Promise<void> {
    const c: Conn = { number: a.conn, stream: undefined, over: false };
    this.#conns.set(a.session, c);
    try {
      const stream = await this.#link.openStream(this.#box.request(a.session, a.route, this.#incarnation));
      if (c.over) {
        stream.close();
        return;
      }
      c.stream = stream;
      stream.onGone = () => this.#post((now) => broken(this.#m, a.session, a.conn, now));
      const last = a.settle ? await stream.lastSeq() : 0;
      this.#post((now) => openedStream(this.#m, a.session, a.conn, last, undefined, now));
    } catch (err) {
      const f = this.#missing(a.session, a.conn, a.route, faultOf(err));
      this.#post((now) => openedStream(this.#m, a.session, a.conn, 0, f, now));
    }
  }

  #let(session: string, c: Conn): void {
    if (this.#conns.get(session) === c) this.#conns.delete(session);
    c.over = true;
    c.stream?.close();
  }

  #send(a: Extract<Action, { do: "send" }>): void {
    const c = this.#conns.get(a.session);
    if (!c?.stream || c.number !== a.conn) return;
    const to = a.entry.route; // a later action may change it
    void c.stream.apply(wireOf(a.entry, a.through)).then((r) => {
      if (c.over) return;
      if (r.err) r = { err: this.#missing(a.session, a.conn, to, r.err) };
      this.#post((now) => this.#m.replied(a.session, a.conn, this.#checked(a.entry, r), now));
    });
  }

  /**
   * Checks an answer that says only that there was one (pruned). The server prunes an outcome when this outbox has
   * acknowledged it, which it does once the outcome is stored. So either a former sender has just stored it, and it
   * is the answer; or another copy of this outbox did.
   */
  #checked(e: Entry, r: Reply): Reply {
    if (r.err || r.outcomes?.[0] === undefined || (r.outcomes[0].status !== "pruned" && r.outcomes[0].reason !== "pruned")) return r;
    const row = this.#store.tables.batches.get(e.id);
    if (!row) return r; // swept: nobody waits for it
    if (row.outcomes) return { outcomes: row.outcomes.filter((_, i) => travels(opsOf(row)[i]!)) };
    return { err: fault("outbox_diverged", `seq ${e.first} is done and its answer was stored, but not here: this outbox is a copy, or was restored from one: send what the session lacks in a new stream (Client.reconcile)`, e.first) };
  }

  /**
   * Checks an answer that a ref is not known yet. If the session's create made the ref, and
   * was answered, then the server has lost it, and waiting would be in vain. But the create may have been
   * answered after this answer, and a server that was started during another's last commit may see it late: so
   * several openings have to give it.
   */
  #missing(session: string, conn: number, to: Route, err: MooringError): MooringError {
    if (err.codeName === "revoked" && (this.#box.isReplaced(to.ref) || this.#box.isReplaced(to.space))) {
      return fault("not_yet_known", "the ref was rotated meanwhile: what is not recorded is sent under the new one");
    }
    if (err.codeName !== "not_yet_known" || to.space !== "" || this.#box.refRow(to.ref)?.role !== "owner") return err;
    const st = this.#store.tables.streams.get(session);
    if (!st || st.lastSeq === 0 || st.spaceRef !== "") return err;
    const doubts = this.#doubts.get(session) ?? new Set();
    this.#doubts.set(session, doubts.add(conn));
    if (doubts.size < doubtful) return err;
    return fault("server_behind", `the server does not know session ${session}, whose creation it has answered: ${restored}`);
  }

  // ---- Rows

  #entry(row: BatchRow, hold: number): Entry {
    const e: Entry = {
      num: row.num, id: row.id, session: row.session, via: row.via, atomic: row.atomic, first: row.first, n: travelling(row.ops),
      bytes: row.bytes, ops: row.ops, hold, route: noRoute, marked: row.state === "in_flight", attempts: row.attempts,
      under: "", unsure: false,
    };
    this.#find(e);
    return e;
  }

  /** Sets an entry's route, or why it has none. */
  #find(e: Entry): void {
    try {
      e.route = this.#box.routeOf(e.session, e.via, e.ops);
      e.problem = undefined;
    } catch (err) {
      e.problem = faultOf(err);
    }
  }

  /**
   * Works on the session's batches without a seq, in order: references to finished ops become values, batches
   * that cannot apply are finished, and up to so many others get seqs; with 0 the first is only reported. It stops
   * at a batch that waits for another stream. With no, none get seqs, those that have lose them, and those on the refused
   * route are denied, up to the first on another one.
   */
  #load(session: string, batches: number, bytes: number, no?: Refusal): void {
    const loaded = (ld: Loaded): void => {
      if (no) this.#post(() => refused(this.#m, session, ld.known));
      if (ld.known) return;
      for (const r of ld.done) this.#box.tell(r.id, r.outcomes!, true);
      this.#post((now) => {
        const entries = ld.rows.map(({ row, hold }) => this.#entry(row, hold));
        const head = ld.head && this.#entry(ld.head, 0);
        if (head) head.marked = true; // it is not sent as it is
        this.#m.looked(session, entries, head, ld.more, ld.blockedOn, makingOf(ld.stream), now);
        for (const r of ld.done) this.#m.finished(r.id, now);
      });
    };
    this.#store.update((t) => this.#planLoad(t, session, batches, bytes, no), loaded).catch((err: unknown) => {
      this.#trouble(err);
      if (no) setTimeout(() => this.#post(() => this.#load(session, batches, bytes, no)), storePause);
      else setTimeout(() => this.#post((now) => this.#m.looked(session, [], undefined, true, [], noRoute, now)), storePause);
    });
  }

  #planLoad(t: Tables, session: string, batches: number, bytes: number, no: Refusal | undefined): Plan<Loaded> {
    const ld: Loaded = { rows: [], head: undefined, more: false, blockedOn: [], stream: t.streams.get(session) ?? noStream(session), done: [] };
    const changes: Change[] = [], given = new Map<string, Earlier>(), stored = finderOf(t);
    if (this.#over || this.#moved(t)) return { changes, value: ld };
    let all = t.waiting(session, Math.max(batches, headRows) + 1);
    if (no) {
      if (ld.stream.lastSeq > 0) return { changes, value: { ...ld, known: no.why } };
      const back = t.whole(t.sequenced(session)).map((r): BatchRow => ({ ...r, first: 0, state: "pending", dropping: false, ops: dropped(r) }));
      for (const { id, first, state, dropping, ops } of back) changes.push({ t: "batch", k: id, p: { first, state, dropping, ops } });
      all = [...back, ...all].sort((a, b) => a.num - b.num);
    }
    const most = Math.max(batches, headRows);
    let size = 0;
    const some = t.whole(all.slice(0, most).filter((r, i) => (size += r.bytes) <= bytes || i === 0));
    ld.more = all.length > some.length;
    let seq = t.nextSeq(session);
    for (let row of some) {
      const res = resolve(row.ops, row.atomic, session, (op) => given.get(op) ?? stored(op), false);
      const denied = no && res.blockedOn.length === 0 && travelling(res.ops) > 0 && this.#goes(no.to, row);
      if (denied) res.ops = deny({ ...row, ops: res.ops }, no.why);
      if (travelling(res.ops) === 0) {
        row = { ...row, ops: res.ops };
        for (const c of this.#box.decide(t, row)) {
          changes.push(c);
          if (c.t === "stream" && "v" in c && c.v) ld.stream = c.v; // the route to a session that will not be made
        }
        row = { ...row, outcomes: mergeOutcomes(row.ops, []) };
        for (const k of row.ops.keys()) given.set(row.ops[k]!.id, earlierOf(row, k));
        ld.done.push(row);
        continue;
      }
      if (res.blockedOn.length > 0) {
        ld.blockedOn = res.blockedOn;
        ld.more = true;
        break;
      }
      if (no) {
        ld.more = true;
        break;
      }
      const p = res.changed ? { ops: res.ops, bytes: sizeOf(res.ops) } : {};
      row = { ...row, ...p };
      if (batches === 0) {
        if (res.changed) changes.push({ t: "batch", k: row.id, p });
        ld.head = row;
        ld.more = true;
        break;
      }
      if (ld.rows.length > 0 && (ld.rows.length >= batches || row.bytes > bytes)) {
        ld.more = true;
        break;
      }
      bytes -= row.bytes;
      row = { ...row, first: seq, state: "in_flight" };
      seq += travelling(row.ops);
      changes.push({ t: "batch", k: row.id, p: { ...p, first: row.first, state: "in_flight" } });
      for (const k of row.ops.keys()) given.set(row.ops[k]!.id, earlierOf(row, k));
      ld.rows.push({ row, hold: res.hold });
    }
    return { changes, value: ld };
  }

  /** Whether a batch has the route on which a stream was opened. */
  #goes(opened: Route, row: BatchRow): boolean {
    try {
      return serves(opened, this.#box.routeOf(row.session, row.via, row.ops));
    } catch {
      return false;
    }
  }

  /** Stores a batch's outcomes. making is the route to its session if this was its create and did not apply. */
  async #finish(e: Entry, outcomes: Outcome[], making: Route | undefined): Promise<void> {
    const good = e.ops.every((op, i) => stateOf(op, outcomes[i]!) === "acked"), most = this.#box.settings.keepBytes;
    await this.#insist((t): Plan<undefined> => {
      const row = t.batches.get(e.id);
      if (!row || row.state === "finished" || this.#moved(t)) return { changes: [], value: undefined };
      const stream: Partial<StreamRow> = { lastSeq: Math.max(t.streams.get(e.session)?.lastSeq ?? 0, lastSeqOf(e)) };
      const fits = good && row.bytes <= most;
      if (e.route.space !== "") Object.assign(stream, { spaceRef: making?.space ?? "", ownerRef: making?.ref ?? "" });
      return {
        changes: [
          ...(fits ? freeArguments(t, row, most) : []),
          { t: "batch", k: e.id, p: { ...(fits ? { kept: true } : { ops: good ? slimmed(e.ops) : e.ops }), state: "finished", finishedAt: Date.now(), outcomes, attempts: e.attempts + 1, nextRetryAt: 0, dropping: false } },
          streamChange(t, e.session, stream),
        ],
        value: undefined,
      };
    }, () => {
      this.#box.tell(e.id, outcomes, true);
      this.#post((now) => {
        this.#m.storedThrough(e.session, lastSeqOf(e), now);
        this.#m.finished(e.id, now);
      });
    });
  }

  /** Raises the incarnation, so that the next opening of a stream fences what was sent before. */
  async #raise(): Promise<void> {
    await this.#insist(
      (t): Plan<number> => this.#moved(t) ? { changes: [], value: 0 } : ({ changes: [{ t: "box", k: "box", p: raised(t.box!, 1) }], value: t.box!.incarnation + 1 }),
      (incarnation) => this.#post((now) => {
        this.#incarnation = incarnation;
        this.#m.raised(now);
      }),
    );
  }

  /**
   * Decides ops that were to be dropped after they had a seq: those beyond the server's last seq become
   * voids, durably, before anything is sent; the others stand.
   */
  async #settle(a: Extract<Action, { do: "settle" }>): Promise<void> {
    await this.#insist((t): Plan<Entry[]> => {
      const changes: Change[] = [], entries: Entry[] = [];
      if (this.#moved(t)) return { changes, value: entries };
      const rows = new Map(t.whole(a.entries.flatMap((e) => t.batches.get(e.id) ?? [])).map((r) => [r.id, r]));
      for (const e of a.entries) {
        const row = rows.get(e.id);
        if (!row || row.state === "finished") continue;
        const why = a.drops.get(e.num) ?? null;
        const ops = row.ops.map((op): OpRow => {
          const { dropAsked: asked, ...rest } = op;
          if (e.first <= a.through || !(asked || why) || !travels(op)) return rest;
          const verdict = why && !asked ? rejectedOutcome(op.id, why.codeName, why.reason) : undefined;
          return { ...rest, void: true, ...(verdict && { verdict }) };
        });
        changes.push({ t: "batch", k: e.id, p: { ops, dropping: false } });
        entries.push({ ...e, ops });
      }
      return { changes, value: entries };
    }, (entries) => this.#post((now) => this.#m.settled(a.session, a.conn, entries, now)));
  }
}

const makingOf = (s: StreamRow | undefined): Route => (s && s.spaceRef !== "" ? { ...noRoute, ref: s.ownerRef, space: s.spaceRef } : noRoute);

/** Removes the arguments of the oldest applied batches, to make room for another one's. */
function freeArguments(t: Tables, row: StoredRow, most: number): Change[] {
  const changes: Change[] = [];
  let bytes = t.keptBytes + row.bytes;
  for (const id of t.kept) {
    if (bytes <= most) break;
    const old = t.batches.get(id)!;
    bytes -= old.bytes;
    changes.push({ t: "batch", k: id, p: { ops: slimmed(opsOf(old)), kept: false } });
  }
  return changes;
}

/** Ops without their arguments. */
const slimmed = (ops: readonly (OpRow | BareOp)[]): OpRow[] => ops.map((o) => ({ id: o.id, method: o.method, args: [], ...(o.retries !== undefined && { retries: o.retries }) }));
