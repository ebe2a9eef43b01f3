// The plan for reconciling a session: computed without storage or server from the outbox's rows and
// the session's log. Ops that applied but are missing from the log are committed again under
// new ids, in the order in which they applied, in the same batches, with references to each other. It is the planner of
// the Go outbox, and makes the same plans (testdata/reconcile.json).

import { type Arg, type Expect, type OpRef, type Outcome, resolvePath } from "./intent.js";
import type { Standstill } from "./outbox_types.js";
import type { Finder } from "./resolve.js";
import { type BareOp, type BatchRow, cascade, dropped, isSlim, type OpRow, opsOf, settle, type StoredRow, travels, voidedOutcome } from "./rows.js";
import { bytesOf, sha256 } from "./text.js";
import { batchOf, derivedULID } from "./ulid.js";

/** A session's log as the server shows it. */
export interface Log {
  /** The cursors of events, by the op that made them. */
  readonly ops: Map<string, number>;
  /** Events up to here were trimmed from the log; their ops count as present. */
  base: number;
  /** The server does not know the session. */
  gone: boolean;
  /** The incarnation under which the session's stream was opened before the log was read; 0: senders were not fenced. */
  fence: number;
  /** agrees: up to last, the server's stream is the same as this outbox's. */
  last: number;
  agrees: boolean;
  /** The batches that were answered before the log was read; all if left out. */
  readonly answered?: ReadonlySet<string>;
}

/**
 * The fate of an op when its session is reconciled. sent_again: it applied but is missing, and is committed
 * again as another op. waits: it stays pending, after those. held_back: it is not sent, or no longer; why has the
 * reason. in_log: it was not answered, but is in the log. lost: its arguments are no longer kept.
 */
export type Fate = "sent_again" | "waits" | "held_back" | "in_log" | "lost";

/** The plan for one op. */
export interface Reconciled {
  readonly op: string;
  readonly batch: string;
  readonly method: string;
  /** The op's argument key or message, if it has one. */
  readonly key: string;
  readonly fate: Fate;
  /** sent_again: the op that replaces it … */
  readonly as: string;
  /** … and its batch. */
  readonly in: string;
  readonly why: string;
}

/** Options of reconciling. */
export interface ReconcileOptions {
  /** Also sends ops that expect a state of the session: its cursor, a key's, a claim of a key, or an offset in a text. They were meant for the session as it was. */
  expecting?: boolean;
  /** Only returns the plan. */
  plan?: boolean;
}

/** What a session lacks, op by op, and each op's fate. */
export interface Reconciliation {
  readonly session: string;
  /** Why its stream has stopped; undefined if it has not. */
  readonly stopped: Standstill | undefined;
  /** The server has lost the session: it is made again first. */
  readonly gone: boolean;
  readonly ops: readonly Reconciled[];
  /** The batches that are committed again. */
  readonly batches: readonly string[];
  /** Whether there is anything to do. */
  readonly needed: boolean;
}

/** The codes with which a stream has stopped for good, until reconcile or abandon, or until the server's newer data are restored. */
export const hopeless: ReadonlySet<string> = new Set(["server_behind", "outbox_diverged", "wrong_outbox", "outbox_damaged"]);

const derived = (from: string, text: string): string => derivedULID(from, sha256(bytesOf(`mooring reconcile v1\0${text}`)));

/** The id under which an op is committed again. Copies of an outbox compute the same one. */
export const again = (op: string): string => derived(op, op);

/** The id of the batch in which the ops of a batch, from op on, are committed again. */
export const againBatch = (batch: string, op: string): string => batchOf(derived(batch, `${batch} ${op}`))!;

const maxAgain = 8; // how often copies of this outbox can have committed an op again and it is still recognized
const maxRetries = 1000;

/** Whether the log has an op, or an op that a copy of this outbox has committed in its place. */
function has(log: Log, op: string): boolean {
  for (let i = 0; i < maxAgain; i++) {
    if (log.ops.has(op)) return true;
    op = again(op);
  }
  return false;
}

/** Whether an applied op is missing: by its seq in the session's present stream, if possible, else by its event, which may have been trimmed. */
function lacks(log: Log, o: Outcome, seq: number): boolean {
  if (log.agrees && seq > 0) return seq > log.last && !has(log, o.op);
  return o.cursor > log.base && !has(log, o.op);
}

