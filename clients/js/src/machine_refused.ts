// Streams that a server does not make. Under a ref that can change nothing it makes a few, and records in them what is
// denied; then openStream is refused with what it would have recorded. The ops end here with that, their seqs are given
// out anew, and whatever they are waited for by goes on, as if the server had recorded it.
//
// A stream that is there is never refused so, and none is removed that would be then: so nothing of this one has been applied. And what
// is on its way still will not be, if it goes under the same ref, since what ails that is for good. What may have been
// sent under another ref nobody can tell about: then the stream stops instead.

import type { CodeName, MooringError } from "./fault.js";
import type { Entry, Machine, Route, Stream } from "./machine.js";
import { creates } from "./methods.js";

/** Why a server makes no stream that is opened so. */
export interface Refusal {
  readonly to: Route;
  readonly why: MooringError;
}

/** On what authority a stream is opened. */
export const groundsOf = (r: Route): string => `${r.space} ${r.ref}`;

/** Notes that a batch is sent. */
export function sentUnder(e: Entry, grounds: string): void {
  e.unsure ||= e.under !== "" && e.under !== grounds;
  e.under = grounds;
}

/** Whether a batch was sent that way if at all. */
function only(e: Entry, to: Route): boolean {
  if (e.via !== "" && (e.via === to.ref || (e.via === to.space && creates(e.ops[0]!.method)))) return true; // it goes through no other, whoever sends
  return !e.unsure && (e.under === "" || e.under === groundsOf(to));
}

/** Why a ref can change nothing, and never will. */
const endless: ReadonlySet<CodeName> = new Set<CodeName>(["revoked", "stale_epoch", "expired", "missing_right", "session_deleted"]);

/** Whether an answer means that the server makes no such stream, and it is certain that nothing of it was or will be applied. */
export const isRefused = (s: Stream, why: MooringError): boolean =>
  endless.has(why.codeName) && !s.heard && s.stored === 0 && s.unstored.length === 0 && s.queue.every((e) => only(e, s.opened));

/**
 * The refusal was settled; looked follows. Or outcomes of the session are stored here, of which the server knows nothing:
 * then known is why the stream stops.
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
  // What is on its way in vain must not find the stream that another ref may be used for.
  s.needRaise = true;
  if (!m.raising) {
    m.raising = true;
    m.out.push({ do: "raise" });
  }
}
