// The state machine of queues and streams, without storage, clock or socket. The sender calls it with events and does
// the actions that it puts into out, in order. It is the Go outbox's machine, and runs its transcripts.
//
// A stream is closed until there is something to send. Then it waits for one of a limited number of slots and for its
// host (if the host is down, only one stream tries), is opened, and keeps a window of batches in flight. Any error
// closes it; after a pause it is opened again and sends its unanswered batches again, the same ones in the
// same order: the ledger answers those it has recorded as duplicates. Opening, and errors, are in machine_open.ts.

import { fault, type MooringError } from "./fault.js";
import type { Outcome } from "./intent.js";
import { closeQuietly, fail, fenceEarly, type MachineHost, tryHost, tryOpen } from "./machine_open.js";
import { groundsOf, type Refusal, sentUnder } from "./machine_refused.js";
import { type OpRow, travels } from "./rows.js";

/** Fixed times, in milliseconds. */
export const ackIdle = 1000; // acked_through is sent without a batch after this time
export const idleClose = 5 * 60_000; // an idle stream is closed after this time
const fairTurn = 1000; // a busy stream gives up its slot after this time, if others wait for one
const recheckAfter = 1000; // how often a batch that waits for another stream is rechecked anyway
export const copyPoll = 2000; // a fork that the server is copying is asked for again after this time at most
const initialCwnd = 16; // batches that a stream may have in flight at first

/** How many windows of batches may have seqs. */
export const aheadFactor = 4;

/** Bounds of one stream's batches in flight, and of the number of streams. */
export interface Window {
  batches: number;
  bytes: number;
  streams: number;
}

export const defaultWindow: Window = { batches: 64, bytes: 4 << 20, streams: 128 };

/** How a stream is to be opened. */
export interface Route {
  readonly ref: string; // id of the ref to send through
  readonly space: string; // id of the space's ref, until the session is made
  readonly with: string; // id of a ref that must be live: fork's via
  readonly host: string; // the ref's address: streams of one host fail together
  readonly proof: string; // differs if any of the refs or secrets does
  readonly rotating?: boolean; // another ref is about to replace the ref: nothing is sent until it has
}

export const noRoute: Route = { ref: "", space: "", with: "", host: "", proof: "" };

/** A batch with seqs that has no outcome yet; as a stream's head, one without seqs (first is 0). */
export interface Entry {
  readonly num: number;
  readonly id: string;
  readonly session: string;
  readonly via: string;
  readonly atomic: boolean;
  readonly first: number;
  readonly n: number; // number of seqs
  readonly bytes: number;
  ops: readonly OpRow[];
  hold: number; // lowest seq of its stream that it refers to; 0: none
  route: Route;
  problem?: MooringError | undefined; // why there is no route
  marked: boolean; // its row has the state in flight
  attempts: number;
  under: string; // the authority of the openings on which it was sent; "": it was not sent
  unsure: boolean; // … or under several, or by a former sender: unknown
}

export const lastSeqOf = (e: Entry): number => e.first + e.n - 1;

/** Pauses before retries. */
export interface Backoff {
  next(): number;
  reset(): void;
}

/** The answer to one apply: an outcome per op, or an answer to the call, or the link's error. */
export interface Reply {
  outcomes?: readonly Outcome[];
  err?: MooringError;
}

export type Phase = "closed" | "opening" | "resolvingDrops" | "open"; // resolvingDrops: open, but a drop has to be decided first

