// Streams that cannot go on: what the session lacks is sent again in a new one, or it is given up.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import * as fs from "node:fs/promises";
import { test, type TestContext } from "node:test";
import { type Client, MooringError, newBatchID, newULID, open, opID, type Reconciliation, type Session, Standstill } from "../src/index.js";
import type { Arg, Expect, OpRef, Outcome } from "../src/intent.js";
import { reconciled } from "../src/leave.js";
import { again, againBatch, type Log, Planner } from "../src/reconcile.js";
import type { BatchRow, OpRow } from "../src/rows.js";
import { Tables } from "../src/store.js";
import { repo } from "./paths.js";
import { folder, logOf, Proxy, putKeys, TestServer } from "./rig.js";

interface TableOp {
  id: string; method: string; args: ({ name: string; json?: string; ref?: OpRef })[]; dependsOn?: string[]; expected?: { cursor?: number; ref?: OpRef };
  void?: boolean; retries?: string;
}
type TableOutcome = Pick<Outcome, "op" | "status" | "cursor" | "result" | "message">;
interface Table {
  again: [string, string][];
  batches: [string, string, string][];
  plans: {
    name: string; expecting: boolean; log: Record<string, number>; base: number; agrees: boolean; last: number; retried: Record<string, string> | null;
    rows: { id: string; atomic: boolean; first: number; slim?: boolean; ops: TableOp[]; outcomes: TableOutcome[] | null }[];
    fates: unknown[] | null; again: { id: string; ops: TableOp[] }[] | null; recorded: (TableOutcome[] | null)[] | null;
  }[];
}

const opOf = ({ args, expected, ...op }: TableOp): OpRow => ({ ...op, args: args as Arg[], ...(expected && { expected: (expected.ref ? { ref: expected.ref } : { cursor: expected.cursor ?? 0 }) as Expect }) });
const outcomeOf = (o: TableOutcome): Outcome => ({ reason: "none", cause: "", at: 0, ...o });
const tabled = ({ op, status, cursor, result, message }: Outcome): TableOutcome => ({ op, status, cursor, result, message });

test("plans are those of the Go outbox", async (t) => {
  const table = JSON.parse(readFileSync(repo("testdata/reconcile.json"), "utf8")) as Table;
  for (const [op, id] of table.again) assert.equal(again(op), id);
  for (const [batch, op, id] of table.batches) assert.equal(againBatch(batch, op), id);
  assert.ok(table.plans.length > 10);
  for (const p of table.plans) {
    await t.test(p.name, () => {
      const rows = p.rows.map((r, num): BatchRow => ({
        num, id: r.id, session: "ses_1", via: "", atomic: r.atomic, created: 0, bytes: 0, ops: r.ops.map(opOf), first: r.first,
        state: r.outcomes ? "finished" : r.first > 0 ? "in_flight" : "pending", attempts: 0, nextRetryAt: 0, lastError: "", finishedAt: 0,
        outcomes: r.outcomes?.map(outcomeOf) ?? null, dropping: false, kept: r.slim !== true,
      }));
      const outcomes = new Map(rows.flatMap((r) => (r.outcomes ?? []).map((o) => [o.op, { id: o.op, batch: r.id, session: r.session, seq: 0, outcome: o }] as const)));
      const log: Log = { ops: new Map(Object.entries(p.log)), base: p.base, gone: false, fence: 0, last: p.last, agrees: p.agrees };
      const plan = new Planner(log, p.expecting, (op) => outcomes.get(op), (op) => p.retried?.[op]);
      for (const r of rows) {
        if (r.outcomes) plan.finished(r);
        else plan.unfinished(r);
      }
      plan.resend((rows) => rows as BatchRow[]);
      assert.deepEqual(plan.ops.map((c) => ({ ...c, why: c.why.replace("(retry commits", "(mooring outbox retry commits") })), p.fates ?? []);
      assert.deepEqual(plan.again.map(({ id, ops }) => ({ id, ops })), (p.again ?? []).map(({ id, ops }) => ({ id, ops: ops.map(opOf) })));
      assert.deepEqual(plan.pending.map((r) => r.recorded?.map(tabled) ?? null), p.recorded ?? []);
    });
  }
});

const quick = { reconnect: { initial: 10, max: 100 }, outbox: { backoff: { initial: 10, max: 100 } } };

async function opened(t: TestContext, home: string, more = {}): Promise<Client> {
  const c = await open({ home, ...quick, ...more });
  t.after(() => c.close());
  return c;
}

