// What a session lacks of what its outbox has: a plan, made without storage or server from the outbox's rows and from
// what the session's log has. Ops that applied once and that the server does not have any more are committed again under
// new ids, in the order in which they applied, in batches as before, references to each other kept. It is the planner of
// the Go outbox, and makes its plans (testdata/reconcile.json).

import { type Arg, type Expect, type OpRef, type Outcome, resolvePath } from "./intent.js";
import type { Standstill } from "./outbox_types.js";
import type { Finder } from "./resolve.js";
import { type BatchRow, cascade, dropped, isSlim, type OpRow, settle, travels, voidedOutcome } from "./rows.js";
import { bytesOf, sha256 } from "./text.js";
import { batchOf, derivedULID } from "./ulid.js";

/** What a session's log has, as its server shows it. */
export interface Log {
  /** The cursors of the events that ops have made, by op id. */
  readonly ops: Map<string, number>;
  /** Up to there events have left the log: what made them is counted as there. */
  base: number;
  /** The server does not know the session. */
  gone: boolean;
  /** The incarnation under which the session's stream was opened before the log was read; 0: nobody was kept from sending. */
  fence: number;
  /** If agrees, the server has of the stream what this outbox has of it up to last, and nothing else. */
  last: number;
  agrees: boolean;
  /** The batches that had their answers before the log was read; left out, all. */
  readonly answered?: ReadonlySet<string>;
}

/**
 * What becomes of an op when its session is reconciled. sent_again: it applied and is not there any more, and is committed
 * again as another op. waits: it goes on waiting, behind those. held_back: it is not sent again, or not any more; why says
 * why. in_log: it was not answered, and the log has it. lost: its arguments are not kept any more.
 */
export type Fate = "sent_again" | "waits" | "held_back" | "in_log" | "lost";

/** What becomes of one op. */
export interface Reconciled {
  readonly op: string;
  readonly batch: string;
  readonly method: string;
  /** The argument key or message, if it has one. */
  readonly key: string;
  readonly fate: Fate;
  /** sent_again: the op that stands for it … */
  readonly as: string;
  /** … and its batch. */
  readonly in: string;
  readonly why: string;
}

/** What is done about a session. */
export interface ReconcileOptions {
  /** Sends ops, too, that say where the session has to be: with an expected cursor, or an offset in a text. They were meant for the session as it was. */
  expecting?: boolean;
  /** Tells what would be done, and does nothing. */
  plan?: boolean;
}

/** What a session lacks of what the outbox has, op by op, and what becomes of each. */
export interface Reconciliation {
  readonly session: string;
  /** Why nothing of it was sent; undefined if its stream has not stopped. */
  readonly stopped: Standstill | undefined;
  /** The server does not know the session: it is made again first. */
  readonly gone: boolean;
  readonly ops: readonly Reconciled[];
  /** The batches that are committed again. */
  readonly batches: readonly string[];
  /** Whether there is anything to be done. */
  readonly needed: boolean;
}

/** The codes of streams that do not go on by themselves: they are left by reconcile or abandon, unless the newer data are put back. */
export const hopeless: ReadonlySet<string> = new Set(["server_behind", "outbox_diverged", "wrong_outbox", "outbox_damaged"]);

const derived = (from: string, text: string): string => derivedULID(from, sha256(bytesOf(`mooring reconcile v1\0${text}`)));

/** The id under which an op is committed again. Copies of an outbox give it the same. */
export const again = (op: string): string => derived(op, op);

/** The id of the batch of what is committed again of a batch, from op on. */
export const againBatch = (batch: string, op: string): string => batchOf(derived(batch, `${batch} ${op}`))!;

const maxAgain = 8; // how often an op can have been committed again by copies of this outbox and still be known
const maxRetries = 1000;

/** Whether the log has an op, or what a copy of this outbox has committed in its place. */
function has(log: Log, op: string): boolean {
  for (let i = 0; i < maxAgain; i++) {
    if (log.ops.has(op)) return true;
    op = again(op);
  }
  return false;
}

/** Whether what applied once is not there: by its seq in the session's present stream, if that tells, else by its event, which may have left the log. */
function lacks(log: Log, o: Outcome, seq: number): boolean {
  if (log.agrees && seq > 0) return seq > log.last && !has(log, o.op);
  return o.cursor > log.base && !has(log, o.op);
}

