// Listings of an outbox's rows for people.

import { lastErrorOf, stopOf } from "./lookup.js";
import type { OutboxRow, OutboxStatus } from "./outbox_types.js";
import { countOf, type OpState, opsOf, stateOf, travels } from "./rows.js";
import type { Tables } from "./store.js";

/** Counts ops by state and lists the sessions that have unfinished ones. */
export function statusOf(t: Tables, sending: boolean): OutboxStatus {
  const box = t.box!;
  const st: OutboxStatus = {
    outbox: box.id, incarnation: box.incarnation, sending, pending: 0, inFlight: 0, acked: 0, failed: 0, skipped: 0, void: 0,
    bytes: t.unfinishedBytes, streams: [],
  };
  for (const r of listOps(t, {})) st[r.state === "in_flight" ? "inFlight" : r.state]++;
  for (const session of t.unfinishedSessions()) {
    const all = t.unfinished(session);
    st.streams.push({
      session, unfinished: all.reduce((n, r) => n + countOf(r), 0), attempts: all.reduce((n, r) => Math.max(n, r.attempts), 0),
      lastError: lastErrorOf(t, session), stopped: stopOf(t, session) !== undefined,
    });
  }
  return st;
}

/** The ops in an outbox, in the order in which they were committed. */
export function listOps(t: Tables, which: { session?: string; batch?: string; states?: OpState[] }): OutboxRow[] {
  const out: OutboxRow[] = [];
  const rows = [...t.batches.values()].sort((a, b) => a.num - b.num);
  for (const r of rows) {
    if ((which.session !== undefined && r.session !== which.session) || (which.batch !== undefined && r.id !== which.batch)) continue;
    let seq = r.first;
    for (const [place, op] of opsOf(r).entries()) {
      const outcome = r.outcomes?.[place] ?? op.verdict;
      const state = outcome ? stateOf(op, outcome) : r.state === "in_flight" ? "in_flight" : "pending";
      const own = seq > 0 && travels(op) ? seq++ : 0;
      if (which.states && !which.states.includes(state)) continue;
      out.push({
        op: op.id, batch: r.id, place, session: r.session, method: op.method, seq: own, state, attempts: r.attempts,
        lastError: r.lastError, outcome, retries: op.retries,
      });
    }
  }
  return out;
}