const code = (name: string) => (err: unknown): boolean => err instanceof MooringError && err.codeName === name;
const fates = (r: Reconciliation): string[] => r.ops.map((c) => `${c.method} ${c.key} ${c.fate}`);
const put = async (s: Session, ...keys: string[]): Promise<void> => {
  const b = s.batch();
  for (const k of keys) b.put(k, { k });
  (await (await b.commit()).wait()).check();
};

test("what a restored server has lost is brought back, once and in order", async (t) => {
  const server = await TestServer.start(t), home = await folder(t, "home");
  let c = await opened(t, home);
  const { session, batch } = (await c.space(server.ref.text)).create();
  batch.put("message/0", {});
  (await (await batch.commit()).wait()).check();
  const restore = await server.save();

  const more = session.batch(), first = more.put("message/1", {});
  more.put("message/2", { needs: 1 }).dependsOn(first);
  const { ref } = more.share({ rights: ["read"] });
  (await (await more.commit()).wait()).check();
  const expecting = session.batch();
  expecting.put("message/3", {}).expect(5);
  expecting.put("message/4", {});
  (await (await expecting.commit()).wait()).check();
  await c.close();
  await restore();

  c = await opened(t, home);
  const s = c.sessionByID(session.id);
  const waits = await s.put("message/5", {});
  await assert.rejects(waits.wait(), (err) => err instanceof Standstill && err.codeName === "server_behind" && /Client\.reconcile/.test(err.message));
  await assert.rejects(c.drain(), Standstill);
  assert.deepEqual(c.sessions(), [session.id]);

  const plan = await c.reconcile(session.id, { plan: true });
  const want = ["put message/1 sent_again", "put message/2 sent_again", "share  sent_again", "put message/3 held_back", "put message/4 sent_again", "put message/5 waits"];
  assert.deepEqual(fates(plan), want);
  assert.equal(plan.stopped?.codeName, "server_behind");
  await assert.rejects(waits.wait(), Standstill); // nothing was done
  const done = await c.reconcile(session.id);
  assert.deepEqual(done.ops, plan.ops);
  assert.equal(done.batches.length, 2);
  (await waits.wait()).check();
  await c.drain();
  assert.deepEqual(putKeys(await logOf(s)), ["message/0", "message/1", "message/2", "message/4", "message/5"]);
  const guest = await (await opened(t, await folder(t, "guest"))).session(ref.text);
  assert.equal((await guest.snapshot()).entries.size, 5);

  // The seqs of what is finished were those of the stream before.
  const counted = await c.outbox.planReconcile(session.id, { ...c.outbox.newLog(session.id), agrees: true, last: 100 });
  assert.deepEqual(fates(counted), ["create  sent_again", "put message/0 sent_again", "put message/3 held_back"]);

  // Again, also from the journal, there is nothing to do; but what was held back is sent when told to.
  await c.close();
  c = await opened(t, home);
  const once = await c.reconcile(session.id);
  assert.deepEqual([once.needed, fates(once)], [false, ["put message/3 held_back"]]);
  const told = await c.reconcile(session.id, { expecting: true });
  assert.deepEqual(fates(told), ["put message/3 sent_again"]);
  await c.drain();
  assert.equal(c.outbox.list({ batch: told.batches[0]! })[0]!.outcome?.status, "conflict");
  await put(c.sessionByID(session.id), "message/6"); // and the new stream goes on
});

test("a session that is gone is made again by who made it, and by nobody else", async (t) => {
  const server = await TestServer.start(t), restore = await server.save(), home = await folder(t, "home");
  const c = await opened(t, home);
  const { session, batch } = (await c.space(server.ref.text)).create();
  batch.put("message/0", {});
  const { ref } = batch.share({ rights: ["read", "append"] });
  (await (await batch.commit()).wait()).check();
  const guest = await opened(t, await folder(t, "guest")), theirs = await guest.session(ref.text);
  await put(theirs, "message/1");
  await c.close();
  await restore();
  await assert.rejects(guest.reconcile(session.id), code("not_found"));
  const again = await opened(t, home);
  const r = await again.reconcile(session.id);
  assert.deepEqual([r.gone, fates(r)], [true, ["create  sent_again", "put message/0 sent_again", "share  sent_again"]]);
  await again.drain();
  assert.deepEqual(fates(await guest.reconcile(session.id)), ["put message/1 sent_again"]);
  await guest.drain();
  assert.deepEqual(putKeys(await logOf(again.sessionByID(session.id))), ["message/0", "message/1"]);
});

