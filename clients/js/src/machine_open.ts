// The machine's other half: opening streams, errors, and dropping ops that may have been sent.

import { fault, isTransient, type MooringError } from "./fault.js";
import { copyPoll, type Backoff, type Entry, type Machine, type Stream } from "./machine.js";
import { isRefused } from "./machine_refused.js";
import { travels } from "./rows.js";

/** The state that streams of one host share. */
export interface MachineHost {
  readonly name: string;
  down: boolean;
  epoch: number; // raised when the host goes down
  probe: Stream | undefined;
  retryAt: number;
  readonly backoff: Backoff;
  waiting: Stream[];
}

function hostOf(m: Machine, name: string): MachineHost {
  let h = m.hosts.get(name);
  if (h === undefined) {
    h = { name, down: false, epoch: 0, probe: undefined, retryAt: 0, backoff: m.newBackoff(), waiting: [] };
    m.hosts.set(name, h);
  }
  return h;
}

/** The batch that the stream is opened for. */
export const nextOf = (s: Stream): Entry | undefined => s.queue[0] ?? s.head;

/** Opens a stream that has something to send, if its pause is over, its host is not down and there is a slot. */
export function tryOpen(m: Machine, s: Stream, now: number): void {
  if (now < s.retryAt) {
    m.alarm({ at: s.retryAt, s });
    return;
  }
  if (s.deciding) return;
  if (s.needRaise) {
    if (!m.raising) {
      m.raising = true;
      m.out.push({ do: "raise" });
    }
    return;
  }
  const e = nextOf(s)!;
  if (e.problem) {
    s.stopped = e.problem;
    m.out.push({ do: "stop", session: s.session, err: e.problem });
    return;
  }
  let to = e.route;
  if (to.rotating) return; // refsChanged continues
  const h = hostOf(m, to.host);
  if (h.down && h.probe !== s && (h.probe || now < h.retryAt)) {
    if (!s.inWaiting) {
      s.inWaiting = true;
      h.waiting.push(s);
    }
    return;
  }
  if (m.openStreams >= m.win.streams && !closeIdle(m, now)) {
    if (!s.inReady) {
      s.inReady = true;
      m.ready.push(s);
    }
    return;
  }
  if (h.down) h.probe = s;
  const making = m.unmade.get(s.session);
  if (making && to.space === "" && making.ref === to.ref) to = { ...to, space: making.space };
  m.openStreams++;
  m.conns++;
  s.phase = "opening";
  s.conn = m.conns;
  s.opened = to;
  s.hostEpoch = h.epoch;
  s.heard = false;
  s.sent = s.inflight = 0;
  m.out.push({ do: "open", session: s.session, conn: s.conn, route: to, settle: s.drops.size > 0 });
}

/** Closes the open stream that has been idle for longest. */
function closeIdle(m: Machine, now: number): boolean {
  let oldest: Stream | undefined;
  for (const s of m.streams.values()) {
    if (s.phase === "open" && s.idleSince > 0 && (!oldest || s.idleSince < oldest.idleSince)) oldest = s;
  }
  if (!oldest) return false;
  m.acknowledge(oldest);
  closeQuietly(m, oldest);
  m.step(oldest, now);
  return true;
}

export function closeQuietly(m: Machine, s: Stream): void {
  m.openStreams--;
  s.phase = "closed";
  s.sent = s.inflight = 0;
  s.idleSince = s.ackAt = 0;
  const h = hostOf(m, s.opened.host);
  if (h.probe === s) {
    h.probe = undefined;
    m.alarm({ at: h.retryAt, h });
  }
  m.out.push({ do: "close", session: s.session, conn: s.conn });
}

/** The answer to open. lastSeq counts only if settle was set. */
export function openedStream(m: Machine, session: string, conn: number, lastSeq: number, err: MooringError | undefined, now: number): void {
  const s = m.streams.get(session);
  if (m.isFenced || !s || s.conn !== conn || s.phase !== "opening") return;
  if (err) {
    fail(m, s, err, now);
    return;
  }
  const h = hostOf(m, s.opened.host);
  if (h.probe === s) h.probe = undefined;
  s.phase = "open";
  s.since = now;
  if (s.drops.size > 0) {
    s.phase = "resolvingDrops";
    startSettling(m, s, lastSeq);
  }
  if (h.down) {
    h.down = false;
    release(m, h, now);
  }
  m.step(s, now);
}

/** Lets all streams of a host continue. */
function release(m: Machine, h: MachineHost, now: number): void {
  const waiting = h.waiting;
  h.waiting = [];
  for (const s of waiting) {
    s.inWaiting = false;
    if (m.streams.get(s.session) === s) m.step(s, now);
  }
}

/** Lets one stream try a host that is down. */
export function tryHost(m: Machine, h: MachineHost, now: number): void {
  while (h.down && !h.probe && h.waiting.length > 0 && now >= h.retryAt) {
    const s = h.waiting.shift()!;
    s.inWaiting = false;
    if (m.streams.get(s.session) === s) m.step(s, now);
  }
}

/** An open stream has ended. */
export function broken(m: Machine, session: string, conn: number, now: number): void {
  const s = m.streams.get(session);
  if (m.isFenced || !s || s.conn !== conn || s.phase === "closed") return;
  fail(m, s, fault("disconnected", "the link broke"), now);
}

/** Links are back: all pauses end. */
export function wake(m: Machine, now: number): void {
  for (const h of m.hosts.values()) {
    h.retryAt = now;
    h.backoff.reset();
    tryHost(m, h, now);
  }
  for (const s of m.inOrder()) {
    s.retryAt = 0;
    if (s.phase === "closed") m.step(s, now);
  }
}