/** The queue of one session. */
export interface Stream {
  readonly session: string;
  phase: Phase;
  conn: number; // the present opening's number; events of others are ignored
  opened: Route;
  queue: Entry[]; // with seqs, unanswered, in order
  sent: number; // batches of queue that were sent in this opening
  inflight: number; // their bytes
  queued: number; // bytes of queue
  holds: number; // entries of queue with a hold
  head: Entry | undefined; // the first batch without a seq, as of the last look
  backlog: boolean; // there may be rows without a seq
  asking: boolean; // the storage is being asked for them
  again: boolean; // … and more came in the meantime
  blockedOn: readonly string[]; // batches of other sessions that the head waits for; each may unblock it
  lookedAt: number;
  recheck: boolean;
  unstored: number[]; // last seqs of answered batches whose outcomes are not stored, in order
  stored: number; // outcomes are stored through here
  storedTo: number; // … and through here, once all before it are
  ackedTo: number; // … and the server knows
  ackAt: number;
  drops: Map<number, MooringError | null>; // batches with ops to void, with the error, or null if the user dropped them
  dropEarly: Set<number>; // batches to drop that were not in queue yet
  needRaise: boolean; // the incarnation must be raised before the next opening
  deciding: boolean; // the storage is deciding the drops: send nothing
  recorded: number; // the server's last seq at the last decision about drops
  refusal: Refusal | undefined; // the server refuses to make the stream: nothing is sent until that is settled here
  cwnd: number; // congestion window: batches that may be in flight
  acksAtCwnd: number; // answers since cwnd last grew
  sawOverload: boolean; // the server was overloaded once
  heard: boolean; // an answer came in this opening
  gaps: number; // in a row
  readonly backoff: Backoff;
  retryAt: number;
  stopped: MooringError | undefined;
  inReady: boolean;
  inWaiting: boolean;
  hostEpoch: number;
  since: number; // when it was opened
  idleSince: number;
}

/** The actions of the sender. */
export type Action =
  | { do: "look"; session: string } // read the session's first row without a seq
  | { do: "load"; session: string; batches: number; bytes: number } // give seqs to up to so many
  | { do: "open"; session: string; conn: number; route: Route; settle: boolean } // settle: also ask for the server's last seq
  | { do: "close"; session: string; conn: number }
  | { do: "send"; session: string; conn: number; entry: Entry; through: number }
  | { do: "ack"; session: string; conn: number; through: number }
  | { do: "finish"; entry: Entry; answer: readonly Outcome[]; making?: Route } // store the outcomes; making: how a session that was not made is reached
  | { do: "note"; entries: Entry[]; at: number; err: MooringError }
  | { do: "mark"; entry: Entry } // it was pending and is in flight now
  | { do: "stop"; session: string; err: MooringError | undefined }
  | { do: "raise" } // raise the incarnation
  | { do: "settle"; session: string; conn: number; through: number; drops: Map<number, MooringError | null>; entries: Entry[] }
  | { do: "refuse"; session: string; to: Route; why: MooringError } // the server refuses to make the stream: take the seqs back, end the ops that would go that way
  | { do: "fenced"; err: MooringError };

interface Alarm {
  at: number;
  s?: Stream;
  h?: MachineHost;
}

/** All streams of one term of sending. Times are milliseconds. */
export class Machine {
  readonly win: Window;
  readonly newBackoff: () => Backoff;
  readonly streams = new Map<string, Stream>();
  readonly unmade = new Map<string, Route>(); // sessions whose create did not apply, with their routes
  readonly hosts = new Map<string, MachineHost>();
  readonly blockedSessions = new Map<string, Set<string>>(); // batch → sessions that wait for it
  ready: Stream[] = []; // waiting for a slot
  openStreams = 0; // at most win.streams
  conns = 0;
  raising = false;
  isFenced = false;
  alarms: Alarm[] = []; // by time; obsolete ones do no harm
  out: Action[] = [];

  constructor(win: Window, newBackoff: () => Backoff) {
    this.win = win;
    this.newBackoff = newBackoff;
  }

  stream(session: string): Stream {
    let s = this.streams.get(session);
    if (s === undefined) {
      s = {
        session, phase: "closed", conn: 0, opened: noRoute, queue: [], sent: 0, inflight: 0, queued: 0, holds: 0, head: undefined,
        backlog: false, asking: false, again: false, blockedOn: [], lookedAt: -Infinity, recheck: false, unstored: [], stored: 0, storedTo: 0, ackedTo: 0,
        ackAt: 0, drops: new Map(), dropEarly: new Set(), needRaise: false, deciding: false, recorded: 0, refusal: undefined, cwnd: Math.min(initialCwnd, this.win.batches), acksAtCwnd: 0,
        sawOverload: false, heard: false, gaps: 0, backoff: this.newBackoff(), retryAt: 0, stopped: undefined, inReady: false,
        inWaiting: false, hostEpoch: 0, since: 0, idleSince: 0,
      };
      this.streams.set(session, s);
    }
    return s;
  }

