// Old sessions of a space: deleted, or a key of each purged, many in one call.

import type { Client, Waiting } from "./client.js";
import { type MooringError, refusalOf } from "./fault.js";
import type { Held } from "./link.js";
import type { Struct } from "./wire.js";

/** Which sessions are old, and what is done to them. */
export interface OlderOptions extends Waiting {
  /** Deletes each for good, or removes every payload of key from each; without it they are listed. */
  remove?: "delete" | "purge";
  /** The key that is purged. */
  key?: string;
  /** How long nothing has changed in a session, in milliseconds by the database's clock: 1000 at least. */
  age?: number;
  /** Goes before age: before of an earlier page, Unix milliseconds. */
  before?: number;
  /** Begin after the session with this id. */
  after?: string;
  /** Sessions of a page; as many as a server takes at once without it. */
  limit?: number;
}

/** A session in which nothing has changed for a while. */
export interface OldSession {
  id: string;
  /** When its last event was committed, Unix milliseconds. */
  updated: number;
  /** Events in its log. */
  events: number;
  /** Bytes that it holds. */
  bytes: number;
  /** Why it was left: conflict if it has changed meanwhile, turn_open if a turn is running in it. */
  error?: MooringError;
}

/** What was done to a page of old sessions. */
export interface OldPage {
  /** Their last events are from before, Unix milliseconds. */
  before: number;
  /** Sessions that were deleted, or in which the key was purged. */
  done: number;
  /** Sessions that had nothing to purge. */
  unchanged: number;
  /** The others or, in a list, all. */
  sessions: OldSession[];
  /** Where the next page begins; empty at the end. */
  next: string;
}

/** Space.removeOlder. */
export async function* removeOlder(client: Client, held: Held, { remove, key = "", age = 0, before = 0, after = "", limit = 0, ...waiting }: OlderOptions): AsyncGenerator<OldPage, void, void> {
  for (let more = true; more; more = after !== "") {
    const answer = (await client.call(held, async (live) => (await live["removeOlder"]!(remove ?? "", key, age, before, after, limit)) as Struct, waiting));
    const page: OldPage = {
      before: Number(answer["before"]), done: Number(answer["done"]), unchanged: Number(answer["unchanged"]), next: (answer["next"] as string | undefined) ?? "",
      sessions: ((answer["sessions"] as Struct[] | undefined) ?? []).map((s) => {
        const error = refusalOf(s["refusal"]);
        return { id: s["id"] as string, updated: Number(s["updated"]), events: Number(s["events"]), bytes: Number(s["bytes"]), ...(error && { error }) };
      }),
    };
    const stopped = refusalOf(answer["stopped"]);
    yield page;
    // What is over by itself is waited for by the next request, if this one has come further.
    if (stopped && !(stopped.transient && page.next !== "" && page.next !== after)) throw stopped;
    ({ before, next: after } = page);
  }
}
