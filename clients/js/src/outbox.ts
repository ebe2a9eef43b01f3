// The outbox: commits are durable and are sent, here or by the process that holds the storage's sending right (sender.ts),
// until every op has its outcome. This file has the callers' methods: commit, drop, retry, list, leaving a stream, and refs;
// waiting is in waiting.ts.

import { clip, fault, MooringError } from "./fault.js";
import { checkIntent, checkSize, defaultLimits, needs, type Outcome } from "./intent.js";
import { abandoned, type Left, reconciled } from "./leave.js";
import type { Held, Link, StreamRequest } from "./link.js";
import { finderOf, olderSends, sizeOf, streamChange } from "./lookup.js";
import { creates } from "./methods.js";
import { defaultWindow, noRoute, type Route } from "./machine.js";
import { listOps, statusOf } from "./outbox_status.js";
import { type Committed, type NewBatch, type OutboxOptions, type OutboxRow, type OutboxStatus, type Settings, type Standstill } from "./outbox_types.js";
import type { Log, Reconciled, Reconciliation } from "./reconcile.js";
import { isSession, isSpace, Ref, streamSecret, targetOf } from "./ref.js";
import { refersOutside, resolve, type Resolution } from "./resolve.js";
import {
  type BatchRow, cascade, mergeOutcomes, noStream, type OpRow, type OpState, opsOf, outdated, raised, type RefRow, type Role, settle,
  travelling, voidedOutcome,
} from "./rows.js";
import { Sender } from "./sender.js";
import type { Change, Plan, Store, Tables } from "./store.js";
import { randomBytes, toBase64url } from "./text.js";
import { batchOf, isULID, newBatchID, newULID, opID } from "./ulid.js";
import { Waits } from "./waiting.js";

/** An open outbox. */
export class Outbox {
  readonly settings: Settings;
  /** Called when the outbox is closed; a set, because AbortSignals warn of many listeners. */
  readonly onClose = new Set<() => void>();
  readonly #store: Store;
  readonly #waits: Waits;
  readonly #life = new AbortController();
  readonly #ending: Promise<void>[] = [];
  #sender: Sender | undefined;
  #sweep: ReturnType<typeof setInterval> | undefined;
  #refsSeen = -1;

  private constructor(store: Store, options: OutboxOptions) {
    this.#store = store;
    this.settings = {
      limits: { ...defaultLimits, rows: 1_000_000, bytes: 1 << 30, ...options.limits },
      window: { ...defaultWindow, ...options.window },
      backoff: { initial: 200, max: 30_000, factor: 2, jitter: 0.5, ...options.backoff },
      keep: options.keep ?? 30 * 24 * 3600_000,
      keepBytes: options.keepBytes ?? 32 << 20,
      log: options.log ?? (() => {}),
      onWaiting: options.onWaiting,
    };
    this.#waits = new Waits(store.tables, this.settings, this.#life.signal);
    store.changed = () => this.#othersWrote();
  }

  /** Opens the outbox of a store, making it if there is none. The outbox closes the store. */
  static async open(store: Store, options: OutboxOptions = {}): Promise<Outbox> {
    const box = new Outbox(store, options);
    if (store.tables.box?.old === undefined) await store.update((t) => ({ changes: begun(t), value: undefined }));
    return box;
  }

  /** The outbox's id. */
  get id(): string {
    return this.#store.tables.box!.id;
  }

  get tables(): Tables {
    return this.#store.tables;
  }

  /** Fires when the outbox is closed. */
  get life(): AbortSignal {
    return this.#life.signal;
  }