  /** Loads a session's unanswered batches at the start of a term, in order. */
  recovered(session: string, entries: Entry[], making: Route, drops: Map<number, MooringError | null>, now: number): void {
    const s = this.stream(session);
    this.#know(session, making);
    for (const e of entries) e.unsure = true;
    this.#add(s, entries);
    if (drops.size > 0) s.drops = drops; // the takeover has raised the incarnation
    this.step(s, now);
  }

  /** Sessions may have rows without a seq. */
  found(sessions: Iterable<string>, now: number): void {
    for (const id of sessions) {
      const s = this.stream(id);
      if (s.blockedOn.length > 0 && now - s.lookedAt >= recheckAfter) this.unblock(s);
      else if (s.blockedOn.length > 0) this.#recheck(s);
      this.#more(s, now);
    }
  }

  #recheck(s: Stream): void {
    if (s.recheck) return;
    s.recheck = true;
    this.alarm({ at: s.lookedAt + recheckAfter, s });
  }

  #more(s: Stream, now: number): void {
    s.backlog = true;
    s.again = s.asking;
    this.step(s, now);
  }

  /** A batch was committed with its seqs. */
  sequenced(e: Entry, now: number): void {
    const s = this.stream(e.session);
    this.#add(s, [e]);
    fenceEarly(this, s, [e], now);
    this.step(s, now);
  }

  /** The answer to look and load: batches that have seqs now, the first one without, or the batches that it waits for. */
  looked(session: string, entries: Entry[], head: Entry | undefined, more: boolean, blockedOn: readonly string[], making: Route, now: number): void {
    const s = this.stream(session);
    s.asking = false;
    s.head = head;
    s.backlog = more || s.again;
    s.lookedAt = now;
    this.#know(session, making);
    this.#add(s, entries);
    s.blockedOn = blockedOn;
    for (const batch of blockedOn) {
      const who = this.blockedSessions.get(batch) ?? new Set();
      this.blockedSessions.set(batch, who.add(session));
    }
    if (blockedOn.length > 0 && s.again) this.#recheck(s);
    s.again = false;
    fenceEarly(this, s, entries, now);
    this.step(s, now);
  }

  #know(session: string, making: Route): void {
    if (making.space !== "") this.unmade.set(session, making);
  }

  #add(s: Stream, entries: Entry[]): void {
    if (s.queue.length === 0 && s.unstored.length === 0 && entries.length > 0) s.stored = Math.max(s.stored, entries[0]!.first - 1); // everything before is finished
    for (const e of entries) {
      s.queue.push(e);
      s.queued += e.bytes;
      if (e.hold > 0) s.holds++;
    }
  }

  /** A batch's outcomes are stored, here or elsewhere. */
  finished(batch: string, now: number): void {
    for (const session of this.blockedSessions.get(batch) ?? []) {
      const s = this.streams.get(session)!;
      this.unblock(s);
      this.#more(s, now);
    }
  }

  /** Removes a stream's waits for other batches. */
  unblock(s: Stream): void {
    for (const batch of s.blockedOn) {
      const who = this.blockedSessions.get(batch);
      who?.delete(s.session);
      if (who?.size === 0) this.blockedSessions.delete(batch);
    }
    s.blockedOn = [];
    s.recheck = false;
  }

  /** Outcomes are stored up to a seq. */
  storedThrough(session: string, through: number, now: number): void {
    const s = this.streams.get(session);
    if (!s) return;
    // A failed write is repeated, and later ones may finish before it.
    const place = s.unstored.indexOf(through);
    if (place >= 0) s.unstored.splice(place, 1);
    s.storedTo = Math.max(s.storedTo, through);
    if (place === 0) s.stored = Math.max(s.stored, through);
    if (s.unstored.length === 0) s.stored = Math.max(s.stored, s.storedTo);
    this.step(s, now);
  }

  /** How far the server may prune: stored outcomes to which no unanswered batch refers. */
  ackable(s: Stream): number {
    let through = s.stored;
    if (s.holds > 0) for (const e of s.queue) if (e.hold > 0) through = Math.min(through, e.hold - 1);
    return through;
  }

  /** Does everything that the stream can do now. */
  step(s: Stream, now: number): void {
    if (this.isFenced || s.stopped) return;
    if (s.phase === "open") this.#pump(s, now);
    else if (s.phase !== "closed") return;
    else if (s.refusal) {
      if (!s.asking) this.#ask(s, { do: "refuse", session: s.session, ...s.refusal });
    }
    else if (s.queue.length > 0 || s.head) tryOpen(this, s, now);
    else if (s.asking || s.blockedOn.length > 0) return;
    else if (s.backlog) this.#ask(s, { do: "look", session: s.session });
    else if (s.unstored.length === 0 && !s.needRaise) this.streams.delete(s.session);
  }

  #ask(s: Stream, a: Action): void {
    s.asking = true;
    s.again = false;
    this.out.push(a);
  }

  /** Sends as much as the window allows, fetches more, or notices that the stream is idle. */
  #pump(s: Stream, now: number): void {
    const over = this.ready.length > 0 && now - s.since >= fairTurn;
    if (over && s.sent === 0) {
      this.close(s, now);
      this.step(s, now);
      return;
    }
    while (s.sent < s.queue.length && !over) {
      const e = s.queue[s.sent]!;
      if (e.route.rotating) break;
      if (!serves(s.opened, e.route)) {
        if (s.sent === 0) {
          this.close(s, now);
          this.step(s, now);
          return;
        }
        break;
      }
      if (s.sent > 0 && (s.sent >= s.cwnd || s.inflight + e.bytes > this.win.bytes)) break;
      s.sent++;
      s.inflight += e.bytes;
      sentUnder(e, groundsOf(s.opened));
      s.ackedTo = Math.max(s.ackedTo, this.ackable(s));
      this.out.push({ do: "send", session: s.session, conn: s.conn, entry: e, through: s.ackedTo });
      if (!e.marked) {
        e.marked = true;
        this.out.push({ do: "mark", entry: e });
      }
    }
    if (s.backlog && !s.asking && s.blockedOn.length === 0 && !over) {
      const batches = aheadFactor * this.win.batches - s.queue.length, bytes = aheadFactor * this.win.bytes - s.queued;
      if (s.queue.length === 0 || (batches * 2 >= aheadFactor * this.win.batches && bytes * 2 >= aheadFactor * this.win.bytes)) {
        this.#ask(s, { do: "load", session: s.session, batches, bytes });
      }
    }
    if (s.queue.length > 0 || s.asking || (s.backlog && s.blockedOn.length === 0)) {
      s.idleSince = s.ackAt = 0;
      return;
    }
    if (s.idleSince === 0) {
      s.idleSince = now;
      this.alarm({ at: now + idleClose, s });
    }
    if (this.ready.length > 0) {
      this.close(s, now);
      this.step(s, now);
      return;
    }
    if (this.ackable(s) > s.ackedTo && s.ackAt === 0) {
      s.ackAt = now + ackIdle;
      this.alarm({ at: s.ackAt, s });
    }
  }

  /** Handles the answer to the first unanswered batch of this opening. */
  replied(session: string, conn: number, r: Reply, now: number): void {
    const s = this.streams.get(session);
    if (this.isFenced || !s || s.conn !== conn || s.phase !== "open" || s.sent === 0) return;
    const e = s.queue[0]!;
    const outcomes = r.outcomes ?? [];
    const err = r.err ?? (answers(e, outcomes) ? undefined : fault("internal", `the answer to batch ${e.id} does not fit it`));
    if (err) {
      fail(this, s, err, now);
      return;
    }
    this.hosts.get(s.opened.host)?.backoff.reset();
    s.backoff.reset();
    s.heard = true;
    s.gaps = 0;
    onAck(s, this.win.batches);
    s.queue.shift();
    s.sent--;
    s.inflight -= e.bytes;
    s.queued -= e.bytes;
    if (e.hold > 0) s.holds--;
    s.drops.delete(e.num);
    s.unstored.push(lastSeqOf(e));
    const act: Action = { do: "finish", entry: e, answer: outcomes };
    if (e.route.space !== "") {
      if (travels(e.ops[0]!) && outcomes[0]!.status === "applied") this.unmade.delete(session);
      else {
        this.unmade.set(session, e.route);
        act.making = e.route;
      }
    }
    this.out.push(act);
    this.step(s, now);
  }

  /** The incarnation was raised. */
  raised(now: number): void {
    this.raising = false;
    for (const s of this.inOrder()) {
      if (!s.needRaise) continue;
      s.needRaise = false;
      this.step(s, now);
    }
  }

  /** The batches as they are after settle. */
  settled(session: string, conn: number, entries: Entry[], now: number): void {
    const s = this.streams.get(session);
    if (!s) return;
    for (const e of entries) s.queue = s.queue.map((q) => (q.num === e.num ? e : q));
    s.deciding = false;
    if (s.conn === conn && s.phase === "resolvingDrops") s.phase = "open";
    this.step(s, now);
  }

  /** Lets a stopped stream try again. */
  resume(session: string, now: number): void {
    const s = this.streams.get(session);
    if (!s?.stopped) return;
    s.stopped = undefined;
    s.head = undefined; // its route may differ now
    this.out.push({ do: "stop", session, err: undefined });
    this.#more(s, now);
  }

  /** How many batches are in flight under a ref. */
  inFlightVia(ref: string): number {
    return [...this.streams.values()].reduce((n, s) => n + (s.phase !== "closed" && (s.opened.ref === ref || s.opened.space === ref) ? s.sent : 0), 0);
  }

  /** All streams in a fixed order, so that equal events give equal actions. */
  inOrder(): Stream[] {
    return [...this.streams.values()].sort((a, b) => (a.session < b.session ? -1 : 1));
  }

  /**
   * Ops without a seq were dropped: the batch for which a stream is to be opened, or was stopped, may be gone or
   * differ.
   */
  headsDropped(now: number): void {
    for (const s of this.inOrder()) {
      if (!s.head) continue;
      if (s.stopped) this.resume(s.session, now);
      else {
        s.head = undefined;
        this.#more(s, now);
      }
    }
  }

  /** Closes a stream and gives its slot to the next one. */
  close(s: Stream, now: number): void {
    this.acknowledge(s);
    closeQuietly(this, s);
    this.openReady(now);
  }

  acknowledge(s: Stream): void {
    s.ackAt = 0;
    const through = this.ackable(s);
    if (through > s.ackedTo) {
      s.ackedTo = through;
      this.out.push({ do: "ack", session: s.session, conn: s.conn, through });
    }
  }

  /** Opens streams that wait for a slot. */
  openReady(now: number): void {
    while (this.ready.length > 0 && this.openStreams < this.win.streams) {
      const next = this.ready.shift()!;
      next.inReady = false;
      if (this.streams.get(next.session) === next) this.step(next, now);
    }
  }

  alarm(a: Alarm): void {
    let i = this.alarms.length;
    while (i > 0 && this.alarms[i - 1]!.at > a.at) i--;
    this.alarms.splice(i, 0, a);
  }

  /** When tick is to be called next; undefined for never. */
  get wakeAt(): number | undefined {
    return this.alarms[0]?.at;
  }

  /** Does everything that is due. */
  tick(now: number): void {
    while (this.alarms.length > 0 && this.alarms[0]!.at <= now) {
      const { s, h } = this.alarms.shift()!;
      if (h) {
        tryHost(this, h, now);
        continue;
      }
      if (!s || this.streams.get(s.session) !== s) continue;
      if (s.phase === "open" && s.ackAt > 0 && now >= s.ackAt) this.acknowledge(s);
      if (s.phase === "open" && s.idleSince > 0 && now - s.idleSince >= idleClose) this.close(s, now);
      if (s.recheck && now - s.lookedAt >= recheckAfter) {
        this.unblock(s);
        this.#more(s, now);
        continue;
      }
      this.step(s, now);
    }
  }
}

/** Whether a stream opened on one route can carry a batch with another. */
export const serves = (r: Route, want: Route): boolean =>
  r.ref === want.ref && (want.space === "" || r.space === want.space) && (want.with === "" || r.with === want.with);

// onAck adapts the congestion window to a server's capacity: slow start, then additive increase and multiplicative decrease
// (RFC 5681, section 3.1, by batches). One batch too many costs little; many are all sent again. fail does the decrease.
function onAck(s: Stream, window: number): void {
  s.acksAtCwnd++;
  if (!s.sawOverload || s.acksAtCwnd >= s.cwnd) {
    s.cwnd = Math.min(s.cwnd + 1, window);
    s.acksAtCwnd = 0;
  }
}

/** Whether the outcomes are of the entry's ops. */
function answers(e: Entry, outs: readonly Outcome[]): boolean {
  const ids = e.ops.filter(travels).map((o) => o.id);
  return outs.length === e.n && ids.every((id, i) => outs[i]!.op === id);
}
