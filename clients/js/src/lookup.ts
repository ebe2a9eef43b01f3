// Lookups in rows: ops that others refer to, and batches as they are sent.

import { codes, MooringError } from "./fault.js";
import { needs } from "./intent.js";
import type { WireBatch, WireOp } from "./link.js";
import type { Entry } from "./machine.js";
import type { Earlier, Finder } from "./resolve.js";
import { type BatchRow, noStream, type OpRow, opsOf, outdated, type StoredRow, type StreamRow, travels } from "./rows.js";
import type { Change, Tables } from "./store.js";
import { byteLength } from "./text.js";

/** The size of a batch's ops. */
export const sizeOf = (ops: readonly OpRow[]): number =>
  ops.reduce((n, o) => n + 64 + o.args.reduce((k, a) => k + a.name.length + (a.json === undefined ? 64 : byteLength(a.json)), 0), 0);

/** A change of a session's stream row. */
export function streamChange(t: Tables, session: string, p: Partial<StreamRow>): Change {
  return { t: "stream", k: session, v: { ...(t.streams.get(session) ?? noStream(session)), ...p } };
}

/** The advice if the sending tab does not know replaced streams. */
export const olderSends = "a tab with an older version of this program sends for all tabs, and knows nothing of new streams of a session: close that tab, or load it anew";

/** Whether a session waits because the sending tab has an older version. */
export const suspended = (t: Tables, session: string): boolean => outdated(t.box!) && t.streams.get(session)?.life !== undefined;

/** Why nothing more of a session is sent until someone decides; undefined if its stream runs. */
export function stopOf(t: Tables, session: string): MooringError | undefined {
  const s = t.streams.get(session);
  return s === undefined || s.stopped === "none" || suspended(t, session) ? undefined : new MooringError(s.stopped, s.reason, { code: codes[s.stopped] });
}

/** The last error of a session's unfinished batches; "" for none. */
export function lastErrorOf(t: Tables, session: string): string {
  if (suspended(t, session)) return `in_use: ${olderSends}; until then nothing of session ${session} is sent`;
  return stopOf(t, session)?.message ?? t.unfinished(session).find((r) => r.lastError !== "")?.lastError ?? "";
}

/** Looks ops up, following those that were retried. */
export function finderOf(t: Tables): Finder {
  return (op) => {
    let e: Earlier | undefined;
    for (let i = 0; i < 1000; i++) {
      const found = t.findOp(op);
      if (!found) return e;
      e = earlierOf(found.row, found.place);
      if (!e.outcome || e.outcome.status === "applied") return e;
      const next = t.retries.get(op);
      if (next === undefined) return e;
      op = next;
    }
    return e;
  };
}

/** The op at a position of a row, as others refer to it. */
export function earlierOf(row: StoredRow, place: number): Earlier {
  const ops = opsOf(row), op = ops[place]!;
  const before = ops.slice(0, place).filter(travels).length;
  return {
    id: op.id, batch: row.id, session: row.session, outcome: row.outcomes?.[place] ?? op.verdict,
    seq: row.first > 0 && travels(op) ? row.first + before : 0,
  };
}

/** The lowest seq of its own stream that an unfinished batch refers to. */
export function holdOf(t: Tables, row: BatchRow): number {
  let hold = 0;
  for (const id of new Set(row.ops.flatMap(needs))) {
    const found = t.findOp(id);
    if (!found || found.row.id === row.id || found.row.session !== row.session) continue;
    const { seq } = earlierOf(found.row, found.place);
    if (seq > 0 && (hold === 0 || seq < hold)) hold = seq;
  }
  return hold;
}

/** A batch as it is sent, the same at every repeat. */
export function wireOf(e: Entry, ackedThrough: number): WireBatch {
  const ops: WireOp[] = [];
  for (const op of e.ops) {
    if (!travels(op)) continue;
    const seq = e.first + ops.length;
    if (op.void) ops.push({ id: op.id, seq, method: "void" });
    else {
      ops.push({
        id: op.id, seq, method: op.method, args: op.args, ...(op.dependsOn && { dependsOn: op.dependsOn }), ...(op.expected && { expected: op.expected }),
      });
    }
  }
  return { id: e.id, atomic: e.atomic, ackedThrough, ops };
}