/** Why an op was meant for the session as it was; "" if it was not. */
function expects(op: OpRow): string {
  if (op.expected) return "it expects the session at a cursor";
  for (const { name } of op.args) {
    if (name === "offset") return "it expects a text of a length";
    if (name === "expect") return "it expects a key's value of a cursor";
    if (name === "claim") return "it names the claim of a key";
  }
  return "";
}

/** A batch that is to be committed again. */
export interface Resending {
  readonly old: StoredRow;
  readonly id: string;
  readonly ops: OpRow[];
}

/** A row without outcomes, and its plan. */
export interface PendingRow {
  readonly row: BatchRow;
  readonly ops: OpRow[];
  /** The server has decided it: its outcomes. */
  readonly recorded: Outcome[] | undefined;
}

/** The text in the outcome of a batch that changed nothing. */
const unchanged = (o: Outcome): boolean => o.result !== "" && resolvePath(o.result, "unchanged") === "true";

/** Makes a plan. Rows come in the order in which they were committed. */
export class Planner {
  readonly ops: Reconciled[] = [];
  readonly again: Resending[] = [];
  readonly pending: PendingRow[] = [];
  readonly #log: Log;
  readonly #expecting: boolean;
  readonly #find: Finder; // ops of other sessions, and older ones
  readonly #next: (op: string) => string | undefined;
  readonly #done: { row: StoredRow; positions: number[]; cursor: number }[] = []; // with ops that the session lacks
  readonly #as = new Map<string, string>(); // ops that are committed again, with their new ids
  readonly #held = new Set<string>(); // missing ops that are not sent again

  constructor(log: Log, expecting: boolean, find: Finder, next: (op: string) => string | undefined) {
    this.#log = log;
    this.#expecting = expecting;
    this.#find = find;
    this.#next = next;
  }