  /** Sends commits, of this tab or others, whenever nobody else does, until the outbox is closed. */
  run(link: Link): void {
    if (this.#sweep !== undefined) throw fault("usage", "this outbox is running already");
    this.#sweep = setInterval(() => void this.#sweepOld().catch(() => {}), 3600_000);
    (this.#sweep as { unref?: () => void }).unref?.();
    this.#ending.push(this.#send(link));
  }

  async #send(link: Link): Promise<void> {
    const life = this.#life.signal;
    try {
      await this.#store.lead(life);
      await this.#sweepOld().catch(() => {});
      for (let step = 1; !life.aborted; ) {
        const sender = await Sender.begin(this, this.#store, link, step, (s) => { this.#sender = s; });
        if (life.aborted) sender.end();
        const end = await sender.ended;
        this.#sender = undefined;
        if (end === "closed" || life.aborted) return;
        if (end === "left") {
          step = 1;
          continue;
        }
        // The server knows a higher incarnation than this outbox: its rows are older than what was sent. Raise it
        // in growing steps.
        step *= 2;
        this.settings.log("the server has seen a newer incarnation of this outbox");
        await new Promise((r) => setTimeout(r, this.settings.backoff.initial));
      }
    } catch (err) {
      if (!life.aborted) this.settings.log(`the outbox's sender ended: ${String(err)}`);
    }
  }

  /** Wakes the sender: links are back. */
  wake(): void {
    this.#sender?.wake();
  }

  /** Ends sending, waits until running writes are durable, and closes the storage. */
  async close(): Promise<void> {
    if (this.#life.signal.aborted) return;
    this.#life.abort(fault("canceled", "the outbox is closed"));
    this.#waits.lookAgain();
    for (const f of [...this.onClose]) f();
    if (this.#sweep !== undefined) clearInterval(this.#sweep);
    this.#sender?.end();
    await Promise.all(this.#ending);
    await this.#store.close();
  }

  // ---- Commit

  /**
   * Makes a batch durable; it needs no server. A batch that can never be sent is refused, and nothing is stored: malformed, too_large,
   * bad_reference, not_found (no ref to send through), outbox_full, disk_full. References to known results
   * become values here; an op that refers to one that did not apply is accepted and skipped at once.
   */
  async commit(batch: NewBatch): Promise<Committed> {
    this.#life.signal.throwIfAborted();
    const id = batch.id ?? newBatchID();
    const ops = this.#shape(id, batch);
    this.routeOf(batch.session, batch.via ?? "", ops);
    for (const ref of batch.held ?? []) {
      const row = this.refRow(ref.id);
      if (row && (row.role === "rotated" ? row.external !== ref.hashText : Ref.parse(row.text).secretText !== ref.secretText)) {
        throw fault("unknown_ref", `another secret is stored here for ref ${ref.id}, and nothing is committed under that one: if the ref you have is the right one, drop the other first`);
      }
    }
    const row: Omit<BatchRow, "num" | "ops" | "bytes"> = {
      id, session: batch.session, via: batch.via ?? "", atomic: batch.atomic ?? false, created: Date.now(), state: "pending", first: 0,
      attempts: 0, nextRetryAt: 0, lastError: "", finishedAt: 0, outcomes: null, dropping: false,
    };
    await this.#store.update((t) => this.#planCommit(t, row, ops), ({ row: made, res }) => {
      if (made === undefined) return; // it was stored before
      if (made.outcomes) this.tell(made.id, made.outcomes, true);
      else if (made.first > 0) this.#sender?.sequenced(made, res.hold);
      else this.#sender?.found([made.session]);
    });
    return { batch: id, ops: ops.map((o) => o.id) };
  }

  #planCommit(t: Tables, base: Omit<BatchRow, "num" | "ops" | "bytes">, ops: OpRow[]): Plan<{ row: BatchRow | undefined; res: Resolution }> {
    const there = t.batches.get(base.id);
    let res: Resolution = { ops, changed: false, blockedOn: [], hold: 0, near: [], loose: false };
    if (there) {
      const had = opsOf(there);
      const same = there.session === base.session && there.atomic === base.atomic && had.length === ops.length &&
        had.every((o, i) => o.id === ops[i]!.id && (o.method === ops[i]!.method || o.void === true));
      if (!same) throw fault("already_exists", `batch id ${base.id} was used before for another batch`);
      return { changes: [], value: { row: undefined, res } };
    }
    for (const op of ops) {
      if (t.findOp(op.id)) throw fault("already_exists", `op id ${op.id} was used before`);
      if (op.retries !== undefined) this.#checkRetry(t, op.retries);
    }
    if (refersOutside(ops)) {
      res = resolve(ops, base.atomic, base.session, finderOf(t), true);
      if (creates(ops[0]!.method)) this.routeOf(base.session, base.via, res.ops);
    }
    let row: BatchRow = { ...base, num: t.box!.nextNum, ops: res.ops, bytes: sizeOf(res.ops) };
    const n = travelling(row.ops), changes: Change[] = [];
    if (n === 0) { // every op was skipped: no server needs to see them
      row = { ...row, state: "finished", finishedAt: Date.now(), outcomes: mergeOutcomes(row.ops, []) };
    } else {
      this.#checkRoom(t, row);
      const clear = res.blockedOn.length === 0 && !res.loose && n === row.ops.length && t.waiting(row.session, 1).length === 0;
      if (clear && this.#sender?.takes(t, row)) row = { ...row, first: t.nextSeq(row.session), state: "in_flight" };
    }
    changes.push({ t: "batch", k: row.id, v: row }, { t: "box", k: "box", p: { nextNum: row.num + 1 } });
    for (const op of row.ops) {
      if (batchOf(op.id) !== row.id) changes.push({ t: "op", k: op.id, v: row.id });
      if (op.retries !== undefined) changes.push({ t: "retry", k: op.retries, v: op.id });
    }
    return { changes, value: { row, res } };
  }

  #checkRoom(t: Tables, row: BatchRow): void {
    const lim = this.settings.limits;
    if (t.unfinishedOps + row.ops.length > lim.rows || t.unfinishedBytes + row.bytes > lim.bytes) {
      throw fault("outbox_full", `the outbox has ${t.unfinishedOps} unfinished ops in ${t.unfinishedBytes} bytes, its bounds are ${lim.rows} and ${lim.bytes}: wait until it has drained, or drop some`);
    }
  }

  #checkRetry(t: Tables, old: string): void {
    const e = finderOf(t)(old);
    if (!e) throw fault("not_found", `op ${old}, which is to be retried, is not in this outbox`);
    if (!e.outcome || e.outcome.status === "applied") throw fault("usage", `op ${e.id} did not fail: there is nothing to retry`);
    if (e.id !== old) throw fault("already_exists", `op ${old} was retried as ${e.id}: retry that one`);
  }

  #shape(id: string, batch: NewBatch): OpRow[] {
    if (!isULID(id)) throw fault("malformed", "the batch id is not a ULID: leave it out or use newBatchID");
    if (!isSession(batch.session)) throw fault("malformed", `${JSON.stringify(clip(batch.session))} is not a session id (ses_ and a ULID)`);
    if (batch.ops.length === 0) throw fault("malformed", "the batch has no ops");
    const lim = this.settings.limits;
    const ops = batch.ops.map((op, i): OpRow => ({
      id: op.id ?? opID(id, i), method: op.method, args: [...op.args], ...(op.dependsOn?.length && { dependsOn: [...op.dependsOn] }),
      ...(op.expected && { expected: op.expected }), ...(op.retries !== undefined && { retries: op.retries }),
    }));
    checkSize(ops, lim);
    const place = new Map<string, number>();
    for (const [i, op] of ops.entries()) {
      if (!isULID(op.id)) throw fault("malformed", `the id of op ${i + 1} is not a ULID: leave it out or use opID`);
      if (place.has(op.id)) throw fault("malformed", `op id ${op.id} is in the batch twice`);
      place.set(op.id, i);
    }
    for (const [i, op] of ops.entries()) {
      try {
        checkIntent(op, lim);
      } catch (err) {
        if (err instanceof MooringError) throw fault(err.codeName, `op ${op.id} (${clip(String(op.method))}): ${err.reason}`);
        throw err;
      }
      if (creates(op.method) && i > 0) throw fault("malformed", `op ${i + 1}: ${op.method} must be the first op of its session`);
      for (const to of needs(op)) {
        const j = place.get(to);
        if (j !== undefined && j >= i) throw fault("bad_reference", `op ${i + 1} refers to op ${j + 1}, which does not come before it`);
      }
    }
    return ops;
  }