/** Why an op was meant for the session as it was; "" if it was not. */
function expects(op: OpRow): string {
  if (op.expected) return "it expects the session at a cursor";
  return op.args.some((a) => a.name === "offset") ? "it expects a text of a length" : "";
}

/** A batch that is to be committed again. */
export interface Resending {
  readonly old: BatchRow;
  readonly id: string;
  readonly ops: OpRow[];
}

/** A row without outcomes, and what becomes of it. */
export interface PendingRow {
  readonly row: BatchRow;
  readonly ops: OpRow[];
  /** The server has decided it: what became of it. */
  readonly recorded: Outcome[] | undefined;
}

/** The outcome of a batch that changed nothing has this in it. */
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
  readonly #done: { row: BatchRow; positions: number[]; cursor: number }[] = []; // with ops that the session lacks
  readonly #as = new Map<string, string>(); // by op that is committed again: the new one
  readonly #held = new Set<string>(); // ops that are not, though the session lacks them

  constructor(log: Log, expecting: boolean, find: Finder, next: (op: string) => string | undefined) {
    this.#log = log;
    this.#expecting = expecting;
    this.#find = find;
    this.#next = next;
  }

  /** Looks at a row that has its outcomes; resend plans what it finds. */
  finished(row: BatchRow): void {
    if (this.#log.answered && !this.#log.answered.has(row.id)) return;
    const positions: number[] = [];
    let seq = row.first, cursor = 0;
    for (const [i, op] of row.ops.entries()) {
      const own = row.first > 0 && travels(op) ? seq++ : 0, o = row.outcomes![i]!;
      if (o.status !== "applied" || unchanged(o) || !lacks(this.#log, o, own) || this.#next(o.op) !== undefined) continue;
      positions.push(i);
      cursor ||= o.cursor;
    }
    if (positions.length > 0) this.#done.push({ row, positions, cursor });
  }

  /** Plans what finished has found, in the order in which it applied. */
  resend(): void {
    this.#done.sort((a, b) => a.cursor - b.cursor);
    for (const d of this.#done) this.#resendRow(d.row, d.positions);
  }

  #resendRow(row: BatchRow, positions: number[]): void {
    const shown: Reconciled[] = [], ops: OpRow[] = [];
    let why = "";
    for (const i of positions) {
      const old = row.ops[i]!, as = again(old.id);
      let c = describe(row, old, "sent_again");
      const op = isSlim(row) ? "" : this.#renew(old, as);
      if (op === "") c = { ...c, fate: "lost", why: "its arguments were not kept" };
      else if (typeof op === "string") c = { ...c, fate: "held_back", why: op };
      if (c.fate === "sent_again") {
        this.#as.set(old.id, as);
        ops.push(op as OpRow);
        c = { ...c, as };
      } else {
        why = c.why;
        this.#held.add(old.id);
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

  /** What stands for an op that another one needs. */
  #now(op: string): { id: string; as: string | undefined; why: string } {
    for (let i = 0; i < maxRetries; i++) {
      const next = this.#next(op);
      if (next === undefined) break;
      op = next;
    }
    return { id: op, as: this.#as.get(op), why: this.#held.has(op) ? `it needs op ${op}, which is not sent again` : "" };
  }

  /** Makes of an op that applied once one that is to be committed again; or gives why it must not be. */
  #renew(op: OpRow, id: string): OpRow | string {
    const meant = expects(op);
    if (meant !== "" && !this.#expecting) return meant;
    const deps: string[] = [], args: Arg[] = [];
    for (const d of op.dependsOn ?? []) {
      const { as, why } = this.#now(d);
      if (why !== "") return why;
      if (as !== undefined) deps.push(as); // the others are there
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

  /** What became of a batch that was sent, if the server has its seqs or the log any of its ops: then the server has decided them all. */
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
function describe(row: BatchRow, op: OpRow, fate: Fate): Reconciled {
  let key = "";
  for (const a of op.args) {
    if ((a.name !== "key" && a.name !== "message") || a.json === undefined) continue;
    const v: unknown = JSON.parse(a.json);
    key = typeof v === "string" ? v : "";
  }
  return { op: op.id, batch: row.id, method: op.method, key, fate, as: "", in: "", why: "" };
}
