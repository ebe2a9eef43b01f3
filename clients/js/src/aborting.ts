// Ending open turns, those of other writers too.

import type { Client, Waiting } from "./client.js";
import { MooringError } from "./fault.js";
import { type Held, type WireBatch, reached } from "./link.js";
import { readRefs, readSnapshot, type Turn } from "./session.js";
import { randomBytes, toBase64url } from "./text.js";
import { newBatchID, newULID } from "./ulid.js";

/** Which open turns are ended. */
export interface AbortOptions extends Waiting {
  /** Only turns of dead refs. Turns of refs that the session's ref may not list, because they are not below it, are left. */
  dead?: boolean;
  /** Called with the number of turns done, and of all. */
  progress?: (done: number, total: number) => void;
}

/** The result of abortTurns. */
export interface AbortedTurns {
  /** Ended as aborted. */
  aborted: number;
  /** Were ended by others in the meantime. */
  ended: number;
  /** Left, since their refs are not dead. */
  left: number;
  /** Could not be ended, with the reasons. */
  refused: { message: string; error: MooringError }[];
}

const abortBatch = 50; // ending a turn reads and writes its message and parts

const isOpen = (t: Turn): boolean => t.status === "streaming" || t.status === "interrupted";

/**
 * Aborts open turns at once, in a stream of its own: in the outbox the ops could queue behind the begin that waits for them. The
 * server recognizes a repeated batch by its seqs, over any connection.
 */
export async function abortTurns(client: Client, held: Held, { dead = false, progress, ...waiting }: AbortOptions): Promise<AbortedTurns> {
  const state = await client.call(held, (live, peer) => readSnapshot(live, peer), waiting);
  const all = state.turns.filter(isOpen), known = dead && all.length > 0 ? await deadRefs(client, held, waiting) : undefined;
  const open = known ? all.filter((t) => known(t.ref)) : all;
  const done: AbortedTurns = { aborted: 0, ended: 0, left: all.length - open.length, refused: [] };
  const outbox = `obx_${newULID()}`, secret = toBase64url(randomBytes(32));
  let seq = 0;

  const call = async (turns: readonly Turn[]): Promise<void> => {
    const batch: WireBatch = {
      id: newBatchID(), atomic: false, ackedThrough: seq, ops: turns.map((t, i) => ({
        id: newULID(), seq: seq + i + 1, method: "finalize",
        args: [{ name: "message", json: JSON.stringify(t.message) }, { name: "status", json: '"aborted"' }],
      })),
    };
    const outcomes = await client.call(held, async (_, peer) => {
      const stream = await peer.openStream({ session: reached(held), through: held, space: undefined, ownerRef: "", with: [], outbox, secret, incarnation: 1 });
      try {
        const reply = await stream.apply(batch);
        if (reply.err) throw reply.err;
        stream.acknowledge(seq + turns.length);
        return reply.outcomes!;
      } finally {
        stream.close();
      }
    }, waiting);
    seq += turns.length;
    for (const [i, o] of outcomes.entries()) {
      if (o.status === "applied") done.aborted++;
      else if (o.reason === "turn_ended") done.ended++;
      else if (o.reason === "too_large" && turns.length > 1) await call([turns[i]!]); // together, they may exceed the limit that one does not
      else done.refused.push({ message: turns[i]!.message, error: new MooringError(o.reason, o.message, { batch: batch.id }) });
    }
  };

  progress?.(0, open.length);
  for (let i = 0; i < open.length; i += abortBatch) {
    await call(open.slice(i, i + abortBatch));
    progress?.(Math.min(i + abortBatch, open.length), open.length);
  }
  return done;
}

/**
 * Returns a test for dead refs: of the refs that the ref may list, those that are not alive. An owner's ref lists all living
 * refs, so any other is dead.
 */
async function deadRefs(client: Client, held: Held, waiting: Waiting): Promise<(ref: string) => boolean> {
  const refs = new Map<string, boolean>();
  let owner: boolean | undefined; // whether the first, the ref itself, is an owner's
  for await (const { grant } of readRefs(client, held, waiting)) {
    owner ??= grant.owner;
    refs.set(grant.id, grant.dead !== "none");
  }
  return (ref) => refs.get(ref) ?? (owner === true && ref !== ""); // servers of the previous version do not name turns' refs
}
