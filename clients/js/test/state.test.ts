// State of any kind against a real server: values of one's own kinds, several writers of one, and servers that do not have it in use.

import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { type Client, jsonText, open, type OpenOptions, type SessionEvent, type Value } from "../src/index.js";
import { folder, logOf, Rewriting, TestServer } from "./rig.js";

async function client(t: TestContext, options: Partial<OpenOptions> = {}): Promise<Client> {
  const c = await open({ home: await folder(t, "home"), reconnect: { initial: 10, max: 100 }, outbox: { backoff: { initial: 10, max: 100 } }, ...options });
  t.after(() => c.close());
  return c;
}

/** What leads to a server, and hides names from its answers to hello. */
class Hiding extends Rewriting {
  /** The names that are hidden. */
  names: string[] = [];
  override toClient = (m: string): string => (m.includes('"features"') ? this.names.reduce((s, name) => s.replace(`"${name}"`, '"hidden"'), m) : m);

  /** How many messages had a text. */
  count(text: string): number {
    return this.sent.filter((m) => m.includes(text)).length;
  }
}

test("values of one's own kinds are any JSON, and change by members", async (t) => {
  const server = await TestServer.start(t), c = await client(t);
  const { session, batch } = (await c.space(server.ref)).create();
  const values: [string, Value][] = [["plan", null], ["a/b/c/d/e/f/g", 7], ["flags/x", false], ["note", "é"], ["list", [1, { a: 1 }]], ["todo/1", { state: "open", tries: 1 }]];
  for (const [key, value] of values) batch.put(key, value);
  batch.put("odd", jsonText(' {"a" : 1.50, "a":2} '));
  (await (await batch.commit()).wait()).check();
  const state = await session.snapshot();
  for (const [key, value] of values) assert.equal(state.entries.get(key)!.payload, JSON.stringify(value));
  assert.equal(state.entries.get("odd")!.payload, ' {"a" : 1.50, "a":2} ');
  assert.deepEqual((await session.get(["plan", "todo/1"])).entries.map((e) => e.payload), ["null", '{"state":"open","tries":1}']);

  const b = session.batch();
  const done = b.patch("todo/1", { state: "done", by: { name: "b" } });
  b.add("todo/1", "tries", 2);
  const twice = b.patch("odd", { b: 1 }), text = b.add("note", "n", 1), first = b.put("todo/2", 1).expectKey(0), late = b.put("todo/2", 2).expectKey(0);
  const on = b.put("todo/2", 3).expectKey(first.field("cursor")), gone = b.remove("plan").expectKey(done.field("cursor"));
  const { outcomes } = await (await b.commit()).wait();
  assert.deepEqual(outcomes.map((o) => `${o.status} ${o.reason}`), [
    "applied none", "applied none", "rejected bad_payload", "rejected bad_payload", "applied none", "conflict conflict", "applied none", "conflict conflict",
  ]);
  const of = (op: { opID: string }) => outcomes.find((o) => o.op === op.opID)!;
  assert.deepEqual([of(late).cursor, of(gone).cursor, of(on).cursor], [of(first).cursor, state.entries.get("plan")!.cursor, of(first).cursor + 1]);
  assert.ok(of(twice).message.includes("a name twice") && of(text).message.includes("no object"));
  const log = await logOf(session);
  assert.deepEqual(log.filter((e) => e.method === "patch" || e.method === "add").map((e) => `${e.key} ${e.payload}`), ['todo/1 {"state":"done","by":{"name":"b"}}', 'todo/1 {"member":"tries","by":2}']);
  assert.equal((await session.get("todo/1")).entries[0]!.payload, '{"state":"done","tries":3,"by":{"name":"b"}}');
});

