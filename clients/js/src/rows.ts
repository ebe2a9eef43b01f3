// The rows of an outbox, as they are stored. Rows are immutable: a change replaces a row.

import type { CodeName, MooringError } from "./fault.js";
import { type Arg, type Expect, type Intent, needs, type Outcome } from "./intent.js";
import { ownID } from "./ulid.js";

/** One op intent of a batch. */
export interface OpRow extends Intent {
  readonly args: readonly Arg[];
  readonly dependsOn?: readonly string[];
  readonly expected?: Expect;
  /** The failed op that this one replaces. */
  readonly retries?: string;
  /** Its outcome, if it was decided without the server. */
  readonly verdict?: Outcome;
  /** It is sent as a void. */
  readonly void?: boolean;
  readonly dropAsked?: boolean;
  readonly bare?: never;
}

/** An op as memory has it: of its arguments it has the references alone. */
export type BareOp = Omit<OpRow, "bare"> & { readonly bare: true };

/** A row's state. stateOf has an op's final state. */
export type RowState = "pending" | "in_flight" | "finished";

/** An op's state, as people see it. */
export type OpState = "pending" | "in_flight" | "acked" | "failed" | "skipped" | "void";

interface Batch {
  readonly num: number; // in the order of the commits
  readonly id: string;
  readonly session: string;
  readonly via: string; // the ref to send through; "" is the session's own
  readonly atomic: boolean;
  readonly created: number;
  readonly bytes: number;
  readonly state: RowState;
  readonly first: number; // its first seq; 0 while it has none
  readonly attempts: number;
  readonly nextRetryAt: number; // 0: not waiting
  readonly lastError: string;
  readonly finishedAt: number;
  readonly outcomes: readonly Outcome[] | null;
  readonly dropping: boolean;
  readonly kept?: boolean; // finished: it still has its arguments
}

/** A batch: the op intents that were committed together. */
export interface BatchRow extends Batch {
  readonly ops: readonly OpRow[];
}

/** What memory has of the ops of a batch that is in the storage. */
export interface Packed {
  at: number; // where the storage has them, in bytes from its beginning, and how many bytes; a journal that is written anew changes the first
  readonly size: number;
  readonly count: number;
  readonly sent: number; // how many of them take a seq
  readonly text: string; // the bare ops as JSON, without the ids that the batch's gives
}

/** A batch as the tables have it: once it is stored, its ops are packed. */
export interface StoredRow extends Batch {
  readonly ops: readonly OpRow[] | Packed;
}

export const isWhole = (r: StoredRow): r is BatchRow => Array.isArray(r.ops);

/** The text of packed ops. */
export const packText = (batch: string, ops: readonly OpRow[]): string => JSON.stringify(ops.map(({ id, args, ...rest }, i) => {
  const refs = args.filter((a) => a.ref);
  return { ...(id !== ownID(batch, i) && { id }), ...rest, ...(refs.length > 0 && { args: refs }) };
}));

let unpacked: { from: Packed; ops: readonly BareOp[] } | undefined; // the last that were: lookups come in runs

/** A row's ops, of which the arguments may be missing. */
export function opsOf(r: StoredRow): readonly (OpRow | BareOp)[] {
  if (isWhole(r)) return r.ops;
  const from = r.ops as Packed;
  if (unpacked?.from !== from) {
    const ops = JSON.parse(from.text) as (Omit<BareOp, "id" | "args"> & { id?: string; args?: BareOp["args"] })[];
    unpacked = { from, ops: ops.map((op, i): BareOp => ({ ...op, bare: true, id: op.id ?? ownID(r.id, i)!, args: op.args ?? [] })) };
  }
  return unpacked.ops;
}

/** How many ops a row has. */
export const countOf = (r: StoredRow): number => (isWhole(r) ? r.ops.length : (r.ops as Packed).count);

/** How many ops of a row take a seq. */
export const seqsOf = (r: StoredRow): number => (isWhole(r) ? travelling(r.ops) : (r.ops as Packed).sent);

/** A session's stream. */
export interface StreamRow {
  readonly session: string;
  readonly lastSeq: number; // whose outcome is stored
  readonly spaceRef: string; // set while the session's create has not applied
  readonly ownerRef: string;
  readonly stopped: CodeName; // "none": it runs
  readonly reason: string;
  readonly old?: boolean; // its server knows the outbox by its old secret
  readonly life?: string; // a text that makes the secret of the session's present stream; the first stream has none
}

/**
 * How a ref came to be stored. A rotating one is about to replace another, whose id is its label. A rotated one is the id of a
 * ref that was replaced: it has the new ref's text, that ref's id as its label, and as its external id the hash of the old secret.
 */
export type Role = "space" | "owner" | "shared" | "rotating" | "rotated";

/** A sturdy ref that is sent through: the only rows with secrets, except the outbox's own. */
export interface RefRow {
  readonly id: string;
  readonly text: string;
  readonly role: Role;
  readonly external: string;
  readonly label: string;
  readonly redemption: string; // made once, so that redeeming again is not counted
  readonly saved: number;
  readonly drained?: boolean; // a rotating one: the tab that sends has nothing in flight under the other, and sends nothing any more
}

/** The outbox itself. */
export interface BoxRow {
  readonly id: string; // obx_ + ULID
  readonly secret: string; // base64url; secrets sent to servers are derived from it
  readonly old?: string; // the secret that older versions sent; "" for none, and missing in older rows
  readonly incarnation: number;
  readonly nextNum: number;
  readonly left?: number; // how often a stream was left: senders begin again when it changes
  readonly by?: number; // the incarnation, if the sender knows left streams: a tab with an older version raises incarnation only
}