  // ---- Waiting (waiting.ts)

  /**
   * Waits until every op of the batch has its outcome, and returns them in order: the same in every process, for as
   * long as the ticket lasts. not_found for an unknown batch; a Standstill if the stream of its session has stopped,
   * or every stream with an op that it needs.
   */
  async wait(batch: string, signal?: AbortSignal): Promise<readonly Outcome[]> {
    if (!this.tables.batches.has(batch)) await this.#store.refresh(); // another tab may have just committed it
    return this.#waits.wait(batch, signal);
  }

  /** Waits until nothing is unfinished, whoever sends. If all that is left has stopped until someone decides, it throws a Standstill. */
  drain(progress?: (done: number, total: number) => void, signal?: AbortSignal): Promise<void> {
    return this.#waits.drain(progress, signal);
  }

  /** Passes a batch's outcomes to its waiters. stored: the rows have them. */
  tell(batch: string, outcomes: readonly Outcome[], stored: boolean): void {
    this.#waits.tell(batch, outcomes, stored);
  }

  /** Makes all waiters check again. */
  lookAgain(): void {
    this.#waits.lookAgain();
  }

  #othersWrote(): void {
    this.#sender?.othersWrote();
    if (this.tables.refsVersion !== this.#refsSeen) {
      this.#refsSeen = this.tables.refsVersion;
      this.#sender?.refsChanged();
      if (this.#sender) for (const [id, by] of this.tables.rotating) if (!this.tables.refs.get(by)!.drained) void this.#drained(id).catch(() => {});
    }
    this.#waits.lookAgain();
  }

