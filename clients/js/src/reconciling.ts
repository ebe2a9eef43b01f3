// Reconciling a session with its server: fencing batches that are on the way, and reading the log.

import { newBackoff } from "./backoff.js";
import { sleep, type Client, type Waiting } from "./client.js";
import { fault, faultOf } from "./fault.js";
import type { Held } from "./link.js";
import { wireOf } from "./lookup.js";
import { judge } from "./machine_open.js";
import { noRoute, type Route } from "./machine.js";
import { creates } from "./methods.js";
import type { Outbox } from "./outbox.js";
import type { Log, ReconcileOptions, Reconciliation } from "./reconcile.js";
import { Ref } from "./ref.js";
import { isSlim, opsOf, seqsOf } from "./rows.js";

const logPage = 1000; // events per request
const settleLimit = 10_000; // how long batches in flight are waited for
const fencing = 10_000; // how long an unreachable server is tried
const reconcileTries = 5;
const doubtful = 3; // how often a server must say that it does not know a session: one that was just started may see it late

/** Client.reconcile. */
export async function reconcile(client: Client, id: string, options: ReconcileOptions & Waiting): Promise<Reconciliation> {
  const box = client.outbox, expecting = options.expecting ?? false;
  const row = box.refFor(id), held: Held = { ref: Ref.parse(row.text), redemption: row.redemption }, session = held.ref.target;
  if (options.plan !== true) await box.mayLeave();
  for (let i = 1; ; i++) { // others may be sending
    const log = await logged(client, held, session, false, options);
    const planned = await box.planReconcile(session, log, expecting);
    if (options.plan === true || !planned.needed) return planned;
    try {
      // Batches on the way must not arrive after the log was read, so they are fenced first.
      return await box.reconcile(session, await logged(client, held, session, true, options), expecting);
    } catch (err) {
      if (faultOf(err).codeName !== "in_use" || i === reconcileTries) throw err;
    }
  }
}

/** Reads which ops the session's log has, once nothing is in flight; fenced: and once nothing of the stream can arrive any more. */
async function logged(client: Client, held: Held, session: string, fenced: boolean, options: Waiting): Promise<Log> {
  const gone = await isGone(client, held, options), box = client.outbox;
  await settled(client, session, options);
  const log = box.newLog(session);
  log.gone = gone;
  if (fenced) await fence(client, box, log, session, options);
  if (gone) return log;
  const under = client.sessionByID(session), { grant, session: about } = await under.info(options);
  if (grant.dead !== "none") throw fault(grant.dead, `the ref to session ${session} is dead: use another one, or give up what is pending for the session (Client.abandon)`);
  if (!grant.rights.includes("read")) throw fault("missing_right", `no ref stored here may read session ${session}, so what it lacks cannot be determined: use one that may, or give up what is pending for the session (Client.abandon)`);
  if (grant.from > 1 || grant.message !== "" || grant.readKeys.length > 0) throw fault("missing_right", `the ref to session ${session} shows only a part of its log, so what it lacks cannot be determined: use one that shows all of it`);
  log.base = about?.base ?? 0;
  for (let after = log.base, more = true; more; ) {
    const page = await under.events(after, logPage, options);
    for (const e of page.events) {
      if (e.op !== "") log.ops.set(e.op, e.cursor);
      after = e.cursor;
    }
    more = page.events.length > 0 && after < page.cursor;
  }
  return log;
}

/** Whether the server does not know the session. A call would be retried for that, as for a share that has not arrived yet. */
async function isGone(client: Client, held: Held, options: Waiting): Promise<boolean> {
  const wait = newBackoff({ initial: 50, max: 1000, factor: 2, jitter: 0.5 });
  for (let i = 0; i < doubtful; i++) {
    const known = await client.call(held, async (live, peer) => {
      try {
        await live["info"]!();
        return true;
      } catch (err) {
        const f = peer.fail(err);
        if (f.codeName !== "not_yet_known" && f.codeName !== "unknown_ref") throw f;
        return false;
      }
    }, options);
    if (known) return false;
    await sleep(wait.next(), client.outbox, options.signal);
  }
  return true;
}

