// References to ops outside a batch: known results become values, a failed op makes its users skipped, and unfinished ops of
// other streams are waited for. Messages and order are the server's, so that it makes no difference which side resolved it.

import { fault, type MooringError } from "./fault.js";
import { type Arg, type Expect, needs, type OpRef, type Outcome, resolvePath } from "./intent.js";
import { type OpRow, rejectedOutcome, settle, skippedBy } from "./rows.js";

/** An op in the outbox that others refer to. */
export interface Earlier {
  readonly id: string; // the op asked for, or the one that retries it
  readonly batch: string;
  readonly session: string;
  readonly seq: number; // 0 while it has none
  readonly outcome?: Outcome | undefined; // undefined while unfinished
}

/** Gives the op with an id; undefined if the outbox does not have it. */
export type Finder = (op: string) => Earlier | undefined;

/** The result of resolving a batch's references. */
export interface Resolution {
  ops: OpRow[];
  changed: boolean;
  blockedOn: string[]; // the batches of other sessions that this one has to wait for
  hold: number; // the lowest seq of its own stream that it still refers to; 0 for none
  near: string[]; // the batches of its own session that it still refers to
  loose: boolean; // one of them has no seq yet
}

/** Whether the outbox has to be asked about other ops. */
export function refersOutside(ops: readonly OpRow[]): boolean {
  const inside = new Set<string>();
  for (const op of ops) {
    if (op.retries !== undefined || needs(op).some((id) => !inside.has(id))) return true;
    inside.add(op.id);
  }
  return false;
}

/**
 * Resolves the references of a session's batch. Ops that cannot apply get their outcomes here. strict makes two cases errors
 * (bad_reference) instead: an op that find does not know, and a path that a known result does not have.
 */
export function resolve(ops: readonly OpRow[], atomic: boolean, session: string, find: Finder, strict: boolean): Resolution {
  const res: Resolution = { ops: [...ops], changed: false, blockedOn: [], hold: 0, near: [], loose: false };
  const inside = new Map<string, number>();
  for (let i = 0; i < ops.length; i++) {
    resolveOp(res, atomic, i, session, inside, find, strict);
    inside.set(ops[i]!.id, i);
  }
  return res;
}

/** Thrown to stop processing an op that was skipped. */
const stop = Symbol("skipped");

function resolveOp(res: Resolution, atomic: boolean, i: number, session: string, inside: Map<string, number>, find: Finder, strict: boolean): void {
  const op = res.ops[i]!;
  if (op.verdict !== undefined || needs(op).length === 0) return;
  const blockedOn: string[] = []; // counts only if the op has no outcome here: one that has waits for nothing
  let broken: MooringError | undefined;

  const skip = (cause: Outcome): never => {
    settle(res.ops, atomic, i, skippedBy(op.id, cause));
    res.changed = true;
    throw stop;
  };
  const look = (id: string): Earlier | undefined => {
    const j = inside.get(id);
    if (j !== undefined) {
      const v = res.ops[j]!.verdict;
      if (v) skip(v);
      return undefined;
    }
    const e = find(id);
    if (e === undefined) {
      broken ??= fault("bad_reference", `op ${id}, which op ${op.id} refers to, is not in this outbox: refer to ops that were committed before, or commit the value`);
      return undefined;
    }
    if (e.outcome && e.outcome.status !== "applied") skip(e.outcome);
    if (e.outcome === undefined && e.session !== session) blockedOn.push(e.batch);
    else if (e.outcome === undefined) {
      res.near.push(e.batch);
      res.loose ||= e.seq === 0;
      if (e.seq > 0 && (res.hold === 0 || e.seq < res.hold)) res.hold = e.seq;
    }
    return e;
  };
  /** The value of a reference if it is known, else the reference. */
  const value = (r: OpRef): { json: string } | { ref: OpRef } => {
    const e = look(r.op);
    if (e === undefined) return { ref: r }; // of the same batch, or unknown
    if (e.outcome === undefined) {
      if (e.id === r.op) return { ref: r };
      res.changed = true;
      return { ref: { op: e.id, path: r.path } };
    }
    const v = resolvePath(e.outcome.result, r.path);
    if (v === undefined) {
      broken ??= fault("bad_reference", `the result of op ${e.id} has nothing at ${JSON.stringify(r.path)}`);
      return { ref: r };
    }
    res.changed = true;
    return { json: v };
  };

  try {
    const deps: string[] = [];
    for (const id of op.dependsOn ?? []) {
      const e = look(id);
      if (e === undefined) deps.push(id);
      else if (e.outcome === undefined) {
        deps.push(e.id);
        res.changed ||= e.id !== id;
      } else res.changed = true; // it applied: nothing to wait for
    }
    const args = op.args.map((a): Arg => (a.ref ? { name: a.name, ...value(a.ref) } : a));
    let expected: Expect | undefined = op.expected;
    if (expected?.ref) {
      const { op: to, path } = expected.ref, v = value(expected.ref);
      if ("ref" in v) expected = { ref: v.ref };
      else {
        if (!/^\d+$/.test(v.json)) broken ??= fault("bad_reference", `expected_cursor of op ${op.id} refers to ${JSON.stringify(path)} of op ${to}, which is not a cursor`);
        expected = { cursor: Number(v.json) };
      }
    }
    if (broken) {
      if (strict) throw broken;
      settle(res.ops, atomic, i, rejectedOutcome(op.id, broken.codeName, broken.reason));
      res.changed = true;
      return;
    }
    const { dependsOn: _, expected: __, ...rest } = op;
    res.blockedOn.push(...blockedOn);
    res.ops[i] = { ...rest, args, ...(deps.length > 0 && { dependsOn: deps }), ...(expected && { expected }) };
  } catch (err) {
    if (err !== stop) throw err;
  }
}