  // ---- Listing, dropping and retrying

  /** Counts ops by state and lists the sessions that have unfinished ones. */
  status(): OutboxStatus {
    return statusOf(this.tables, this.#sender !== undefined);
  }

  /** The ops in the outbox, in the order in which they were committed. */
  list(which: { session?: string; batch?: string; states?: OpState[] } = {}): OutboxRow[] {
    return listOps(this.tables, which);
  }

  /**
   * Gives up an unfinished op. Without a seq it is void at once, and ops that need it are skipped. With one it may have been
   * sent: a void replaces it unless the server has recorded it, which the sender finds out; if it has, its
   * outcome stands. The other ops of an atomic batch are given up with it. not_found; usage for a finished op.
   */
  async drop(op: string): Promise<void> {
    await this.#store.update((t): Plan<{ asked?: BatchRow; decided?: BatchRow; row: BatchRow }> => {
      const found = t.findOp(op);
      if (!found) throw fault("not_found", `op ${clip(op)} is not in this outbox`);
      const [row] = t.whole([found.row]) as [BatchRow], { place } = found, own = row.ops[place]!;
      if (row.state === "finished" || own.verdict || own.void) throw fault("usage", `op ${op} is finished: there is nothing to drop`);
      const ops = [...row.ops];
      if (row.first > 0) {
        ops[place] = { ...own, dropAsked: true };
        return { changes: [{ t: "batch", k: row.id, p: { ops, dropping: true } }], value: { asked: row, row } };
      }
      settle(ops, row.atomic, place, voidedOutcome(op));
      cascade(ops, row.atomic);
      if (travelling(ops) > 0) return { changes: [{ t: "batch", k: row.id, p: { ops } }], value: { row } };
      const changes = this.decide(t, { ...row, ops });
      return { changes, value: { decided: { ...row, ops, outcomes: mergeOutcomes(ops, []) }, row } };
    }, ({ asked, decided, row }) => {
      if (asked) this.#sender?.dropAsked(asked.session, asked.num);
      else this.#sender?.headsDropped();
      if (decided) this.tell(decided.id, decided.outcomes!, true);
      this.#sender?.finished(row.id);
      this.#sender?.found([row.session]);
    });
  }

  /** The changes that finish a row whose ops all have local outcomes. */
  decide(t: Tables, row: BatchRow): Change[] {
    const changes: Change[] = [{
      t: "batch", k: row.id,
      p: { ops: row.ops, state: "finished", finishedAt: Date.now(), outcomes: mergeOutcomes(row.ops, []), nextRetryAt: 0, dropping: false },
    }];
    if (creates(row.ops[0]!.method)) {
      // The session will not be made; later ops still have to reach a server that says so.
      const to = this.#tryRoute(row.session, row.via, row.ops);
      if (to) changes.push(streamChange(t, row.session, { spaceRef: to.space, ownerRef: to.ref }));
    }
    return changes;
  }

  #tryRoute(session: string, via: string, ops: readonly OpRow[]): Route | undefined {
    try {
      return this.routeOf(session, via, ops);
    } catch {
      return undefined;
    }
  }

  /**
   * Commits an op that failed, was skipped or dropped again, in a new batch under a new op id, with the old id
   * as what it retries. References to the old op that are committed later follow the new one.
   */
  async retry(op: string): Promise<Committed> {
    const { row, old } = await this.#store.look((t) => {
      const found = t.findOp(op);
      if (!found) throw fault("not_found", `op ${clip(op)} is not in this outbox`);
      const [row] = t.whole([found.row]) as [BatchRow], old = row.ops[found.place]!, outcome = row.outcomes?.[found.place] ?? old.verdict;
      if (!outcome || outcome.status === "applied") throw fault("usage", `op ${op} did not fail: there is nothing to retry`);
      return { row, old };
    });
    const { method, args, dependsOn, expected } = old;
    return this.commit({ session: row.session, via: row.via, ops: [{ method, args, dependsOn, expected, retries: op }] });
  }

  // ---- Leaving a stream that cannot continue

  /** A batch with its ops' arguments; undefined if it is not in the outbox. */
  whole(batch: string): Promise<BatchRow | undefined> {
    return this.#store.look((t) => {
      const row = t.batches.get(batch);
      return row && t.whole([row])[0];
    });
  }

  /** The sessions of which the outbox has ops, in order of their first. */
  sessions(): string[] {
    return [...new Set([...this.tables.batches.values()].sort((a, b) => a.num - b.num).map((r) => r.session))];
  }

  /** Why nothing more of a session is sent until someone decides; undefined if its stream runs, as far as known. */
  stopped(session: string): Standstill | undefined {
    return this.#waits.standstill(session);
  }

  /**
   * Gives up the unfinished ops of a session and begins another stream for it, in which later commits are sent.
   * The ops end as void, and ops of other sessions that need one of them as skipped. Whether the server has applied
   * those with a seq will not be known here. Returns the ops that ended. not_found if the outbox has nothing of the session.
   */
  async abandon(session: string): Promise<string[]> {
    await this.mayLeave();
    const { ops } = await this.#leave(session, (t) => abandoned(this, t, session));
    return ops;
  }

  /** Throws in_use while a tab sends that would continue a replaced stream. */
  async mayLeave(): Promise<void> {
    await this.#store.refresh();
    if (outdated(this.tables.box!) && (await this.#store.othersSend())) throw fault("in_use", `${olderSends}, and try again`);
  }

  /** Begins the record of a session's log, which is to be read after it. */
  newLog(session: string): Log {
    const answered = new Set([...this.tables.batches.values()].filter((r) => r.session === session && r.state === "finished").map((r) => r.id));
    return { ops: new Map(), base: 0, gone: false, fence: 0, last: 0, agrees: false, answered };
  }

  /** Returns what reconcile would do, without doing it. */
  planReconcile(session: string, log: Log, expecting = false): Promise<Reconciliation> {
    return this.#store.look((t) => this.#reconciliation(session, log, this.stopped(session), reconciled(this, t, session, log, expecting)));
  }

  /**
   * Commits ops again that applied but are missing from the session's log, under new ids, in a new stream, in order,
   * followed by the unanswered ones. log was read from the server just before. The new ids are durable
   * before anything is sent. in_use while ops are in flight, or if a sender has begun since the fence.
   */
  async reconcile(session: string, log: Log, expecting = false): Promise<Reconciliation> {
    const before = await this.planReconcile(session, log, expecting);
    if (!before.needed) return before;
    const plan = await this.#leave(session, (t) => {
      if (log.fence !== 0 && t.box!.incarnation !== log.fence) throw fault("in_use", `a sender has begun since the stream of session ${session} was fenced: the log that was read may lack what it has sent`);
      if (!before.stopped && t.isSending(session)) throw fault("in_use", `ops of session ${session} are in flight and its stream has not stopped: wait for their answers first`);
      return reconciled(this, t, session, log, expecting);
    });
    return this.#reconciliation(session, log, before.stopped, plan);
  }

  #reconciliation(session: string, log: Log, stopped: Standstill | undefined, { ops, batches }: { ops: Reconciled[]; batches: string[] }): Reconciliation {
    return { session, stopped, gone: log.gone, ops, batches, needed: stopped !== undefined || ops.some((c) => c.fate === "sent_again" || c.fate === "in_log") };
  }

  /** Writes the changes that begin a session's next stream, and makes the sender begin again. */
  #leave<T extends Left>(session: string, plan: (t: Tables) => T): Promise<T> {
    return this.#store.update((t): Plan<T> => {
      const value = plan(t);
      return { changes: value.changes, value };
    }, ({ decided }) => {
      this.#waits.forget(session);
      this.#sender?.end("left");
      for (const r of decided) this.tell(r.id, r.outcomes!, true);
      this.#waits.lookAgain();
    });
  }

  /** Raises the incarnation above any under which something was sent. */
  stepOver(step: number): Promise<number> {
    return this.#store.update((t) => {
      const p = raised(t.box!, step);
      return { changes: [{ t: "box", k: "box", p }], value: p.incarnation };
    });
  }

  async #sweepOld(): Promise<void> {
    const before = Date.now() - this.settings.keep;
    const plan = (t: Tables): Plan<number> => {
      const changes: Change[] = [];
      for (const r of t.batches.values()) {
        if (r.state !== "finished" || r.finishedAt >= before) continue;
        changes.push({ t: "batch", k: r.id, v: null });
        for (const op of opsOf(r)) {
          if (t.ops.has(op.id)) changes.push({ t: "op", k: op.id, v: null });
          if (t.retries.has(op.id)) changes.push({ t: "retry", k: op.id, v: null });
        }
        if (changes.length > 500) break;
      }
      return { changes, value: changes.length };
    };
    while ((await this.#store.update(plan)) > 0);
  }

  // ---- Refs

  /** Stores a ref to send through, or updates it, unless it is one of a rotation. A stream that stopped for lack of it continues. */
  async putRef(ref: Ref, meta: { role?: Role; external?: string; label?: string } = {}): Promise<RefRow> {
    const role = meta.role ?? (isSpace(ref.target) ? "space" : "shared");
    return this.#store.update((t): Plan<RefRow> => {
      const old = t.refs.get(ref.id);
      if (old?.role === "rotated" || old?.role === "rotating") return { changes: [], value: old };
      const row: RefRow = {
        id: ref.id, text: ref.text, role, external: meta.external ?? "", label: meta.label ?? "", redemption: old?.redemption ?? newULID(),
        saved: old?.saved ?? Date.now(),
      };
      return { changes: [{ t: "ref", k: row.id, v: row }], value: row };
    }, () => this.#sender?.refsChanged());
  }

  /** Forgets a ref, with the ids of those that it has replaced. Ops queued under it stop until it is stored again. in_use while it is rotated. */
  async dropRef(id: string): Promise<void> {
    await this.#store.update((t): Plan<undefined> => {
      const row = t.refs.get(id);
      if (row?.role === "rotating" || t.rotating.has(id)) throw fault("in_use", `ref ${clip(id)} is being rotated: another is about to replace it`);
      const gone = [...t.refs.values()].filter((r) => r.id === id || (r.role === "rotated" && r.label === id));
      return { changes: gone.map((r): Change => ({ t: "ref", k: r.id, v: null })), value: undefined };
    }, () => this.#sender?.refsChanged());
  }

  /**
   * Stores a new ref that is to replace a stored one, and sends nothing under that until it has; returns the one that was stored for
   * that before, if there is one. not_found for a ref that is not stored, or was replaced; unknown_ref for another secret
   * than the stored one; bad_ref_text for a ref to something else.
   */
  async beginRotation(old: Ref, fresh: Ref): Promise<Ref> {
    if (fresh.target !== old.target || fresh.id === old.id) throw fault("bad_ref_text", "rotate: the new ref is not another one for the same object");
    const { text } = await this.#store.update((t): Plan<RefRow> => {
      const row = t.refs.get(old.id);
      if (!row || row.role === "rotated" || row.role === "rotating") throw fault("not_found", `ref ${old.id} is not stored here`);
      if (Ref.parse(row.text).secretText !== old.secretText) throw fault("unknown_ref", `another secret is stored here for ref ${old.id}: drop the other first, if the ref you have is the right one`);
      const begun = t.rotating.get(old.id);
      if (begun !== undefined) return { changes: [], value: t.refs.get(begun)! };
      const next: RefRow = { id: fresh.id, text: fresh.text, role: "rotating", external: "", label: old.id, redemption: newULID(), saved: Date.now() };
      return { changes: [{ t: "ref", k: next.id, v: next }], value: next };
    }, () => this.#sender?.refsChanged());
    return Ref.parse(text);
  }

  /** Puts the ref that beginRotation has stored in the old one's place, or forgets it, if the server refused it. Does nothing if there is none. */
  async endRotation(old: string, refused: boolean): Promise<void> {
    await this.#store.update((t): Plan<undefined> => {
      const id = t.rotating.get(old), next = t.refs.get(id ?? ""), was = t.refs.get(old);
      if (!next) return { changes: [], value: undefined };
      if (refused) return { changes: [{ t: "ref", k: next.id, v: null }], value: undefined };
      if (!was) return { changes: [{ t: "ref", k: next.id, p: { role: isSpace(targetOf(old)) ? "space" : "shared", label: "" } }], value: undefined }; // dropped meanwhile
      const { drained: _, ...fresh } = next, { text, redemption } = next, moved = { text, redemption, label: next.id }, hash = Ref.parse(was.text).hashText;
      const changes: Change[] = [
        { t: "ref", k: next.id, v: { ...fresh, role: was.role, external: was.external, label: was.label } },
        { t: "ref", k: old, v: { ...was, ...moved, role: "rotated", external: hash } },
      ];
      for (const r of t.refs.values()) if (r.role === "rotated" && r.label === old) changes.push({ t: "ref", k: r.id, p: moved });
      return { changes, value: undefined };
    }, () => this.#sender?.refsChanged());
  }

  /** The refs that are about to be replaced, with those that will replace them. */
  rotations(): { old: Ref; fresh: Ref }[] {
    const ref = (id: string): Ref => Ref.parse(this.tables.refs.get(id)!.text);
    return [...this.tables.rotating].filter(([old]) => this.tables.refs.has(old)).map(([old, fresh]) => ({ old: ref(old), fresh: ref(fresh) }));
  }

  /** Whether a ref was, or is about to be, replaced. */
  isReplaced(id: string): boolean {
    return this.tables.rotating.has(id) || this.tables.refs.get(id)?.role === "rotated";
  }

  /** Waits until nothing is in flight under a ref that is about to be replaced, but not for long: a server denies what arrives under it later. */
  async drainRef(id: string, most = 5000): Promise<void> {
    for (const until = Date.now() + most; Date.now() < until && !this.life.aborted; await new Promise((r) => setTimeout(r, 5))) {
      const left = this.#sender?.inFlightVia(id), by = this.tables.rotating.get(id);
      if (left === 0 || by === undefined || (left === undefined && (this.tables.refs.get(by)?.drained || !(await this.#store.othersSend())))) return;
    }
  }

  /** Tells the tab that rotates a ref when this one, which sends, has nothing in flight under it. */
  async #drained(id: string): Promise<void> {
    await this.drainRef(id);
    await this.#store.update((t): Plan<undefined> => {
      const by = t.rotating.get(id);
      return { changes: by === undefined || !this.#sender ? [] : [{ t: "ref", k: by, p: { drained: true } }], value: undefined };
    });
  }

  /** A stored ref by its id. */
  refRow(id: string): RefRow | undefined {
    return this.tables.refs.get(id);
  }

  /**
   * The ref for the id of a session or space, or an external id: the owner's if there is one, else the newest. "" is
   * the only known space. not_found, ambiguous.
   */
  refFor(target: string): RefRow {
    let best: RefRow | undefined;
    for (const r of this.tables.refs.values()) {
      const own = targetOf(r.id);
      if (r.role === "rotating" || r.role === "rotated") continue;
      if (own !== target && r.id !== target && (r.external === "" || r.external !== target) && !(target === "" && r.role === "space")) continue;
      if (best && targetOf(best.id) !== own) throw fault("ambiguous", `${JSON.stringify(clip(target))} fits ${targetOf(best.id)} and ${own}: give the whole id`);
      const better = Number(r.role === "owner") - Number(best?.role === "owner");
      if (!best || better > 0 || (better === 0 && r.saved >= best.saved)) best = r;
    }
    if (best) return best;
    throw fault("not_found", `no ref for ${target === "" ? "any space" : `session or space ${clip(target)}`} is stored here: store one first, or use the outbox that has it`);
  }

  /** The route on which the session's stream is opened for a batch. Throws if there is no ref to send it through. */
  routeOf(session: string, via: string, ops: readonly OpRow[]): Route {
    const first = ops[0]!;
    if (!creates(first.method)) {
      // Through a space's ref the session is opened by the right manage; but an op that was dropped may have been its create. One
      // of another session reaches it.
      const manages = isSpace(targetOf(via)) && first.method !== "void", row = via !== "" && (manages || !isSpace(targetOf(via))) ? this.#savedRef(via) : this.refFor(session);
      if (targetOf(row.id) !== session && !manages && via === "") throw fault("bad_argument", `ref ${row.id} is not for session ${session}`);
      return { ...noRoute, ref: row.id, host: Ref.parse(row.text).address, proof: row.text, ...(this.tables.rotating.has(row.id) && { rotating: true }) };
    }
    const space = via === "" ? this.refFor("") : this.#savedRef(via);
    if (!isSpace(targetOf(space.id))) throw fault("bad_argument", `${first.method} goes through a space's ref, which ${space.id} is not`);
    const text = (name: string): string => {
      const json = first.args.find((a) => a.name === name)?.json;
      const v: unknown = json === undefined ? "" : JSON.parse(json);
      return typeof v === "string" ? v : "";
    };
    const ref = text("ref"), held = text("via");
    if (targetOf(ref) !== session) throw fault("bad_argument", `${first.method} needs an argument ref: the id of the session's owner ref`);
    const proof = held === "" ? space.text : `${space.text} ${this.#savedRef(held).text}`;
    return { ref, space: space.id, with: held, host: Ref.parse(space.text).address, proof, ...(this.tables.rotating.has(space.id) && { rotating: true }) };
  }

  /** Converts a route to a Link's form. */
  request(session: string, to: Route, incarnation: number): StreamRequest {
    const held = (id: string): Held => {
      const row = this.refRow(id);
      if (!row) throw fault("not_found", `ref ${id} is not stored here`);
      return { ref: Ref.parse(row.text), redemption: row.redemption };
    };
    const box = this.tables.box!, { old, life } = this.tables.streams.get(session) ?? noStream(session);
    const secret = life !== undefined ? streamSecret(box.secret, `${session}\0${life}`) : old === true ? box.old! : streamSecret(box.secret, session);
    return {
      session, through: to.space === "" ? held(to.ref) : undefined, space: to.space === "" ? undefined : held(to.space), ownerRef: to.ref,
      with: to.space !== "" && to.with !== "" ? [held(to.with)] : [], outbox: box.id, secret, incarnation,
    };
  }

  /** A stored ref, or the one that has replaced it. */
  #savedRef(id: string): RefRow {
    let row = this.tables.refs.get(id);
    if (row?.role === "rotated") row = this.tables.refs.get(row.label);
    if (!row) throw fault("not_found", `ref ${clip(id)} is not stored here`);
    return row;
  }
}

/** Makes the outbox's own row, or converts one from before each session had its own secret. */
function begun(t: Tables): Change[] {
  const secret = toBase64url(randomBytes(32));
  if (t.box === undefined) return [{ t: "box", k: "box", v: { id: `obx_${newULID()}`, secret, old: "", incarnation: 0, nextNum: 1 } }];
  if (t.box.old !== undefined) return [];
  const opened = new Set(t.streams.keys());
  for (const row of t.batches.values()) if (row.first > 0) opened.add(row.session);
  return [{ t: "box", k: "box", v: { ...t.box, secret, old: t.box.secret } }, ...[...opened].map((s) => streamChange(t, s, { old: true }))];
}