test("a reconciliation is durable before anything is sent, and may be interrupted", async (t) => {
  const server = await TestServer.start(t), home = await folder(t, "home");
  let c = await opened(t, home);
  const { session, batch } = (await c.space(server.ref.text)).create();
  (await (await batch.commit()).wait()).check();
  const restore = await server.save();
  await put(session, "message/1", "message/2");
  await put(session, "message/3");
  await c.close();
  await restore();
  c = await opened(t, home, { offline: true }); // nobody sends what is committed
  const { batches } = await c.reconcile(session.id);
  assert.equal(batches.length, 2);
  await c.close();
  c = await opened(t, home, { offline: true });
  const left = c.outbox.list({ states: ["pending"] });
  assert.deepEqual(left.map((r) => [r.batch, r.seq, typeof r.retries]), [[batches[0], 1, "string"], [batches[0], 2, "string"], [batches[1], 3, "string"]]);
  assert.deepEqual((await c.outbox.planReconcile(session.id, c.outbox.newLog(session.id))).ops.map((o) => o.fate), ["sent_again", "waits", "waits", "waits"]); // the create alone, of which that log knows nothing
  await c.close();
  c = await opened(t, home);
  await c.drain();
  assert.deepEqual(putKeys(await logOf(c.sessionByID(session.id))), ["message/1", "message/2", "message/3"]);
  assert.equal((await c.reconcile(session.id)).needed, false);
});

test("what an old connection brings after the log was read is refused", async (t) => {
  const server = await TestServer.start(t), proxy = await Proxy.start(t, server), home = await folder(t, "home");
  let c = await opened(t, home);
  const { session, batch } = (await c.space(proxy.ref(server.ref).text)).create();
  (await (await batch.commit()).wait()).check();
  await put(session, "message/0");
  const held = proxy.kept();
  proxy.keeps = () => true;
  const ticket = await session.put("message/1", {}); // it leaves, and is on its way for long
  const arrive = await held;
  await c.close();
  await proxy.leave();
  proxy.keeps = () => false;

  c = await opened(t, home, { offline: true });
  c.outbox.tables.apply({ t: "stream", k: session.id, p: { stopped: "server_behind", reason: "told to" } });
  const r = await c.reconcile(session.id);
  assert.deepEqual(fates(r), ["put message/1 waits"]);
  await arrive();
  assert.deepEqual(putKeys(await logOf(c.sessionByID(session.id))), ["message/0"]);
  await c.close();
  c = await opened(t, home);
  const results = await c.ticket(ticket.batch).wait();
  assert.deepEqual(results.outcomes.map((o) => JSON.parse(o.result) as unknown), [{ cursor: 3 }]); // and not unchanged
  assert.deepEqual(putKeys(await logOf(c.sessionByID(session.id))), ["message/0", "message/1"]);

  // Who lacks nothing fences nobody; and a sender that has begun since the fence has the log read again.
  const { incarnation } = c.outbox.tables.box!;
  assert.equal((await c.reconcile(session.id)).needed, false);
  assert.equal(c.outbox.tables.box!.incarnation, incarnation);
  await assert.rejects(c.outbox.reconcile(session.id, { ...c.outbox.newLog(session.id), fence: incarnation - 1, agrees: true }), code("in_use"));
});

test("a copied outbox is told by what the server has at its last seq", async (t) => {
  const server = await TestServer.start(t), home = await folder(t, "home"), other = await folder(t, "copy");
  let c = await opened(t, home);
  const { session, batch } = (await c.space(server.ref.text)).create();
  (await (await batch.commit()).wait()).check();
  await c.close();
  await fs.cp(home, other, { recursive: true });
  const copy = await opened(t, other);
  await put(copy.sessionByID(session.id), "message/copy");
  await copy.close();
  c = await opened(t, home);
  const ticket = await c.sessionByID(session.id).put("message/own", {});
  await assert.rejects(ticket.wait(), (err) => err instanceof Standstill && err.codeName === "outbox_diverged");
  const r = await c.reconcile(session.id);
  assert.deepEqual([r.stopped?.codeName, fates(r)], ["outbox_diverged", ["put message/own waits"]]);
  (await ticket.wait()).check();
  const again = await opened(t, other);
  await put(again.sessionByID(session.id), "message/more"); // both go on
  assert.deepEqual(putKeys(await logOf(c.sessionByID(session.id))), ["message/copy", "message/own", "message/more"]);
});

