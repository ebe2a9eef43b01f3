// Streams that a server refuses to make. Under a ref that can change nothing it makes a few, in which it records
// denials; then it refuses openStream with the same reason. The ops end here with that reason, their seqs are
// assigned again, and batches that wait for them continue, as if the server had recorded it.
//
// An existing stream is never refused like this nor removed, so nothing of this one has been applied. Neither will batches
// that are still on the way, if they were sent under the same ref, since its fault is permanent. If some may have been
// sent under another ref, that is not certain: then the stream stops instead.

import type { CodeName, MooringError } from "./fault.js";
import type { Entry, Machine, Route, Stream } from "./machine.js";
import { creates } from "./methods.js";

/** Why a server refuses to make a stream opened on this route. */
export interface Refusal {
  readonly to: Route;
  readonly why: MooringError;
}

/** The authority of an opening. */
export const groundsOf = (r: Route): string => `${r.space} ${r.ref}`;

/** Notes that a batch was sent. */
export function sentUnder(e: Entry, grounds: string): void {
  e.unsure ||= e.under !== "" && e.under !== grounds;
  e.under = grounds;
}

/** Whether a batch can only have been sent on this route. */
function only(e: Entry, to: Route): boolean {
  if (e.via !== "" && (e.via === to.ref || (e.via === to.space && creates(e.ops[0]!.method)))) return true; // it has no other route, whoever sends
  return !e.unsure && (e.under === "" || e.under === groundsOf(to));
}

/** Why a ref can change nothing, and never will. */
const endless: ReadonlySet<CodeName> = new Set<CodeName>(["revoked", "stale_epoch", "expired", "missing_right", "session_deleted"]);

/** Whether an answer means that the server refuses to make the stream, and it is certain that nothing of it was or will be applied. */
export const isRefused = (s: Stream, why: MooringError): boolean =>
  endless.has(why.codeName) && !s.heard && s.stored === 0 && s.unstored.length === 0 && s.queue.every((e) => only(e, s.opened));

/**
 * The refusal was settled, and looked follows; or outcomes of the session are stored here that the server does not have,
 * and known is the reason for which the stream stops.
 */
export function refused(m: Machine, session: string, known: MooringError | undefined): void {
  const s = m.streams.get(session);
  if (!s?.refusal) return;
  s.refusal = undefined;
  if (known) {
    s.asking = false;
    s.stopped = known;
    m.out.push({ do: "stop", session, err: known });
    return;
  }
  m.unblock(s);
  s.queue = [];
  s.queued = s.holds = 0;
  s.head = undefined;
  s.drops = new Map();
  s.dropEarly = new Set();
  // Batches still on the way must not reach a stream that another ref may make.
  s.needRaise = true;
  if (!m.raising) {
    m.raising = true;
    m.out.push({ do: "raise" });
  }
}