  /** Examines a row that has its outcomes; resend plans what it finds. */
  finished(row: StoredRow): void {
    if (this.#log.answered && !this.#log.answered.has(row.id)) return;
    const positions: number[] = [];
    let seq = row.first, cursor = 0;
    for (const [i, op] of opsOf(row).entries()) {
      const own = row.first > 0 && travels(op) ? seq++ : 0, o = row.outcomes![i]!;
      if (o.status !== "applied" || unchanged(o) || !lacks(this.#log, o, own) || this.#next(o.op) !== undefined) continue;
      positions.push(i);
      cursor ||= o.cursor;
    }
    if (positions.length > 0) this.#done.push({ row, positions, cursor });
  }

  /** Plans the missing ops that finished has found, in the order in which they applied. whole gives the rows that have arguments with them. */
  resend(whole: (rows: StoredRow[]) => readonly BatchRow[]): void {
    this.#done.sort((a, b) => a.cursor - b.cursor);
    const full = new Map(whole(this.#done.map((d) => d.row).filter((r) => !isSlim(r))).map((r) => [r.id, r]));
    for (const d of this.#done) this.#resendRow(d.row, full.get(d.row.id)?.ops, d.positions);
  }

  #resendRow(row: StoredRow, full: readonly OpRow[] | undefined, positions: number[]): void {
    const shown: Reconciled[] = [], ops: OpRow[] = [];
    let why = "";
    for (const i of positions) {
      const old = full?.[i], { id } = opsOf(row)[i]!, as = again(id);
      let c = describe(row, old ?? opsOf(row)[i]!, "sent_again");
      const op = old === undefined ? "" : this.#renew(old, as);
      if (op === "") c = { ...c, fate: "lost", why: "its arguments were not kept" };
      else if (typeof op === "string") c = { ...c, fate: "held_back", why: op };
      if (c.fate === "sent_again") {
        this.#as.set(id, as);
        ops.push(op as OpRow);
        c = { ...c, as };
      } else {
        why = c.why;
        this.#held.add(id);
      }
      shown.push(c);
    }
    if (row.atomic && why !== "") { // all or nothing
      for (const [k, c] of shown.entries()) {
        if (c.fate !== "sent_again") continue;
        this.#as.delete(c.op);
        this.#held.add(c.op);
        shown[k] = { ...c, fate: "held_back", as: "", why: `another op of its atomic batch is: ${why}` };
      }
      this.ops.push(...shown);
      return;
    }
    if (ops.length > 0) {
      const id = againBatch(row.id, ops[0]!.retries!);
      for (const [k, c] of shown.entries()) if (c.fate === "sent_again") shown[k] = { ...c, in: id };
      this.again.push({ old: row, id, ops });
    }
    this.ops.push(...shown);
  }

  /** The present id of an op that another one needs. */
  #now(op: string): { id: string; as: string | undefined; why: string } {
    for (let i = 0; i < maxRetries; i++) {
      const next = this.#next(op);
      if (next === undefined) break;
      op = next;
    }
    return { id: op, as: this.#as.get(op), why: this.#held.has(op) ? `it needs op ${op}, which is not sent again` : "" };
  }

  /** Makes an applied op into one that is committed again; or returns why it must not be. */
  #renew(op: OpRow, id: string): OpRow | string {
    const meant = expects(op);
    if (meant !== "" && !this.#expecting) return meant;
    const deps: string[] = [], args: Arg[] = [];
    for (const d of op.dependsOn ?? []) {
      const { as, why } = this.#now(d);
      if (why !== "") return why;
      if (as !== undefined) deps.push(as); // the others are present
    }
    const value = (r: OpRef): { json: string } | { ref: OpRef } | string => {
      const { id: now, as, why } = this.#now(r.op);
      if (why !== "") return why;
      if (as !== undefined) return { ref: { op: as, path: r.path } };
      const e = this.#find(now), json = e?.outcome && resolvePath(e.outcome.result, r.path);
      return json === undefined ? `what op ${r.op} gave, which it needs, is not known here any more` : { json };
    };
    for (const a of op.args) {
      const v = a.ref ? value(a.ref) : a;
      if (typeof v === "string") return v;
      args.push("name" in v ? v : { name: a.name, ...v });
    }
    let expected: Expect | undefined = op.expected;
    if (expected?.ref) {
      const v = value(expected.ref);
      if (typeof v === "string") return v;
      if ("json" in v && !/^\d+$/.test(v.json)) return "what it expects is no cursor";
      expected = "json" in v ? { cursor: Number(v.json) } : { ref: v.ref };
    }
    return { id, method: op.method, args, ...(deps.length > 0 && { dependsOn: deps }), ...(expected && { expected }), retries: op.id };
  }

  /** Plans a row that has no outcomes. */
  unfinished(row: BatchRow): void {
    const recorded = row.first > 0 ? this.#recorded(row) : undefined;
    let ops = [...row.ops];
    if (recorded === undefined) {
      ops = dropped(row);
      for (const [i, op] of ops.entries()) {
        const why = expects(op);
        if (op.verdict !== undefined || why === "" || this.#expecting) continue;
        settle(ops, row.atomic, i, { ...voidedOutcome(op.id), message: `held back: ${why}, and its stream was left (retry commits it again)` });
      }
      cascade(ops, row.atomic);
    }
    for (const [i, op] of ops.entries()) {
      const c = describe(row, op, "waits"), o = recorded?.[i] ?? op.verdict;
      if (o === undefined) this.ops.push(c);
      else if (o.status === "applied") this.ops.push({ ...c, fate: "in_log" });
      else this.ops.push({ ...c, fate: "held_back", why: o.message });
    }
    this.pending.push({ row, ops, recorded });
  }

  /** The outcomes of a batch that was sent, if the server has its seqs or the log any of its ops: then the server has decided all of them. */
  #recorded(row: BatchRow): Outcome[] | undefined {
    let any = this.#log.agrees && row.first <= this.#log.last;
    const outs = row.ops.map((op): Outcome => {
      const cursor = this.#log.ops.get(op.id), none = { op: op.id, cause: "", at: 0 };
      if (cursor !== undefined) {
        any = true;
        return { ...none, status: "applied", reason: "none", message: "", cursor, result: `{"cursor":${cursor}}` };
      }
      return op.verdict ?? {
        ...none, status: "rejected", reason: "pruned", cursor: 0, result: "",
        message: "the server has decided its batch, and the log has no event of it: it was refused, or changed nothing, or its event has left the log",
      };
    });
    return any ? outs : undefined;
  }
}

/** An op as a plan shows it. */
function describe(row: StoredRow, op: OpRow | BareOp, fate: Fate): Reconciled {
  let key = "";
  for (const a of op.args) {
    if ((a.name !== "key" && a.name !== "message") || a.json === undefined) continue;
    const v: unknown = JSON.parse(a.json);
    key = typeof v === "string" ? v : "";
  }
  return { op: op.id, batch: row.id, method: op.method, key, fate, as: "", in: "", why: "" };
}