test("what is sent on refers to nothing of the stream before, and seqs begin anew", async (t) => {
  const c = await opened(t, await folder(t, "home"), { offline: true }), tables = new Tables();
  const session = `ses_${newULID()}`, ids = [newBatchID(), newBatchID(), newBatchID()] as const, ops = ids.map((id) => opID(id, 0));
  tables.apply({ t: "box", k: "box", v: { ...c.outbox.tables.box!, nextNum: 9 } });
  const sent = (num: number, path?: string): void => {
    const args = path === undefined ? [] : [{ name: "v", ref: { op: ops[0]!, path } }];
    const v: BatchRow = {
      num, id: ids[num]!, session, via: "", atomic: false, created: 0, bytes: 0, ops: [{ id: ops[num]!, method: "put", args }], state: "in_flight", first: 500 + num,
      attempts: 0, nextRetryAt: 0, lastError: "", finishedAt: 0, outcomes: null, dropping: false,
    };
    tables.apply({ t: "batch", k: v.id, v });
  };
  sent(0);
  sent(1, "cursor");
  sent(2, "nothing");
  const log: Log = { ops: new Map([[ops[0]!, 7]]), base: 0, gone: false, fence: 0, last: 0, agrees: false };
  const { changes, decided } = reconciled(c.outbox, tables, session, log, false);
  for (const change of changes) tables.apply(change);
  assert.deepEqual(decided.map((r) => r.outcomes!.map((o) => o.status)), [["applied"], ["rejected"]]);
  assert.deepEqual(tables.whole(tables.sequenced(session)).map((r) => [r.id, r.first, r.ops[0]!.args]), [[ids[1], 1, [{ name: "v", json: "7" }]]]);

  // Also where the rows of before were swept.
  tables.apply({ t: "batch", k: ids[1], p: { first: 90 } });
  for (const k of ids) tables.apply({ t: "batch", k, v: null });
  assert.equal(tables.nextSeq(session), 91);
  const back = tables.apply({ t: "stream", k: session, p: { life: "another" } });
  assert.equal(tables.nextSeq(session), 1);
  back();
  assert.equal(tables.nextSeq(session), 91);
});

test("a stream is given up without harm to others", async (t) => {
  const server = await TestServer.start(t), home = await folder(t, "home");
  let c = await opened(t, home);
  const space = await c.space(server.ref.text), { session, batch } = space.create(), other = space.create();
  for (const b of [batch, other.batch]) (await (await b.commit()).wait()).check();
  const restore = await server.save();
  await put(session, "message/1");
  await c.close();
  await restore();
  c = await opened(t, home);
  const stuck = await c.sessionByID(session.id).put("message/2", {});
  await assert.rejects(stuck.wait(), Standstill);
  const spared = c.sessionByID(other.session.id), needs = spared.batch();
  needs.put("message/needs", {}).dependsOn(stuck.ops[0]!);
  needs.put("message/free", {});
  const ticket = await needs.commit();
  assert.deepEqual(await c.abandon(session.id), [...stuck.ops]);
  assert.equal((await stuck.wait()).outcomes[0]!.status, "voided");
  assert.deepEqual((await ticket.wait()).outcomes.map((o) => o.status), ["skipped", "applied"]);
  assert.deepEqual(await c.abandon(session.id), []);
  await put(c.sessionByID(session.id), "message/3");
  assert.deepEqual(putKeys(await logOf(c.sessionByID(session.id))), ["message/3"]);
  // What was given up can be had back; so can what was lost with the server.
  assert.deepEqual(fates(await c.reconcile(session.id)), ["put message/1 sent_again"]);
  await c.drain();
  await assert.rejects(c.abandon(`ses_${"0".repeat(26)}`), code("not_found"));
});

test("arguments of what has applied are kept within a bound", async (t) => {
  const server = await TestServer.start(t), c = await opened(t, await folder(t, "home"), { outbox: { ...quick.outbox, keepBytes: 3000 } });
  const { session, batch } = (await c.space(server.ref.text)).create();
  (await (await batch.commit()).wait()).check();
  const restore = await server.save();
  for (const [i, length] of [1000, 1000, 5000, 1000].entries()) {
    const b = session.batch();
    b.put(`message/${i}`, { text: "x".repeat(length) });
    (await (await b.commit()).wait()).check();
    const { keptBytes } = c.outbox.tables;
    assert.ok(keptBytes > 1000 && keptBytes <= 3000, `${keptBytes}`);
  }
  await c.drain();
  await restore();
  const r = await c.reconcile(session.id);
  assert.deepEqual(fates(r), ["put  lost", "put message/1 sent_again", "put  lost", "put message/3 sent_again"]);
  await c.drain();
});
