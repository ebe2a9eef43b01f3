// An outbox's rows: tables in memory, and a storage below them that makes every change durable: a
// journal file (journal.ts, Node) or IndexedDB (indexeddb.ts, browsers).
//
// All writes go through update. Its function sees current tables and plans changes without
// waiting, and the promise resolves when they are durable. Updates requested during a write go into
// the next one together. If a write fails, memory is rolled back.

import { fault, MooringError } from "./fault.js";
import { batchOf } from "./ulid.js";
import { type BatchRow, type BoxRow, type RefRow, type StreamRow, travelling } from "./rows.js";

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

/** The rows. Only a Store changes them. */
export class Tables {
  box: BoxRow | undefined;
  readonly batches = new Map<string, BatchRow>();
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

  get(t: TableName, k: string): unknown {
    return t === "box" ? this.box : this.#map(t).get(k);
  }

  #map(t: Exclude<TableName, "box">): Map<string, unknown> {
    const maps = { batch: this.batches, stream: this.streams, ref: this.refs, retry: this.retries, op: this.ops };
    return maps[t] as Map<string, unknown>;
  }

  /** Applies a change and returns its undo; undos are called in reverse order. */
  apply(c: Change): () => void {
    const before = this.get(c.t, c.k);
    const after = "p" in c ? { ...(before as object), ...(c.p as object) } : c.v;
    const session = c.t === "stream" ? c.k : c.t === "batch" ? ((before ?? after) as BatchRow | null)?.session : undefined;
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
    if (t === "batch") this.#index(this.batches.get(k), row as BatchRow | undefined);
    if (t === "ref") {
      this.refsVersion++;
      const old = this.refs.get(k), ref = row as RefRow | undefined;
      if (old?.role === "rotating") this.rotating.delete(old.label);
      if (ref?.role === "rotating") this.rotating.set(ref.label, k);
    }
    if (t === "stream" && this.streams.get(k)?.life !== (row as StreamRow | undefined)?.life) { // its seqs begin again
      this.#given.set(k, this.sequenced(k).reduce((n, r) => Math.max(n, r.first + travelling(r.ops) - 1), 0));
    }
    if (row === undefined) this.#map(t).delete(k);
    else this.#map(t).set(k, row);
  }

  #index(old: BatchRow | undefined, row: BatchRow | undefined): void {
    if (old && old.state !== "finished") {
      this.unfinishedOps -= old.ops.length;
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
      this.unfinishedOps += row.ops.length;
      this.unfinishedBytes += row.bytes;
      this.#queueOf(row, true)!.put(row);
    }
    if (old && this.#queueOf(old)?.size === 0) (old.first > 0 ? this.#sequenced : this.#waiting).delete(old.session);
    if (old && old.first > 0 && row?.first === 0) { // its seqs were taken back, and those of all batches after it
      this.#given.set(row.session, Math.min(this.#given.get(row.session) ?? 0, old.first - 1));
    } else if (row && row.first > 0) {
      this.#given.set(row.session, Math.max(this.#given.get(row.session) ?? 0, row.first + travelling(row.ops) - 1));
    }
  }

  /** The next seq of a session's stream. */
  nextSeq(session: string): number {
    return Math.max(this.#given.get(session) ?? 0, this.streams.get(session)?.lastSeq ?? 0) + 1;
  }

  #queueOf(row: BatchRow, make = false): Queue | undefined {
    const queues = row.first > 0 ? this.#sequenced : this.#waiting;
    let q = queues.get(row.session);
    if (!q && make) queues.set(row.session, (q = new Queue()));
    return q;
  }

  /** The session's first batches without a seq, in the order of their commits. */
  waiting(session: string, limit: number): BatchRow[] {
    return this.#waiting.get(session)?.first(limit) ?? [];
  }

  /** The session's unanswered batches with seqs, in their order. */
  sequenced(session: string): BatchRow[] {
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
  unfinished(session: string): BatchRow[] {
    return [...this.sequenced(session), ...this.waiting(session, Infinity)];
  }

  /** The batch that has an op, and the op's position in it. */
  findOp(op: string): { row: BatchRow; place: number } | undefined {
    for (const id of [batchOf(op), this.ops.get(op)]) {
      const row = id === undefined ? undefined : this.batches.get(id);
      const place = row?.ops.findIndex((o) => o.id === op) ?? -1;
      if (row && place >= 0) return { row, place };
    }
    return undefined;
  }

  /** All rows, as the changes that create them. */
  all(): Change[] {
    const out: Change[] = this.box ? [{ t: "box", k: "box", v: this.box }] : [];
    for (const t of ["batch", "stream", "ref", "retry", "op"] as const) {
      for (const [k, v] of this.#map(t)) out.push({ t, k, v } as Change);
    }
    return out;
  }
}

/** Some batches of a session, by num, mostly added in that order. */
class Queue {
  #rows = new Map<string, BatchRow>();
  #last = -1;
  #sorted = true;

  get size(): number {
    return this.#rows.size;
  }

  put(row: BatchRow): void {
    if (row.num < this.#last && !this.#rows.has(row.id)) this.#sorted = false;
    this.#last = Math.max(this.#last, row.num);
    this.#rows.set(row.id, row);
  }

  remove(row: BatchRow): void {
    this.#rows.delete(row.id);
  }

  first(limit: number): BatchRow[] {
    if (!this.#sorted) {
      this.#rows = new Map([...this.#rows.values()].sort((a, b) => a.num - b.num).map((r) => [r.id, r]));
      this.#sorted = true;
    }
    const out: BatchRow[] = [];
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
}

/** Tables over a storage. */
export abstract class Store {
  readonly tables = new Tables();
  /** Called after the tables have got another tab's writes. */
  changed: () => void = () => {};
  #jobs: Job[] = [];
  #running: Promise<void> | undefined;
  #broken: MooringError | undefined;

  /**
   * Writes the changes that run plans; run must not wait, and may be called again if durability is unknown. done is called
   * once they are durable, in the order of the updates and before anything else runs on the tables.
   */
  update<T>(run: (t: Tables) => Plan<T>, done?: (value: T) => void): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      this.#jobs.push({ run, done: done as Job["done"], resolve: resolve as Job["resolve"], reject });
      this.#running ??= Promise.resolve().then(() => this.#work());
    });
  }

  async #work(): Promise<void> {
    while (this.#jobs.length > 0) await this.#group(this.#jobs.splice(0));
    this.#running = undefined;
  }

  async #group(group: Job[]): Promise<void> {
    let undo: (() => void)[] = [], planned: Job[] = [];
    const run = (): Change[] => {
      const all: Change[] = [];
      undo = [];
      planned = [];
      for (const job of group) {
        try {
          const plan = job.run(this.tables);
          for (const c of plan.changes) undo.push(this.tables.apply(c));
          all.push(...plan.changes);
          job.value = plan.value;
          planned.push(job);
        } catch (err) {
          job.reject(err);
        }
      }
      return all;
    };
    try {
      if (this.#broken) throw this.#broken;
      await this.write(run);
    } catch (err) {
      for (const u of undo.reverse()) u();
      for (const job of group) job.reject(err); // rejecting twice has no effect
      return;
    }
    for (const job of planned) job.done?.(job.value);
    for (const job of planned) job.resolve(job.value);
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

  /** Calls run once, with current tables, and makes its changes durable, all or nothing. */
  protected abstract write(run: () => Change[]): Promise<void>;

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
