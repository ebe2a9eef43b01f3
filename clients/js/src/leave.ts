// Leaving a stream that cannot continue: its session gets another one, for which the server gets another secret, so
// the old one does not interfere. The change is one write, so it may be interrupted anywhere and
// repeated. A sender, in this tab or another one, starts again, since what it holds of the old stream must not be
// sent.

import type { Outcome } from "./intent.js";
import { earlierOf, finderOf, sizeOf } from "./lookup.js";
import { creates } from "./methods.js";
import { fault } from "./fault.js";
import type { Outbox } from "./outbox.js";
import { type Log, Planner, type Reconciled } from "./reconcile.js";
import { type Earlier, type Finder, resolve } from "./resolve.js";
import { type BatchRow, mergeOutcomes, noStream, type OpRow, raised, type StreamRow, travelling } from "./rows.js";
import type { Change, Tables } from "./store.js";
import { newULID } from "./ulid.js";

/** The changes to write, and the batches that end by them. */
export interface Left {
  readonly changes: Change[];
  readonly decided: BatchRow[];
}

/** Begins the session's next stream with batches that end, batches that get seqs in it, in order, and new ones. */
function next(box: Outbox, t: Tables, session: string, ends: readonly BatchRow[], flying: readonly BatchRow[]): Change[] {
  const changes: Change[] = [], { nextNum, left = 0 } = t.box!;
  // The seqs of what is finished were those of the stream that is left.
  for (const r of t.batches.values()) if (r.session === session && r.first > 0) changes.push({ t: "batch", k: r.id, p: { first: 0 } });
  let stream: StreamRow = t.streams.get(session) ?? noStream(session);
  for (const r of ends) {
    for (const c of r.outcomes ? [finished(r)] : box.decide(t, r)) {
      if (c.t === "stream" && "v" in c && c.v) stream = c.v;
      else changes.push(c);
    }
  }
  changes.push({ t: "stream", k: session, v: { ...stream, life: newULID(), lastSeq: 0, stopped: "none", reason: "" } });
  let seq = 1, num = nextNum;
  for (const r of flying) {
    const row: BatchRow = { ...r, num: t.batches.has(r.id) ? r.num : num++, first: seq, state: "pending", dropping: false, attempts: 0, nextRetryAt: 0, lastError: "" };
    seq += travelling(r.ops);
    changes.push({ t: "batch", k: r.id, v: row });
    if (t.batches.has(r.id)) continue;
    for (const op of r.ops) {
      changes.push({ t: "op", k: op.id, v: r.id });
      if (op.retries !== undefined) changes.push({ t: "retry", k: op.retries, v: op.id });
    }
  }
  changes.push({ t: "box", k: "box", p: { nextNum: num, ...raised(t.box!, 1), left: left + 1 } });
  return changes;
}

const finished = (r: BatchRow): Change => ({
  t: "batch", k: r.id,
  p: { ops: r.ops, state: "finished", finishedAt: Date.now(), outcomes: r.outcomes, first: 0, nextRetryAt: 0, dropping: false, kept: true },
});

/** Gives up the unfinished ops of a session. not_found if the outbox has nothing of the session. */
export function abandoned(box: Outbox, t: Tables, session: string): Left & { ops: string[] } {
  const known = t.streams.has(session) || [...t.batches.values()].some((r) => r.session === session);
  if (!known) throw fault("not_found", `nothing of session ${session} is in this outbox`);
  const given: string[] = [], decided = t.whole(t.unfinished(session)).map((r): BatchRow => {
    const ops = r.ops.map(({ void: _, dropAsked: __, ...op }): OpRow => {
      if (op.verdict !== undefined) return op;
      given.push(op.id);
      const message = `abandoned with its stream${r.first > 0 ? "; whether the server has applied it is not known here" : ""}`;
      return { ...op, verdict: { op: op.id, status: "voided", reason: "voided", message, cause: "", cursor: 0, result: "", at: 0 } };
    });
    // Unless it was sent, nobody can have made the session that it creates.
    return { ...r, ops, outcomes: r.first > 0 ? mergeOutcomes(ops, []) : null };
  });
  return { changes: next(box, t, session, decided, []), decided: decided.map(outcomesOf), ops: given };
}

const outcomesOf = (r: BatchRow): BatchRow => ({ ...r, outcomes: r.outcomes ?? mergeOutcomes(r.ops, []) });

/** A plan for a session. */
export interface Plan extends Left {
  readonly ops: Reconciled[];
  readonly batches: string[];
}

/** Plans what a session lacks, and the changes that send it. not_found if the server has lost the session and its creation is not in this outbox. */
export function reconciled(box: Outbox, t: Tables, session: string, log: Log, expecting: boolean): Plan {
  const stored = finderOf(t), given = new Map<string, Earlier>();
  const find: Finder = (op) => given.get(op) ?? stored(op);
  const p = new Planner(log, expecting, find, (op) => t.retries.get(op));
  for (const r of [...t.batches.values()].sort((a, b) => a.num - b.num)) if (r.session === session && r.state === "finished") p.finished(r);
  p.resend((rows) => t.whole(rows));
  const waiting = t.whole(t.unfinished(session));
  const first = p.again[0]?.ops[0] ?? waiting[0]?.ops[0];
  if (log.gone && !(first && creates(first.method))) {
    throw fault("not_found", `the server does not know session ${session}, and its creation is not in this outbox: the outbox that made it has to reconcile first`);
  }
  for (const r of waiting) p.unfinished(r);

  const flying = p.again.map(({ old, id, ops }): BatchRow => ({
    num: 0, id, session, via: old.via, atomic: old.atomic, created: Date.now(), bytes: sizeOf(ops), ops, state: "pending", first: 0,
    attempts: 0, nextRetryAt: 0, lastError: "", finishedAt: 0, outcomes: null, dropping: false,
  }));
  const ends: BatchRow[] = [], rest: Change[] = [];
  const know = (row: BatchRow): void => { for (const k of row.ops.keys()) given.set(row.ops[k]!.id, earlierOf(row, k)); };
  for (const { row, ops: left, recorded } of p.pending) {
    let ops = left;
    if (recorded) {
      ops = row.ops.map(({ void: _, dropAsked: __, ...op }, i): OpRow => ({ ...op, verdict: recorded[i]! }));
      const end: BatchRow = { ...row, ops, outcomes: recorded as Outcome[] };
      ends.push(end);
      know(end);
      continue;
    }
    if (row.first > 0) ops = resolve(ops, row.atomic, session, find, false).ops; // its next stream knows nothing of the old one
    const now: BatchRow = { ...row, ops, bytes: sizeOf(ops), outcomes: null };
    if (travelling(ops) === 0) {
      const end: BatchRow = row.first > 0 ? { ...now, outcomes: mergeOutcomes(ops, []) } : now;
      ends.push(end);
      know(outcomesOf(end));
    } else if (row.first > 0) {
      flying.push(now);
      know({ ...now, first: 1 }); // any nonzero seq
    } else rest.push({ t: "batch", k: row.id, p: { ops, bytes: now.bytes } });
  }
  return {
    changes: [...next(box, t, session, ends, flying), ...rest], decided: ends.map(outcomesOf), ops: p.ops, batches: p.again.map((a) => a.id),
  };
}