/** The advice for a server that has lost outcomes it answered. */
export const restored = "it was restored to an earlier time and nothing more is sent: restore its newer data, or send what the session lacks again (Client.reconcile)";

/** The classes of errors. */
export type Verdict =
  | "tryLink" // the link to the server: all streams of the host wait
  | "tryStream" // this stream waits
  | "giveUp" // it stops until someone decides
  | "leaseLost" // this process must stop sending
  | "rewind" // seqs are missing: send from the first unanswered one
  | "unsendable"; // the batch cannot be sent: voids replace it

/** The class of an error. Unknown errors are retried. */
export function judge(err: MooringError): Verdict {
  switch (err.codeName) {
    case "fenced": return "leaseLost";
    case "gap": return "rewind";
    case "disconnected": case "unavailable": case "draining": case "canceled": return "tryLink";
    case "internal": case "disk_full": case "none": return "tryStream";
    case "too_large": case "malformed": return "unsendable";
  }
  return isTransient(err.codeName) ? "tryStream" : "giveUp";
}

/** Closes a stream and decides how it continues. */
export function fail(m: Machine, s: Stream, err: MooringError, now: number): void {
  let what = judge(err);
  let tried = s.queue.slice(0, s.sent);
  const first = nextOf(s);
  if (tried.length === 0 && first) tried = [first];
  const { heard } = s, sending = s.phase === "open" && s.sent > 0;
  if (what === "leaseLost") {
    m.isFenced = true;
    m.out.push({ do: "fenced", err });
    return;
  }
  closeQuietly(m, s);
  let retry = now;
  const h = hostOf(m, s.opened.host);
  const answered = what !== "tryLink" && h.down; // the host has answered
  if (answered) h.down = false;
  switch (what) {
    case "tryLink":
      if (heard) break; // it worked until now: retry at once, then with pauses
      if (s.hostEpoch === h.epoch) {
        h.epoch++;
        h.down = true;
        h.retryAt = now + h.backoff.next();
        m.alarm({ at: h.retryAt, h });
      }
      retry = h.retryAt;
      break;
    case "rewind":
      if (s.queue.length > 0 && err.at > 0 && err.at < s.queue[0]!.first) {
        what = "giveUp";
        err = fault("server_behind", `the server expects seq ${err.at}, and outcomes up to ${s.queue[0]!.first - 1} are stored here: ${restored}`, err.at);
        break;
      }
      if (++s.gaps > 1) retry = now + s.backoff.next();
      break;
    case "unsendable":
      // It did not concern a batch, there is nothing to give up, or the server has recorded the batch and cannot repeat its answer.
      if (!sending || allVoid(s.queue[0]!) || s.queue[0]!.first <= s.recorded) what = "giveUp";
      else askDrop(s, s.queue[0]!.num, err);
      break;
    case "tryStream":
      if (err.codeName === "overloaded" && sending) {
        s.cwnd = Math.max(Math.floor(tried.length / 2), 1);
        s.acksAtCwnd = 0;
        s.sawOverload = true;
      }
      retry = now + (err.copying ? Math.min(s.backoff.next(), copyPoll) : s.backoff.next());
      break;
  }
  if (what === "giveUp" && isRefused(s, err)) {
    s.refusal = { to: s.opened, why: err };
    s.retryAt = 0;
    m.step(s, now);
    m.openReady(now);
    if (answered) release(m, h, now);
    return;
  }
  if (what === "giveUp") {
    s.stopped = err;
    m.out.push({ do: "stop", session: s.session, err });
    retry = 0;
  }
  s.retryAt = retry;
  for (const e of tried) e.attempts++;
  if (tried.length > 0) m.out.push({ do: "note", entries: tried, at: retry, err });
  if (what === "tryLink" && h.down) s.retryAt = 0; // the host's pause counts
  m.step(s, now);
  m.openReady(now);
  if (answered) release(m, h, now);
}

/** Whether the batch has only voids. */
const allVoid = (e: Entry): boolean => e.ops.every((o) => !travels(o) || o.void === true);

/**
 * Drops ops of a batch with seqs. They may have been sent and may still be on the way, so a higher incarnation fences
 * them, and then the server's last seq tells which it has.
 */
export function dropAsked(m: Machine, session: string, num: number, now: number): void {
  const s = m.streams.get(session);
  if (!s) return; // its outcome is stored
  if (s.queue.some((e) => e.num === num)) fence(m, s, num, now);
  else s.dropEarly.add(num); // its outcome is being stored, or it has its seqs and is not in queue yet
}

/** Closes a stream, so that a batch of its queue can be dropped. */
function fence(m: Machine, s: Stream, num: number, now: number): void {
  if (s.phase !== "closed") closeQuietly(m, s);
  askDrop(s, num, null);
  m.step(s, now);
  m.openReady(now);
}

/** Applies requests for entries that came before them. */
export function fenceEarly(m: Machine, s: Stream, entries: readonly Entry[], now: number): void {
  for (const e of entries) if (s.dropEarly.delete(e.num)) fence(m, s, e.num, now);
}

function askDrop(s: Stream, num: number, why: MooringError | null): void {
  s.drops.set(num, why);
  s.needRaise = true;
}

/** Decides a stream's drops: what the server has recorded stands. */
function startSettling(m: Machine, s: Stream, lastSeq: number): void {
  const drops = s.drops;
  s.drops = new Map();
  s.deciding = true;
  s.recorded = lastSeq;
  m.out.push({ do: "settle", session: s.session, conn: s.conn, through: lastSeq, drops, entries: s.queue.filter((e) => drops.has(e.num)) });
}