test("workers share a list by claims, and a claim is broken under the right for it", { timeout: 30_000 }, async (t) => {
  const server = await TestServer.start(t), c = await client(t), { session, batch } = (await c.space(server.ref)).create();
  for (const i of [1, 2, 3]) batch.put(`todo/${i}`, { n: i });
  const { ref } = batch.share({ rights: ["read", "append"], actor: "owner/worker" }), { ref: supervisor } = batch.share({ rights: ["read", "append", "break"], actor: "owner/boss" });
  (await (await batch.commit()).wait()).check();
  const other = await (await client(t)).session(ref), boss = await (await client(t)).session(supervisor);
  const b = session.batch(), first = b.claimFirst("todo/", 60_000), second = b.claim("todo/2", 60_000, "w");
  b.patch("todo/1", { done: true }).withClaim(first);
  b.remove("todo/1").withClaim(first.field("claim"));
  const renewed = b.claim("todo/2", 60_000, "w");
  b.patch("todo/2", { by: "w" }).withClaim(renewed);
  const results = await (await b.commit()).wait();
  results.check();
  const got = results.get(first) as { key: string; claim: number }, at = (results.get(second) as { claim: number }).claim;
  assert.equal(got.key, "todo/1");

  const o = other.batch(), third = o.claimFirst("todo/", 60_000), none = o.claimFirst("todo/", 60_000);
  o.put("todo/2", 1);
  o.claim("todo/2", 60_000);
  o.release("todo/2", at); // knowing the cursor is not owning the claim
  o.put("todo/3", 1).withClaim(third);
  const theirs = await (await o.commit()).wait();
  assert.deepEqual(theirs.outcomes.map((x) => `${x.status} ${x.cursor}`).slice(2, 5), Array(3).fill(`conflict ${at}`));
  assert.deepEqual([(theirs.get(third) as { key: string }).key, (theirs.get(none) as { key?: string }).key, theirs.outcomes[5]!.status], ["todo/3", undefined, "applied"]);

  const state = await session.snapshot(), claim = state.claims.get("todo/2")!;
  assert.deepEqual([...state.claims.keys()], ["todo/2", "todo/3"]);
  assert.deepEqual([claim.cursor, claim.worker, claim.ref, claim.actor, claim.until > Date.now()], [at, "w", session.ref.id, "owner", true]);
  assert.deepEqual((await other.get("todo/2")).entries[0]!.claim, claim);
  assert.equal(state.claims.get("todo/3")!.actor, "owner/worker");
  const listed = [];
  for await (const e of session.list({ prefix: "todo/" })) listed.push(`${e.key} ${e.claim?.cursor}`);
  assert.deepEqual(listed, [`todo/2 ${at}`, `todo/3 ${state.claims.get("todo/3")!.cursor}`]);

  const broken = boss.batch();
  broken.release("todo/2", at);
  broken.put("todo/2", "mine");
  (await (await broken.commit()).wait()).check();
  const late = session.batch();
  late.put("todo/2", 1).withClaim(at);
  late.claim("todo/2", 1000);
  assert.deepEqual((await (await late.commit()).wait()).outcomes.map((x) => x.status), ["conflict", "applied"]);
  const tail: string[] = [];
  for await (const e of session.follow({ after: state.cursor })) {
    tail.push(`${e.method} ${e.actor} ${e.payload}`);
    if (e.method === "lapse") break;
  }
  assert.equal(tail[0], `release owner/boss {"claim":${at},"broken":true}`);
  assert.equal(tail.length, 4); // and the put, the claim, and its lapse

  for (const wrong of [
    (w: ReturnType<typeof session.batch>) => w.claim("message/m", 1000), (w: ReturnType<typeof session.batch>) => w.claim("todo/1", 999),
    (w: ReturnType<typeof session.batch>) => w.claimFirst("todo", 1000), (w: ReturnType<typeof session.batch>) => w.claim("todo/1", 1000, "é".repeat(33)),
    (w: ReturnType<typeof session.batch>) => w.release("todo/1", -1), (w: ReturnType<typeof session.batch>) => w.put("todo/1", 1).withClaim(1.5),
  ]) {
    const w = session.batch();
    wrong(w);
    await assert.rejects(w.commit(), /: op 1 \(/);
  }
});

test("ops wait for the feature that they need, and what needs none does not", { timeout: 30_000 }, async (t) => {
  const server = await TestServer.start(t), hiding = await Hiding.start(t, server), said: string[] = [];
  hiding.names = ["keys"];
  const c = await client(t, { onWaiting: (reason) => said.push(reason) });
  const space = await c.space(hiding.ref(server.ref)), one = space.create(), two = space.create();
  (await (await one.batch.commit()).wait()).check();
  const before = hiding.count('"apply"');
  const needs = one.session.batch();
  needs.put("message/m", { n: 1 });
  needs.put("todo/1", 7);
  const waiting = await needs.commit(), behind = await one.session.put("message/n", {});
  const results = waiting.wait();
  while (said.length === 0) await new Promise((r) => setTimeout(r, 5));
  const hellos = hiding.count('"hello"');
  two.batch.put("message/m", { n: 2 });
  (await (await two.batch.commit()).wait()).check();
  assert.equal(hiding.count('"apply"'), before + 1);
  while (c.status().streams.length > 1) await new Promise((r) => setTimeout(r, 5)); // a wait ends with the answer, which is stored after it
  const status = c.status();
  assert.deepEqual([status.streams.map((s) => [s.session, s.unfinished, s.stopped]), status.failed], [[[one.session.id, 3, false]], 0]);
  const why = /^unsupported: the server at 127\.0\.0\.1:\d+ does not have keys in use \(it, or another replica, is of an earlier version\): the op is kept, and sent once it has$/;
  assert.match(status.streams[0]!.lastError, why);
  assert.match(said[0]!, why);
  while (hiding.count('"hello"') === hellos) await new Promise((r) => setTimeout(r, 5)); // it is asked again
  assert.ok(hiding.count('"hello"') > 2);

  hiding.names = [];
  (await results).check();
  (await behind.wait()).check();
  assert.deepEqual((await logOf(one.session)).map((e) => e.key).slice(1), ["message/m", "todo/1", "message/n"]);
});

test("a server that does not know what readers understand is not told, and refuses what they may misread", { timeout: 30_000 }, async (t) => {
  const server = await TestServer.start(t), hiding = await Hiding.start(t, server), c = await client(t);
  const { session, batch } = (await c.space(server.ref)).create();
  batch.put("message/m", {});
  (await (await batch.commit()).wait()).check();
  hiding.names = ["understands", "keys"];
  const older = await (await client(t, { patience: 200 })).session(hiding.ref(session.ref));
  const seen: SessionEvent[] = [], ended = older.subscribe({}, (e) => { seen.push(e); });
  assert.deepEqual([...(await older.snapshot()).entries.keys()], ["message/m"]);
  assert.equal((await older.events()).events.length, 2);
  while (seen.length < 2) await new Promise((r) => setTimeout(r, 5));
  await Promise.all([assert.rejects(ended, { codeName: "incompatible" }), session.put("todo/1", 7).then((ticket) => ticket.wait())]);
  assert.equal(seen.length, 2);
  await assert.rejects(older.snapshot(), { codeName: "incompatible" });
  await assert.rejects(older.events(), { codeName: "incompatible" });
  assert.equal(hiding.count("understands"), 0);
  assert.equal((await session.events()).events.length, 3);
});