/** Waits until nothing of a session is in flight, since that could seem to be missing. */
async function settled(client: Client, session: string, { signal }: Waiting): Promise<void> {
  for (const until = Date.now() + settleLimit; ; await sleep(10, client.outbox, signal)) {
    if (signal?.aborted || client.life.aborted) throw fault("canceled", `stopped waiting for what is on its way to session ${session}`);
    const left = client.outbox.tables.unfinished(session).length;
    if (left === 0 || client.outbox.stopped(session)) return;
    if (Date.now() > until) throw fault("in_use", `${left} batches of session ${session} are in flight and its stream has not stopped: wait for their answers first`);
  }
}

/** The codes with which a server refuses to make a stream: the ref can change nothing. */
const idle: readonly string[] = ["revoked", "stale_epoch", "expired", "missing_right", "session_deleted"];

/**
 * Fences the senders of a session's stream at its server, and asks for the server's last seq.
 * Ops up to that seq are not missing if the server's batch there is the same as this outbox's: it
 * is sent as a repeat, and the server compares digests. In a copied or restored outbox it differs: then the log decides.
 */
async function fence(client: Client, box: Outbox, log: Log, session: string, { signal }: Waiting): Promise<void> {
  const wait = newBackoff(box.settings.backoff), until = Date.now() + fencing;
  for (let step = 1; ; ) {
    const incarnation = await box.stepOver(step);
    try {
      const { last, agrees } = await openFenced(client, box, session, log.gone, incarnation);
      Object.assign(log, { fence: incarnation, last, agrees });
      return;
    } catch (err) {
      const f = faultOf(err), what = judge(f);
      if (f.codeName === "wrong_outbox" || idle.includes(f.codeName)) { // there is no stream on which anything could arrive
        log.fence = incarnation;
        return;
      }
      if (what === "leaseLost" && step < 2 ** 40) { // this outbox is older than what was sent: raise the incarnation in growing steps
        step *= 2;
        continue;
      }
      if ((what !== "tryLink" && what !== "tryStream") || Date.now() > until) throw f;
    }
    await sleep(wait.next(), box, signal);
    if (signal?.aborted || box.life.aborted) throw fault("canceled", "stopped asking how far the server has the stream");
  }
}

/** Opens the stream under an incarnation and compares the batch at its last seq. */
async function openFenced(client: Client, box: Outbox, session: string, gone: boolean, incarnation: number): Promise<{ last: number; agrees: boolean }> {
  const stream = await client.openStream(box.request(session, await routeOf(box, session, gone), incarnation));
  try {
    const last = await stream.lastSeq();
    if (last === 0) return { last, agrees: true };
    const at = [...box.tables.batches.values()].find((r) => r.session === session && r.first > 0 && r.first <= last && last < r.first + seqsOf(r));
    const row = at === undefined || isSlim(at) || at.first + seqsOf(at) !== last + 1 ? undefined : await box.whole(at.id);
    if (row === undefined) return { last, agrees: false }; // the log decides
    const entry = {
      num: row.num, id: row.id, session, via: row.via, atomic: row.atomic, first: row.first, n: seqsOf(row), bytes: row.bytes,
      ops: row.ops, hold: 0, route: noRoute, marked: true, attempts: 0, under: "", unsure: false,
    };
    const { err } = await stream.apply(wireOf(entry, 0));
    if (err && judge(err) !== "giveUp") throw err;
    return { last, agrees: err === undefined };
  } finally {
    stream.close();
  }
}

/** The route on which the session's stream is opened when nothing is to be sent. */
async function routeOf(box: Outbox, session: string, gone: boolean): Promise<Route> {
  const [first] = [...box.tables.batches.values()].filter((r) => r.session === session).sort((a, b) => a.num - b.num);
  if (gone && first && creates(opsOf(first)[0]!.method) && !isSlim(first)) {
    const row = await box.whole(first.id);
    if (row) return box.routeOf(session, row.via, row.ops);
  }
  return box.routeOf(session, "", [{ id: "", method: "put", args: [] }]);
}
