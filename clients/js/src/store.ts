// An outbox's rows: tables in memory, and a storage below them that makes every change durable: a
// journal file (journal.ts, Node) or IndexedDB (indexeddb.ts, browsers).
//
// All writes go through update. Its function sees current tables and plans changes without
// waiting, and the promise resolves when they are durable. Updates requested during a write go into
// the next one together. If a write fails, memory is rolled back.
//
// Once a batch is stored, memory has no arguments of its ops (Packed, in rows.ts). A function that needs them asks for the
// whole rows; those that are not there are read, and the function is called again.

import { fault, MooringError } from "./fault.js";
import { batchOf } from "./ulid.js";
import { type BatchRow, type BoxRow, countOf, isWhole, type OpRow, opsOf, type Packed, packText, type RefRow, seqsOf, type StoredRow, type StreamRow, travelling } from "./rows.js";

interface RowTypes {
  box: BoxRow;
  batch: BatchRow;
  stream: StreamRow;
  ref: RefRow;
  retry: string; // op → the op that retries it
  op: string; // op → its batch, if its id does not tell
}

export type TableName = keyof RowTypes;

/** One row set, patched or (null) removed. */
export type Change = { [T in TableName]: { t: T; k: string; v: RowTypes[T] | null } | { t: T; k: string; p: Partial<RowTypes[T]> } }[TableName];

/** The changes that an update function plans, and the update's result. */
export interface Plan<T> {
  changes: Change[];
  value: T;
}

/** Thrown by Tables.whole: the storage has to be read first. */
class Absent extends Error {
  constructor(readonly rows: readonly StoredRow[]) {
    super("the arguments of some ops are in the storage alone");
  }
}

const groupMost = 1000; // updates that are written together

/** The rows. Only a Store changes them. */
export class Tables {
  box: BoxRow | undefined;
  readonly batches = new Map<string, StoredRow>();
  readonly streams = new Map<string, StreamRow>();
  readonly refs = new Map<string, RefRow>();
  /** The ids of refs that are about to replace others, by the others' ids. */
  readonly rotating = new Map<string, string>();
  readonly retries = new Map<string, string>();
  readonly ops = new Map<string, string>();
  readonly #waiting = new Map<string, Queue>(); // unfinished, without a seq
  readonly #sequenced = new Map<string, Queue>(); // unfinished, with one
  unfinishedOps = 0;
  unfinishedBytes = 0;
  /** The finished batches that still have their arguments, the oldest first, and the size of those. */
  readonly kept = new Set<string>();
  keptBytes = 0;
  /** Counts changes of refs. */
  refsVersion = 0;
  readonly #given = new Map<string, number>();
  /** Ops that were read for the function of an update that is running. */
  read: ReadonlyMap<unknown, readonly OpRow[]> = new Map();
  #texts = new Map<string, string>(); // those that many rows have: each is in memory once

  get(t: TableName, k: string): unknown {
    return t === "box" ? this.box : this.#map(t).get(k);
  }

  readonly #maps = { batch: this.batches, stream: this.streams, ref: this.refs, retry: this.retries, op: this.ops };