/** Whether a tab with an older version sends, or was the last to: it continues streams that were left. */
export const outdated = (box: BoxRow): boolean => box.incarnation > 0 && box.by !== box.incarnation;

/** A higher incarnation of the same sender. */
export const raised = (box: BoxRow, step: number): Pick<BoxRow, "incarnation" | "by"> =>
  ({ incarnation: box.incarnation + step, ...(!outdated(box) && { by: box.incarnation + step }) });

export const noStream = (session: string): StreamRow => ({ session, lastSeq: 0, spaceRef: "", ownerRef: "", stopped: "none", reason: "" });

/** Whether an op takes a seq: it had no outcome before it got one. */
export const travels = (op: OpRow | BareOp): boolean => op.verdict === undefined || op.void === true;

/** How many ops take a seq. */
export const travelling = (ops: readonly OpRow[]): number => ops.reduce((n, o) => n + (travels(o) ? 1 : 0), 0);

/** The final state that an outcome stands for. */
export function stateOf(op: OpRow | BareOp, o: Outcome): OpState {
  if (o.status === "applied") return "acked";
  if (o.status === "voided" || (op.void === true && op.verdict === undefined) || (o.reason === "voided" && o.cause === op.id)) return "void";
  return o.status === "skipped" ? "skipped" : "failed";
}

/** Whether a row is finished and has no arguments any more. */
export const isSlim = (r: StoredRow): boolean => r.outcomes !== null && r.kept !== true && opsOf(r).every((op, i) => stateOf(op, r.outcomes![i]!) === "acked");

/** Merges the answer for the ops that were sent with the local outcomes. */
export function mergeOutcomes(ops: readonly OpRow[], answers: readonly Outcome[]): Outcome[] {
  let k = 0;
  return ops.map((op) => {
    const answer = travels(op) ? answers[k++] : undefined;
    const o = op.verdict ?? answer!; // the void of an op with a local outcome only filled the seq
    return o.op === op.id ? o : { ...o, op: op.id };
  });
}

/** The outcome of an op that needs one which did not apply. */
export function skippedBy(op: string, cause: Outcome): Outcome {
  return {
    op, status: "skipped", reason: cause.reason, cause: cause.op, cursor: 0, result: "", at: 0,
    message: `op ${cause.op}, which it needs, did not apply (${cause.reason})`,
  };
}

/** The outcome of an op that was dropped before it got a seq. */
export function voidedOutcome(op: string): Outcome {
  return { op, status: "voided", reason: "voided", message: "dropped by its own outbox", cause: "", cursor: 0, result: "", at: 0 };
}

/** The outcome of an op that the server would record as denied. */
export function deniedOutcome(op: string, why: MooringError): Outcome {
  return { op, status: "denied", reason: why.codeName, message: why.reason, cause: "", cursor: 0, result: "", at: why.at };
}

/** Gives up the ops of a batch that is not sent after all. */
export function dropped(row: BatchRow): OpRow[] {
  const ops = row.ops.map(({ void: gone, dropAsked, ...op }): OpRow => (gone || dropAsked ? { verdict: voidedOutcome(op.id), ...op } : op));
  for (const [i, op] of ops.entries()) if (row.atomic && op.verdict) settle(ops, true, i, op.verdict);
  cascade(ops, row.atomic);
  return ops;
}

/** Ends a batch's remaining ops as denied, as the server would. */
export function deny(row: BatchRow, why: MooringError): OpRow[] {
  const ops = [...row.ops];
  for (const [i, { id }] of ops.entries()) {
    if (ops[i]!.verdict !== undefined) continue;
    settle(ops, row.atomic, i, deniedOutcome(id, why));
    cascade(ops, row.atomic);
  }
  return ops;
}

/** The outcome of an op that is invalid. */
export function rejectedOutcome(op: string, reason: CodeName, message: string): Outcome {
  return { op, status: "rejected", reason, message, cause: "", cursor: 0, result: "", at: 0 };
}

/**
 * Gives an op its outcome without the server, in ops. In an atomic batch all others are aborted, and a single op
 * is aborted too, as on the server; a void stays a void.
 */
export function settle(ops: OpRow[], atomic: boolean, place: number, o: Outcome): void {
  if (!atomic || (ops.length === 1 && o.status === "voided")) {
    ops[place] = { ...ops[place]!, verdict: o };
    return;
  }
  for (const [j, op] of ops.entries()) {
    let v: Outcome = {
      op: op.id, status: "batch_aborted", reason: o.reason, cause: o.op, cursor: 0, result: "", at: 0,
      message: `op ${o.op} of the same atomic batch did not apply (${o.reason})`,
    };
    if (j === place) v = { ...v, message: o.message, at: o.at, cursor: o.cursor };
    ops[j] = { ...op, verdict: v };
  }
}

/** Skips the ops that need an op of the same batch with a local outcome, in ops. */
export function cascade(ops: OpRow[], atomic: boolean): void {
  const verdicts = new Map<string, Outcome>();
  for (let i = 0; i < ops.length; i++) {
    if (ops[i]!.verdict === undefined) {
      const cause = needs(ops[i]!).map((id) => verdicts.get(id)).find((v) => v !== undefined);
      if (cause) settle(ops, atomic, i, skippedBy(ops[i]!.id, cause));
    }
    const v = ops[i]!.verdict;
    if (v) verdicts.set(ops[i]!.id, v);
  }
}
