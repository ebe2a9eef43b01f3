// Rotation: replacing an owner's ref, or a space's root ref, by a new one. The new ref is in the outbox before a server is asked, so
// that the only ref that a server accepts is never lost.

import { newBackoff } from "./backoff.js";
import { sleep, type Client, type Waiting } from "./client.js";
import { type CodeName, faultOf, isTransient, type MooringError } from "./fault.js";
import type { Held } from "./link.js";
import { isSealed, Ref } from "./ref.js";
import { num, readInfo } from "./session.js";
import { dispose, type Struct } from "./wire.js";

/** The new ref, and the cut after which the old one changed nothing (0 for a space's). */
export interface Rotated {
  readonly held: Held;
  readonly cut: number;
}

/**
 * Session.rotate and Space.rotate. pending is called if it is not known whether the server has replaced the ref, with the old one: then it
 * has to be asked again.
 */
export async function rotate(client: Client, held: Held, waiting: Waiting | undefined, pending: (old: Ref) => void): Promise<Rotated> {
  const { ref: old } = held, box = client.outbox;
  let fresh: Ref;
  try {
    fresh = await box.beginRotation(old, old.for(old.target, isSealed(old.id)));
  } catch (err) {
    const before = await replacedBefore(client, held, waiting);
    if (before === undefined) throw err;
    return before;
  }
  await box.drainRef(old.id);
  const cut = await finish(client, old, fresh, waiting, pending);
  return { held: heldOf(client, fresh.id), cut };
}

const heldOf = (client: Client, id: string): Held => {
  const row = client.outbox.refRow(id)!;
  return { ref: Ref.parse(row.text), redemption: row.redemption };
};

/** The ref that replaced one here, if a server says that that one is dead. */
async function replacedBefore(client: Client, held: Held, waiting: Waiting | undefined): Promise<Rotated | undefined> {
  const row = client.outbox.refRow(held.ref.id);
  if (row?.role !== "rotated" || row.external !== held.ref.hashText) return undefined;
  const { grant } = await client.call(held, async (live) => readInfo(await live["info"]!()), waiting);
  return grant.dead === "none" ? undefined : { held: heldOf(client, row.label), cut: grant.cut };
}

/** Asks the server to put a ref in an old one's place, and stores its answer. */
async function finish(client: Client, old: Ref, fresh: Ref, waiting: Waiting | undefined, pending: (old: Ref) => void): Promise<number> {
  const box = client.outbox, held = { ref: old, redemption: box.refRow(old.id)?.redemption ?? "" };
  let cut = 0, refused: MooringError | undefined, unknown = false; // unknown: the method, to an older server
  try {
    cut = await client.call(held, async (live) => {
      try {
        const answer = (await live["rotate"]!(fresh.id, fresh.hashText)) as Struct | number | undefined, at = typeof answer === "object" ? answer["cut"] : answer;
        dispose(answer);
        return num(at);
      } catch (err) {
        unknown = err instanceof TypeError;
        throw err;
      }
    }, waiting);
  } catch (err) {
    refused = faultOf(err);
    if (!unknown && !isRefused(refused.codeName)) {
      pending(old);
      throw refused;
    }
  }
  try {
    await box.endRotation(old.id, refused !== undefined);
  } catch (err) {
    pending(old);
    throw err;
  }
  if (refused) throw refused;
  return cut;
}

/** Whether a server has refused a rotation: after any other error it may or may not have replaced the ref. */
function isRefused(code: CodeName): boolean {
  switch (code) {
    case "none": case "canceled": case "internal": case "incompatible":
    case "plaintext": // not sent now, but may have been before
      return false;
    case "not_yet_known":
      return true;
  }
  return !isTransient(code);
}

/** Asks again until a rotation that was begun is over, or the client is closed. */
export async function resumeRotation(client: Client, old: Ref, log: (message: string) => void): Promise<void> {
  const wait = newBackoff({ initial: 200, max: 30_000, factor: 2, jitter: 0.5 });
  for (let said = ""; !client.life.aborted; ) {
    const next = client.outbox.rotations().find((r) => r.old.id === old.id)?.fresh;
    if (next === undefined) return; // it is over
    try {
      await finish(client, old, next, undefined, () => {});
      return;
    } catch (err) {
      const f = faultOf(err);
      if (client.life.aborted) return;
      if (f.message !== said) log(`the rotation of ref ${old.id} waits: ${said = f.message}`);
      if (f.codeName === "plaintext") return;
    }
    await sleep(wait.next(), client.outbox);
  }
}