  #map(t: Exclude<TableName, "box">): Map<string, unknown> {
    return this.#maps[t] as Map<string, unknown>;
  }

  /** Applies a change and returns its undo; undos are called in reverse order. */
  apply(c: Change): () => void {
    const before = this.get(c.t, c.k);
    const after = "p" in c ? { ...(before as object), ...(c.p as object) } : c.v;
    const session = c.t === "stream" ? c.k : c.t === "batch" ? ((before ?? after) as StoredRow | null)?.session : undefined;
    const given = session === undefined ? 0 : (this.#given.get(session) ?? 0);
    this.#set(c.t, c.k, after ?? undefined);
    return () => {
      this.#set(c.t, c.k, before);
      if (session !== undefined) this.#given.set(session, given);
    };
  }

  #set(t: TableName, k: string, row: unknown): void {
    if (t === "box") {
      this.box = row as BoxRow | undefined;
      return;
    }
    if (t === "batch") this.#index(this.batches.get(k), row as StoredRow | undefined);
    if (t === "ref") {
      this.refsVersion++;
      const old = this.refs.get(k), ref = row as RefRow | undefined;
      if (old?.role === "rotating") this.rotating.delete(old.label);
      if (ref?.role === "rotating") this.rotating.set(ref.label, k);
    }
    if (t === "stream" && this.streams.get(k)?.life !== (row as StreamRow | undefined)?.life) { // its seqs begin again
      this.#given.set(k, this.sequenced(k).reduce((n, r) => Math.max(n, r.first + seqsOf(r) - 1), 0));
    }
    if (row === undefined) this.#map(t).delete(k);
    else this.#map(t).set(k, row);
  }

  #index(old: StoredRow | undefined, row: StoredRow | undefined): void {
    if (old && old.state !== "finished") {
      this.unfinishedOps -= countOf(old);
      this.unfinishedBytes -= old.bytes;
    }
    if (old?.kept) {
      this.keptBytes -= old.bytes;
      if (!row?.kept) this.kept.delete(old.id);
    }
    if (row?.kept) {
      this.keptBytes += row.bytes;
      this.kept.add(row.id);
    }
    const stays = old && row && row.state !== "finished" && this.#queueOf(old) === this.#queueOf(row);
    if (old && !stays) this.#queueOf(old)?.remove(old);
    if (row && row.state !== "finished") {
      this.unfinishedOps += countOf(row);
      this.unfinishedBytes += row.bytes;
      this.#queueOf(row, true)!.put(row);
    }
    if (old && this.#queueOf(old)?.size === 0) (old.first > 0 ? this.#sequenced : this.#waiting).delete(old.session);
    if (old && old.first > 0 && row?.first === 0) { // its seqs were taken back, and those of all batches after it
      this.#given.set(row.session, Math.min(this.#given.get(row.session) ?? 0, old.first - 1));
    } else if (row && row.first > 0) {
      this.#given.set(row.session, Math.max(this.#given.get(row.session) ?? 0, row.first + seqsOf(row) - 1));
    }
  }

  /** Forgets the arguments of ops that are in the storage, if a row still has those ops. */
  pack(id: string, ops: readonly OpRow[], at = 0, size = 0): void {
    const row = this.batches.get(id);
    if (row?.ops !== ops) return;
    const packed: Packed = { at, size, count: ops.length, sent: travelling(ops), text: this.#once(packText(id, ops)) };
    const { num, atomic, created, bytes, state, first, attempts, nextRetryAt, lastError, finishedAt, outcomes, dropping, kept } = row;
    const small: StoredRow = { // written out, since an object that is spread into another takes more room
      num, id, session: this.#once(row.session), via: this.#once(row.via), atomic, created, bytes, ops: packed, state, first, attempts, nextRetryAt, lastError, finishedAt,
      outcomes, dropping, ...(kept !== undefined && { kept }),
    };
    this.#set("batch", id, small);
  }

  #once(text: string): string {
    const there = this.#texts.get(text);
    if (there !== undefined) return there;
    if (this.#texts.size === 1000) this.#texts.clear();
    this.#texts.set(text, text);
    return text;
  }

  /** Rows with all of their ops. Only the function of an update may ask: it is called again if they have to be read. */
  whole(rows: readonly StoredRow[]): BatchRow[] {
    const absent = rows.filter((r) => !isWhole(r) && !this.read.has(r.ops));
    if (absent.length > 0) throw new Absent(absent);
    return rows.map((r) => (isWhole(r) ? r : { ...r, ops: this.read.get(r.ops)! }));
  }

  /** The next seq of a session's stream. */
  nextSeq(session: string): number {
    return Math.max(this.#given.get(session) ?? 0, this.streams.get(session)?.lastSeq ?? 0) + 1;
  }

  #queueOf(row: StoredRow, make = false): Queue | undefined {
    const queues = row.first > 0 ? this.#sequenced : this.#waiting;
    let q = queues.get(row.session);
    if (!q && make) queues.set(row.session, (q = new Queue()));
    return q;
  }

  /** The session's first batches without a seq, in the order of their commits. */
  waiting(session: string, limit: number): StoredRow[] {
    return this.#waiting.get(session)?.first(limit) ?? [];
  }

  /** The session's unanswered batches with seqs, in their order. */
  sequenced(session: string): StoredRow[] {
    return (this.#sequenced.get(session)?.first(Infinity) ?? []).sort((a, b) => a.first - b.first);
  }

  /** Whether a session has batches with seqs that are unanswered. */
  isSending(session: string): boolean {
    return this.#sequenced.has(session);
  }

  /** The sessions that have batches without a seq. */
  waitingSessions(): string[] {
    return [...this.#waiting.keys()];
  }

  /** The sessions that have unfinished batches. */
  unfinishedSessions(): string[] {
    return [...new Set([...this.#sequenced.keys(), ...this.#waiting.keys()])];
  }

  /** The session's unfinished batches, in order. */
  unfinished(session: string): StoredRow[] {
    return [...this.sequenced(session), ...this.waiting(session, Infinity)];
  }

  /** The batch that has an op, and the op's position in it. */
  findOp(op: string): { row: StoredRow; place: number } | undefined {
    for (const id of [batchOf(op), this.ops.get(op)]) {
      const row = id === undefined ? undefined : this.batches.get(id);
      const place = row ? opsOf(row).findIndex((o) => o.id === op) : -1;
      if (row && place >= 0) return { row, place };
    }
    return undefined;
  }

  /** The rows that are no batches, as the changes that create them. */
  others(): Change[] {
    const out: Change[] = this.box ? [{ t: "box", k: "box", v: this.box }] : [];
    for (const t of ["stream", "ref", "retry", "op"] as const) {
      for (const [k, v] of this.#map(t)) out.push({ t, k, v } as Change);
    }
    return out;
  }
}

/** Some batches of a session, by num, mostly added in that order. */
class Queue {
  #rows = new Map<string, StoredRow>();
  #last = -1;
  #sorted = true;

  get size(): number {
    return this.#rows.size;
  }

  put(row: StoredRow): void {
    if (row.num < this.#last && !this.#rows.has(row.id)) this.#sorted = false;
    this.#last = Math.max(this.#last, row.num);
    this.#rows.set(row.id, row);
  }

  remove(row: StoredRow): void {
    this.#rows.delete(row.id);
  }

  first(limit: number): StoredRow[] {
    if (!this.#sorted) {
      this.#rows = new Map([...this.#rows.values()].sort((a, b) => a.num - b.num).map((r) => [r.id, r]));
      this.#sorted = true;
    }
    const out: StoredRow[] = [];
    for (const r of this.#rows.values()) {
      if (out.length >= limit) break;
      out.push(r);
    }
    return out;
  }
}

interface Job {
  run: (t: Tables) => Plan<unknown>;
  done: ((value: unknown) => void) | undefined;
  resolve: (value: unknown) => void;
  reject: (err: unknown) => void;
  value?: unknown;
  read: Map<unknown, readonly OpRow[]>; // what was read for run
}

/** Ops that were read, with those of the row. */
export interface ReadOps {
  readonly from: StoredRow["ops"];
  readonly ops: readonly OpRow[];
}

/** What was read for a row. internal if it is not what was written. */
export function checked(row: StoredRow, ops: unknown): ReadOps {
  if (!Array.isArray(ops) || packText(row.id, ops as OpRow[]) !== (row.ops as Packed).text) {
    throw fault("internal", `the outbox's storage does not have the ops of batch ${row.id} any more as they were written`);
  }
  return { from: row.ops, ops: ops as OpRow[] };
}

/** The ops that a change sets. */
export const opsIn = (c: Change): readonly OpRow[] | undefined => (c.t !== "batch" ? undefined : "p" in c ? c.p.ops : c.v?.ops);

/** Tables over a storage. */
export abstract class Store {
  readonly tables = new Tables();
  /** Called after the tables have got another tab's writes. */
  changed: () => void = () => {};
  #jobs: Job[] = [];
  #running: Promise<void> | undefined;
  #broken: MooringError | undefined;

  /**
   * Writes the changes that run plans; run must not wait, and may be called again: with whole rows that it has asked for.
   * done is called once they are durable, in the order of the writes and before anything else runs on the tables.
   */
  update<T>(run: (t: Tables) => Plan<T>, done?: (value: T) => void): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      this.#jobs.push({ run, done: done as Job["done"], resolve: resolve as Job["resolve"], reject, read: new Map() });
      this.#running ??= Promise.resolve().then(() => this.#work());
    });
  }

  /** What look returns, once its whole rows are read. */
  look<T>(look: (t: Tables) => T): Promise<T> {
    return this.update((t) => ({ changes: [], value: look(t) }));
  }

  async #work(): Promise<void> {
    while (this.#jobs.length > 0) {
      const again: Job[] = [];
      for (const [job, rows] of await this.#group(this.#jobs.splice(0, groupMost))) {
        try {
          const present = rows.filter((r) => this.tables.batches.get(r.id)?.ops === r.ops); // the write may have replaced some
          for (const r of await this.read(present)) job.read.set(r.from, r.ops);
          again.push(job);
        } catch (err) {
          job.reject(storageError("read the outbox", err));
        }
      }
      this.#jobs.unshift(...again);
    }
    this.#running = undefined;
  }

  /** Runs and writes updates together; returns those that were left out, with the rows that they need. */
  async #group(group: Job[]): Promise<Map<Job, readonly StoredRow[]>> {
    const undo: (() => void)[] = [], planned: Job[] = [];
    const absent = new Map<Job, readonly StoredRow[]>();
    const run = (): Change[] => {
      const all: Change[] = [];
      for (const job of group) {
        this.tables.read = job.read;
        try {
          const plan = job.run(this.tables);
          for (const c of plan.changes) undo.push(this.tables.apply(c));
          all.push(...plan.changes);
          job.value = plan.value;
          planned.push(job);
        } catch (err) {
          if (err instanceof Absent) absent.set(job, err.rows);
          else job.reject(err);
        }
      }
      this.tables.read = new Map();
      return all;
    };
    try {
      if (this.#broken) throw this.#broken;
      await this.write(run);
    } catch (err) {
      for (const u of undo.reverse()) u();
      for (const job of group) job.reject(err); // rejecting twice has no effect
      return new Map();
    }
    for (const job of planned) job.done?.(job.value);
    for (const job of planned) job.resolve(job.value);
    return absent;
  }

  /** Waits until no write is running. */
  protected async idle(): Promise<void> {
    while (this.#running) await this.#running;
  }

  /** Ends writing: the storage's contents are no longer known. */
  protected breakWith(err: MooringError): void {
    this.#broken ??= err;
  }

  /** Updates the tables with other tabs' writes. */
  async refresh(): Promise<void> {}

  /** Calls run once, with current tables, makes its changes durable, all or nothing, and then packs their ops. */
  protected abstract write(run: () => Change[]): Promise<void>;

  /** The ops of packed rows, each with the row's own; it may leave out rows that are not in the tables any more. */
  protected abstract read(rows: readonly StoredRow[]): Promise<ReadOps[]>;

  /** Waits for the right to send, which has one holder at a time; the returned promise is fulfilled when it is lost. */
  abstract lead(signal: AbortSignal): Promise<void>;

  /** Whether another tab has the right to send. */
  async othersSend(): Promise<boolean> {
    return false;
  }

  /** Closes the storage once queued changes are written. */
  abstract close(): Promise<void>;
}

const remedies: Readonly<Record<string, string>> = {
  EACCES: "this user may not write to home: give one that it may", EPERM: "this user may not write to home: give one that it may",
  EROFS: "home is on a file system that is read-only: give another", EEXIST: "home is a file: give a folder",
  ENOTDIR: "a part of home is a file: give a folder", ENOENT: "home cannot be made there: give another folder",
};

/** A storage's error, by how one can react to it. */
export function storageError(what: string, err: unknown): MooringError {
  if (err instanceof MooringError) return err;
  const e = (err ?? {}) as { code?: string; name?: string; message?: string };
  if (e.code === "ENOSPC" || e.code === "EDQUOT" || e.name === "QuotaExceededError") return fault("disk_full", `${what}: no space is left: make some, and try again`);
  const todo = remedies[e.code ?? ""];
  if (todo !== undefined) return fault("unavailable", `${what}: ${e.code}: ${todo}`);
  return fault("unavailable", `${what}: ${e.code ?? e.name ?? "failed"}`);
}
