// The client against a real server: the README's program, what each verb does, every refusal, references, and that nothing
// is lost or shown.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test, type TestContext } from "node:test";
import { inspect } from "node:util";
import { newHttpBatchRpcSession } from "capnweb";
import { type Client, type CodeName, jsonText, type KeyOptions, type ListOptions, MooringError, newBatchID, newULID, open, type OpenOptions, Ref, reference, type Right, type Session, type SessionEvent, Standstill, type Ticket } from "../src/index.js";
import { repo } from "./paths.js";
import { folder, logOf, Proxy, putKeys, TestServer } from "./rig.js";
import { JournalStore } from "../src/journal.js";
import { streamSecret } from "../src/ref.js";
import { opsOf } from "../src/rows.js";
import { toBase64url } from "../src/text.js";

const refused = (codeName: CodeName) => (err: unknown): boolean => {
  assert.ok(err instanceof MooringError, inspect(err));
  assert.equal(err.codeName, codeName, err.message);
  return true;
};

async function client(t: TestContext, options: Partial<OpenOptions> = {}): Promise<Client> {
  const c = await open({ home: await folder(t, "home"), reconnect: { initial: 10, max: 100 }, outbox: { backoff: { initial: 10, max: 100 } }, ...options });
  t.after(() => c.close());
  return c;
}

test("refs limited to keys, and reads of some keys", async (t) => {
  const server = await TestServer.start(t);
  const c = await client(t);
  const space = await c.space(server.ref.text);
  const { session, batch } = space.create();
  batch.put("message/a", { n: 1 });
  batch.put("part/a/1", { text: "one" });
  batch.put("session", { title: "t" });
  const readKeys = ["part/a/", "session"], writeKeys = ["part/a/2"];
  const { ref } = batch.share({ rights: ["read", "append"], readKeys, writeKeys });
  (await (await batch.commit()).wait()).check();
  const helper = await (await client(t)).session(ref.text);
  const { grant } = await helper.describe();
  assert.deepEqual([grant.readKeys, grant.writeKeys], [readKeys, writeKeys]);
  const own = helper.batch();
  own.put("part/a/2", { text: "two" });
  own.put("part/a/1", { text: "three" });
  const results = await (await own.commit()).wait();
  assert.deepEqual(results.outcomes.map((o) => [o.status, o.reason]), [["applied", "none"], ["denied", "missing_right"]]);
  assert.deepEqual([...(await helper.snapshot()).entries.keys()], ["part/a/1", "session", "part/a/2"]);

  const shown = (e: SessionEvent): string => `${e.cursor} ${e.hidden ? "-" : e.key}`;
  const keys = ["part/"], want = ["2 -", "3 part/a/1", "5 -", "6 part/a/2"];
  for (const by of [session, helper]) {
    const page = await by.events(0, 0, { keys });
    assert.deepEqual(page.events.map(shown), want);
    assert.deepEqual([...(await by.snapshot({ keys, at: 3, hash: page.events[1]!.hash })).entries.keys()], ["part/a/1"]);
    const live: string[] = [];
    for await (const e of by.follow({ keys, after: 3, hash: page.events[1]!.hash })) {
      live.push(shown(e));
      if (e.cursor === 6) break;
    }
    assert.deepEqual(live, want.slice(2));
  }
  const all = await session.events();
  assert.deepEqual((await session.events(0, 0, { keys })).events.map((e) => e.hash), [2, 3, 5, 6].map((n) => all.events[n - 1]!.hash));

  for (const wrong of [[], [""], ["/"], ["todo//1"], ["todo/*"], ["a,b"], ["Todo/"], ["1/"], Array.from({ length: 17 }, () => "todo/")]) {
    await assert.rejects(session.snapshot({ keys: wrong }), refused("bad_argument"));
    await assert.rejects(session.subscribe({ keys: wrong }, () => {}), refused("bad_argument"));
    for (const limits of [{ readKeys: wrong }, { writeKeys: wrong }]) {
      const b = session.batch();
      await assert.rejects(async () => { b.share({ rights: ["read", "append"], ...limits }); await b.commit(); }, refused("bad_argument"));
    }
  }
  await assert.rejects(space.share({ rights: ["create"], readKeys }), refused("bad_argument"));
});

test("the program of the README", async (t) => {
  const server = await TestServer.start(t);
  const c = await client(t);
  const space = await c.space(server.ref.text);
  const { session, batch } = space.create({ external: "my-id" });
  batch.begin("msg_1", { role: "assistant" });
  batch.put("part/msg_1/prt_1", { type: "text", text: "" });
  const hello = batch.appendText("part/msg_1/prt_1", 0, "Hello, ");
  const world = batch.appendText("part/msg_1/prt_1", hello.field("length"), "wörld");
  batch.finalize("msg_1", "completed");
  const reader = batch.share({ rights: ["read"] });
  const ticket = await batch.commit();
  const results = (await ticket.wait()).check();
  assert.equal(results.get(world)["length"], 13);
  assert.equal(results.of(reader.op).status, "applied");

  const shared = await c.session(reader.ref.text);
  const seen: string[] = [];
  for await (const event of shared.follow()) {
    seen.push(`${event.cursor} ${event.method} ${event.key}`);
    if (event.cursor === 7) break;
  }
  assert.deepEqual(seen.map((s) => s.split(" ")[1]), ["create", "begin", "put", "appendText", "appendText", "finalize", "share"]);
  assert.equal(session.id, shared.id);

  const state = await shared.snapshot();
  assert.equal((JSON.parse(state.entries.get("part/msg_1/prt_1")!.payload) as { text: string }).text, "Hello, wörld");
  assert.equal(state.turns[0]?.status, "completed");
  const stat = await shared.stat();
  assert.deepEqual([stat.cursor, stat.events, stat.kinds.map((k) => `${k.kind} ${k.keys}`)], [state.cursor, 7, ["message 1", "part 1"]]);
  assert.ok(stat.first > 0 && stat.last >= stat.first);

  const part = state.entries.get("part/msg_1/prt_1")!;
  const got = await shared.get(["part/msg_1/prt_1", "part/msg_1/none", "message/msg_1"]);
  assert.deepEqual(got.entries.map((e) => [e.key, e.cursor, e.actor, e.ref, e.ord]), [[part.key, part.cursor, "owner", session.ref.id, part.ord], ["message/msg_1", part.cursor, "owner", session.ref.id, [2, 0]]]);
  assert.deepEqual([got.entries[0]!.payload, got.entries[0]!.bytes, got.cursor, got.next], [part.payload, part.payload.length + 1, state.cursor, ""]); // ö has two bytes
  assert.ok(got.entries[0]!.at > 0);
  assert.deepEqual((await shared.get("message/none")).entries, []);
  const keysOf = async (options: KeyOptions): Promise<string[]> => {
    const keys = [];
    for await (const e of shared.list(options)) keys.push(e.key + (e.payload === "" ? "" : " with its value"));
    return keys;
  };
  assert.deepEqual(await keysOf({}), ["message/msg_1", "part/msg_1/prt_1"]);
  assert.deepEqual(await keysOf({ prefix: "part/", order: "put", values: true }), ["part/msg_1/prt_1 with its value"]);
  const first = await shared.listPage({ limit: 1, order: "put" }), second = await shared.listPage({ limit: 1, order: "put", after: first.next });
  assert.deepEqual([first, second].map((p) => [p.entries.map((e) => e.key), p.cursor]), [[["message/msg_1"], state.cursor], [["part/msg_1/prt_1"], state.cursor]]);
  assert.ok(first.next !== "" && second.next === "");
  await assert.rejects(shared.get([]), refused("bad_argument"));
  await assert.rejects(shared.get("not a key"), refused("bad_key"));
  await assert.rejects(keysOf({ prefix: "part" }), refused("bad_argument"));
  await assert.rejects(shared.listPage({ limit: 1001 }), refused("bad_argument"));
  await assert.rejects(shared.listPage({ after: "~" }), refused("bad_argument"));

  const info = await shared.describe();
  assert.deepEqual([info.session!.external, info.session!.cursor, info.grant.rights, info.grant.dead], ["my-id", state.cursor, ["read"], "none"]);
  assert.deepEqual((await space.info()).grant.target, space.id);
  const listed = [];
  for await (const s of space.list()) listed.push(s.id);
  assert.deepEqual(listed, [session.id]);

  const titled = space.create();
  titled.batch.put("session", { title: "A Needle" });
  (await (await titled.batch.commit()).wait()).check();
  const found = async (options: ListOptions): Promise<string[]> => {
    const ids = [];
    for await (const s of space.list(options)) ids.push(s.id);
    return ids;
  };
  assert.deepEqual(await found({ order: "changed" }), [titled.session.id, session.id]);
  assert.deepEqual(await found({ order: "title" }), [titled.session.id, session.id]);
  assert.deepEqual(await found({ order: "newest", search: "needle" }), [titled.session.id]);
  assert.deepEqual(await found({ search: "MY-ID" }), [session.id]);
  const end = titled.session.batch();
  end.delete();
  (await (await end.commit()).wait()).check();
  assert.deepEqual(await found({}), [session.id]);
  assert.deepEqual((await found({ deleted: true })).length, 2);
});

test("a later process waits on a ticket, and finds sessions by the ids they are known by", async (t) => {
  const server = await TestServer.start(t), home = await folder(t, "home");
  const one = await client(t, { home, offline: true });
  const { session, batch } = (await one.space(server.ref)).create({ external: "outside" });
  const put = batch.put("session", jsonText('{"title" :  "kept byte for byte", "n": 1.50}'));
  const { batch: id } = await batch.commit();
  await assert.rejects(open({ home }), refused("in_use"));
  await one.close();

  const two = await client(t, { home });
  const first = await two.ticket(id).wait();
  await two.close();
  const three = await client(t, { home });
  const again = await three.ticket(id).wait();
  assert.deepEqual(again.outcomes, first.outcomes);
  assert.equal(again.of(put.opID).cursor, 2);
  const found = three.sessionByID("outside");
  assert.equal(found.id, session.id);
  assert.equal((await logOf(found))[1]!.payload, '{"title" :  "kept byte for byte", "n": 1.50}');
  assert.throws(() => three.sessionByID("nobody"), refused("not_found"));
  await assert.rejects(three.ticket(newBatchID()).wait(), refused("not_found"));
  assert.ok(three.status().incarnation > 1);
});

test("references across batches, committed offline, leave in one replay and apply", async (t) => {
  const server = await TestServer.start(t), home = await folder(t, "home");
  const off = await client(t, { home, offline: true });
  const space = await off.space(server.ref);
  const { session: a, batch: b1 } = space.create();
  const put1 = b1.put("message/m1", { n: 1 });
  const t1 = await b1.commit();
  const b2 = a.batch();
  const put2 = b2.put("message/m2", { n: 2 }).expect(put1.field("cursor"));
  await b2.commit();
  const b3 = a.batch();
  b3.begin("m3", { role: "assistant" });
  b3.put("part/m3/p", { type: "text", text: "" });
  const grown = b3.appendText("part/m3/p", 0, "abc");
  await b3.commit();
  const b4 = a.batch();
  b4.appendText("part/m3/p", grown.field("length"), "def").dependsOn(put2);
  const share = b4.share({ rights: ["read", "append"], actor: "owner/helper" });
  const gone = b4.revoke(share.op.field("ref"));
  await b4.commit();
  // A second session whose batch waits for the first one's.
  const { session: other, batch: b5 } = space.create();
  const copied = b5.put("message/copy", put2);
  const t5 = await b5.commit();
  const bad = a.batch();
  const wrong = bad.finalize("nobody", "completed");
  const after = bad.put("message/after", { n: 9 }).dependsOn(wrong);
  const beside = bad.put("message/beside", { n: 10 });
  const tBad = await bad.commit();
  const needy = other.batch();
  const skipped = needy.put("message/x", after);
  const tNeedy = await needy.commit();
  assert.equal(off.status().pending, 15);
  await off.close();

  const on = await client(t, { home });
  await on.drain();
  (await on.ticket(t1.batch).wait()).check();
  (await on.ticket(t5.batch).wait()).check();
  const r = await on.ticket(tBad.batch).wait();
  assert.deepEqual([r.of(wrong.opID).status, r.of(after.opID).status, r.of(beside.opID).status], ["rejected", "skipped", "applied"]);
  assert.equal(r.of(after.opID).cause, wrong.opID);
  assert.equal((await on.ticket(tNeedy.batch).wait()).of(skipped.opID).status, "skipped");
  const log = await logOf(on.sessionByID(a.id));
  assert.deepEqual(log.map((e) => e.method), ["create", "put", "put", "begin", "put", "appendText", "appendText", "share", "revoke", "put"]);
  assert.equal(JSON.parse((await logOf(on.sessionByID(other.id)))[1]!.payload).cursor, 3);
  assert.ok(on.outbox.list({ batch: b4.id }).some((o) => o.op === gone.opID && o.state === "acked"));

  // Known results become values; results that lack the path, and ops that nobody knows, are refused at once.
  const s = on.sessionByID(a.id), later = s.batch();
  later.put("message/m4", { n: 4 }).expect(reference(beside.opID, "cursor"));
  (await (await later.commit()).wait()).check();
  const no = s.batch();
  no.put("message/m5", reference(put1.opID, "nowhere"));
  await assert.rejects(no.commit(), refused("bad_reference"));
  const who = s.batch();
  who.put("message/m5", reference(newULID()));
  await assert.rejects(who.commit(), refused("bad_reference"));
  const dead = s.batch();
  dead.put("message/m5", reference(wrong.opID));
  assert.equal((await (await dead.commit()).wait()).outcomes[0]!.status, "skipped");
  // A retry of what failed has a new id, and references to the old one follow it.
  await assert.rejects(on.outbox.retry(put1.opID), refused("usage"));
  const again = await on.outbox.retry(after.opID);
  assert.equal((await on.ticket(again.batch).wait()).outcomes[0]!.status, "skipped");
  await assert.rejects(on.outbox.retry(after.opID), refused("already_exists"));
  void copied;
});

test("what can never apply is refused at once, with nothing kept", async (t) => {
  const server = await TestServer.start(t);
  const c = await client(t, { offline: true });
  const { session, batch } = (await c.space(server.ref)).create();
  await batch.commit();
  const kept = c.status().pending;
  const no = async (code: CodeName, fill: (b: ReturnType<typeof session.batch>) => unknown, says = ""): Promise<void> => {
    await assert.rejects(async () => {
      const b = session.batch();
      fill(b);
      await b.commit();
    }, (err: unknown) => refused(code)(err) && String(err).includes(says), fill.toString());
    assert.equal(c.status().pending, kept);
  };
  await no("usage", () => {});
  await no("unknown_method", (b) => b.do("putt"));
  await no("unknown_method", (b) => b.do("constructor"));
  await no("bad_key", (b) => b.put("Massage/x", {}));
  await no("bad_key", (b) => b.put("message/a/b", {}));
  await no("bad_key", (b) => b.appendText("message/x", 0, "x"));
  await no("bad_payload", (b) => b.put("session", [] as unknown as object));
  await no("bad_payload", (b) => b.put("session", jsonText("3")));
  await no("malformed", (b) => b.put("session", jsonText("{")));
  await no("bad_argument", (b) => b.put("session", undefined as unknown as object));
  await no("bad_argument", (b) => b.put("session", (() => 1) as unknown as object).arg("payload", () => 1));
  await no("bad_argument", (b) => b.put("session", { n: 1n } as unknown as object));
  await no("bad_reference", (b) => b.put("session", { parts: [{ length: b.remove("model/m") }] }), "payload.parts[0].length refers");
  await no("bad_reference", (b) => b.put("session", { cursor: b.remove("model/m").field("cursor") }), "payload.cursor refers");
  await no("bad_reference", (b) => b.put("session", { text: jsonText("1") }), "payload.text is JSON text");
  await no("bad_reference", (b) => b.put("session", { text: Promise.resolve(1) }), "await it");
  await no("bad_argument", (b) => b.do("put", { key: "session", payload: {}, more: 1 }));
  await no("bad_argument", (b) => b.appendText("part/m/p", -1, "x"));
  await no("bad_argument", (b) => b.appendText("part/m/p", 0, "\ud800"));
  await no("bad_argument", (b) => b.finalize("m", "done" as "failed"));
  await no("bad_argument", (b) => b.share({ rights: [] }));
  await no("bad_argument", (b) => b.share({ rights: ["read"], methods: ["share"] }));
  await no("bad_argument", (b) => b.revoke("x"));
  await no("bad_argument", (b) => b.put("session", {}).expect(-1));
  await no("bad_reference", (b) => b.put("session", reference("x")));
  await no("bad_reference", (b) => b.put("session", {}).dependsOn(b.put("message/x", {})));
  await no("too_large", (b) => b.put("session", { x: "x".repeat(4 << 20) }));
  await no("too_large", (b) => { for (let i = 0; i < 1001; i++) b.put(`message/m${i}`, {}); });
  await no("too_large", (b) => { for (let i = 0; i < 3; i++) b.put(`message/m${i}`, { x: "x".repeat(3 << 20) }); });
  await no("malformed", (b) => { b.put("session", {}); b.do("create", { ref: session.ref.id, hash: session.ref.hashText }); });

  // The same batch again is the same; another under its id is not.
  const same = session.batch(newBatchID());
  same.put("session", { n: 1 });
  assert.deepEqual((await same.commit()).ops, (await same.commit()).ops);
  const other = session.batch(same.id);
  other.remove("session");
  await assert.rejects(other.commit(), refused("already_exists"));

  // Bounds of the outbox itself.
  const small = await client(t, { offline: true, outbox: { limits: { rows: 2 } } });
  const made = (await small.space(server.ref)).create();
  await made.batch.commit();
  await (await made.session.put("session", {})).batch;
  await assert.rejects(made.session.put("session", {}), refused("outbox_full"));
});

test("refs: bad ones are refused here, unknown and dead ones by the server", async (t) => {
  const server = await TestServer.start(t);
  const c = await client(t);
  const { session, batch } = (await c.space(server.ref)).create();
  const helper = batch.share({ rights: ["read", "append"], label: "helper" }), reader = batch.share({ rights: ["read"] });
  const narrow = batch.share({ rights: ["append"], methods: ["put"] }), late = batch.share({ rights: ["read"], lifetime: 1 });
  (await (await batch.commit()).wait()).check();

  await assert.rejects(c.session("mooring://x"), refused("bad_ref_text"));
  await assert.rejects(c.session(server.ref), refused("bad_ref_text"));
  await assert.rejects(c.space(reader.ref), refused("bad_ref_text"));
  await assert.rejects(c.session(reader.ref.text.replace("127.0.0.1", "example.org")), refused("plaintext"));
  await assert.rejects(c.session(reader.ref.text.replace(/#.*/, `#${"A".repeat(43)}`)), refused("unknown_ref"));

  const stranger = await client(t);
  const fresh = await stranger.session(reader.ref.for(session.id)); // made offline, and its share never came
  await assert.rejects((await client(t, { patience: 200 })).session(fresh.ref).then((s) => s.info()), refused("not_yet_known"));
  const read = await stranger.session(reader.ref);
  const results = await (await read.put("message/x", {})).wait();
  assert.equal(results.error!.codeName, "missing_right");
  assert.equal(results.error!.batch, results.batch);
  assert.match(results.error!.message, new RegExp(`^missing_right: denied: [^(]* \\(batch ${results.batch}\\)$`));
  assert.throws(() => results.get(results.outcomes[0]!.op), (e: Error) => e.message === results.error!.message);
  assert.equal(results.outcomes[0]!.status, "denied");
  await assert.rejects(read.revoke(helper.ref), refused("missing_right"));
  const b = (await stranger.session(narrow.ref)).batch();
  b.put("message/ok", {});
  b.remove("message/ok");
  assert.deepEqual((await (await b.commit()).wait()).outcomes.map((o) => o.status), ["applied", "denied"]);
  await assert.rejects((await stranger.session(late.ref)).events(), refused("expired"));
  assert.equal((await (await stranger.session(late.ref)).info()).grant.dead, "expired");

  // Conflict, wrong offset, and what is recorded with them.
  const w = session.batch();
  w.begin("m", { role: "assistant" });
  w.put("part/m/p", { type: "text", text: "" });
  const off = w.appendText("part/m/p", 5, "x");
  const wrong = (await (await w.commit()).wait()).of(off);
  assert.deepEqual([wrong.status, wrong.reason, wrong.at], ["rejected", "wrong_offset", 0]);
  const x = session.batch();
  x.put("message/c", {}).expect(1);
  const conflict = await (await x.commit()).wait();
  assert.equal(conflict.outcomes[0]!.status, "conflict");
  assert.equal(conflict.error!.at, conflict.outcomes[0]!.cursor);
  const atomic = session.batch().atomic();
  atomic.put("message/d", {});
  atomic.finalize("nobody", "failed");
  assert.deepEqual((await (await atomic.commit()).wait()).outcomes.map((o) => o.status), ["batch_aborted", "batch_aborted"]);

  // Revoking, while somebody follows and has something queued.
  const follower = await stranger.session(helper.ref), seen: number[] = [];
  const following = assert.rejects(follower.subscribe({}, (e) => { seen.push(e.cursor); }), refused("revoked"));
  const before = (await (await follower.put("message/before", {})).wait()).check().outcomes[0]!.cursor;
  const cut = await session.revoke(helper.ref);
  assert.deepEqual(await session.revoke(helper.ref), cut);
  await following;
  assert.ok(cut.cursor >= before && seen.every((s) => s <= cut.cursor));
  const denied = await (await follower.put("message/after", {})).wait();
  assert.equal(denied.error!.codeName, "revoked");
  const { epoch } = await session.bumpEpoch();
  assert.equal(epoch, 2);
  await assert.rejects(read.events(), refused("stale_epoch"));

  // A ref that nobody knows stops its stream, and says so; what is queued stays.
  const forged = server.ref.for(session.id).text.replace(/\.o[a-z2-7]{26}#/, `.s${newULID()}#`);
  const lost = await client(t), wait = (await lost.session(forged)).put("message/lost", {});
  await assert.rejects((await wait).wait(), (err) => refused("unknown_ref")(err) && err instanceof Standstill && err.session === session.id);
  await assert.rejects(lost.drain(), refused("unknown_ref"));
  const { op, batch: lostBatch } = lost.outbox.list()[0]!;
  await lost.outbox.drop(op);
  await assert.rejects(lost.drain(), refused("unknown_ref")); // it may have been sent: only a server can tell
  assert.deepEqual(lost.outbox.list({ states: ["in_flight", "pending"] }).map((r) => r.batch), [lostBatch]);

  const gone = session.batch();
  gone.delete();
  (await (await gone.commit()).wait()).check();
  await assert.rejects(session.events(), refused("session_deleted"));
});

test("an op that nothing was sent of is dropped at once; one that may have been, when the server has told", async (t) => {
  const server = await TestServer.start(t), home = await folder(t, "home");
  const off = await client(t, { home, offline: true });
  const { session, batch } = (await off.space(server.ref)).create();
  const keep = batch.put("message/1", {}), victim = batch.put("message/2", {}), needy = batch.put("message/3", {}).dependsOn(victim);
  const ticket = await batch.commit();
  await off.outbox.drop(victim.opID);
  await assert.rejects(off.outbox.drop(victim.opID), refused("usage"));
  await assert.rejects(off.outbox.drop(newULID()), refused("not_found"));
  await off.close();

  await server.kill();
  const on = await client(t, { home });
  const proxyless = on.sessionByID(session.id).batch();
  const asked = proxyless.put("message/4", {});
  const t2 = await proxyless.commit();
  await server.start();
  const r = await on.ticket(ticket.batch).wait();
  assert.deepEqual([keep, victim, needy].map((o) => r.of(o.opID).status), ["applied", "voided", "skipped"]);
  await t2.wait();
  await assert.rejects(on.outbox.drop(asked.opID), refused("usage"));

  // Seqs are given, the link is gone: the drop fences what may be on its way and asks.
  const proxy = await Proxy.start(t, server);
  await on.session(proxy.ref(session.ref));
  await server.restart(); // open streams stay where they are
  const s = on.sessionByID(session.id);
  (await (await s.put("message/5", {})).wait()).check();
  const before = on.status().incarnation;
  void proxy.cutAfter(1, "swallow");
  const b = s.batch();
  b.put("message/6", {});
  const sent = await b.commit(), unsent = s.batch();
  unsent.put("message/7", {});
  proxy.refusing = true;
  const t7 = await unsent.commit();
  await on.outbox.drop(t7.ops[0]!);
  proxy.refusing = false;
  on.hurry();
  assert.equal((await sent.wait()).outcomes[0]!.status, "applied");
  const seventh = (await t7.wait()).outcomes[0]!.status;
  assert.ok(seventh === "voided" || seventh === "applied");
  if (on.outbox.list({ batch: t7.batch })[0]!.seq > 0) assert.ok(on.status().incarnation > before);
  assert.deepEqual(putKeys(await logOf(s)), ["message/1", "message/4", "message/5", "message/6", ...(seventh === "applied" ? ["message/7"] : [])]);
});

for (const earlier of [false, true]) {
  test(`an op that hangs on its way and is dropped ${earlier ? "stands, if it arrived before the drop was settled" : "is not applied when it arrives after all"}`, async (t) => {
    const server = await TestServer.start(t), proxy = await Proxy.start(t, server), c = await client(t);
    const { session, batch } = (await c.space(proxy.ref(server.ref))).create();
    (await (await batch.commit()).wait()).check();
    const isBatch = (bytes: number): boolean => bytes > 100; // and not what gives objects back
    let kept = proxy.kept();
    proxy.keeps = isBatch;
    const ticket = await session.put("message/1", {});
    const arrive = await kept;
    proxy.refusing = true;
    await proxy.leave();
    if (earlier) await arrive();
    await c.outbox.drop(ticket.ops[0]!);

    // Late is after the server has told how far the stream is, and before the void comes.
    kept = proxy.kept();
    proxy.keeps = (bytes) => !earlier && isBatch(bytes) && opsOf(c.outbox.tables.batches.get(ticket.batch)!)[0]!.void === true;
    proxy.refusing = false;
    c.hurry();
    if (!earlier) {
      const takeItsPlace = await kept;
      proxy.keeps = () => false;
      await arrive();
      await takeItsPlace();
    }
    assert.equal((await ticket.wait()).outcomes[0]!.status, earlier ? "applied" : "voided");
    assert.deepEqual(putKeys(await logOf(session)), earlier ? ["message/1"] : []);
  });
}

test("following goes on over cut links and restarts, without a gap or a repeat, and in a later process from its cursor", async (t) => {
  const server = await TestServer.start(t), proxy = await Proxy.start(t, server);
  const writer = await client(t), reader = await client(t);
  const { session, batch } = (await writer.space(server.ref)).create();
  const share = batch.share({ rights: ["read"] });
  (await (await batch.commit()).wait()).check();
  const shared = await reader.session(proxy.ref(share.ref)), seen: SessionEvent[] = [];
  const troubles: string[] = [];
  const stop = new AbortController();
  const following = shared.subscribe({ signal: stop.signal, trouble: (e) => troubles.push(e.codeName) }, async (e) => {
    seen.push(e);
    if (e.cursor % 10 === 0) await new Promise((r) => setTimeout(r, 1));
    if (e.cursor === 302) stop.abort();
  });
  for (let i = 0; i < 300; i++) {
    await session.put(`message/${i}`, { i });
    if (i % 40 === 20) {
      await new Promise((r) => setTimeout(r, 20));
      proxy.cut();
    }
    if (i === 150) await server.restart();
  }
  await following;
  assert.deepEqual(seen.map((e) => e.cursor), Array.from({ length: 302 }, (_, i) => i + 1));
  assert.ok(proxy.links > 1 && troubles.length > 0);
  const reading = async (after: number): Promise<{ cursors: number[]; bytes: number }> => {
    const cursors: number[] = [], before = proxy.received;
    for await (const e of shared.follow({ after })) {
      cursors.push(e.cursor);
      if (e.cursor === 302) break;
    }
    return { cursors, bytes: proxy.received - before };
  };
  const rest = await reading(290), whole = await reading(0);
  assert.deepEqual(rest.cursors, Array.from({ length: 12 }, (_, i) => 291 + i));
  // What the reader has had already is not sent again, and dropped here.
  assert.ok(rest.bytes < whole.bytes / 4, `${rest.bytes} bytes for 12 events of 302, which take ${whole.bytes}`);
  // What the handler throws ends it, and leaves the cursor where it was.
  await assert.rejects(shared.subscribe({}, (e) => { if (e.cursor === 5) throw new Error("mine"); }), /mine/);
});

test("a real recording arrives as it is, batch by batch", async (t) => {
  const server = await TestServer.start(t), proxy = await Proxy.start(t, server);
  const batches = recording("testdata/opencode/b-long-1.18.33.jsonl");
  assert.ok(batches.length > 20);
  const c = await client(t);
  const { session, batch } = (await c.space(proxy.ref(server.ref))).create({ external: "recorded" });
  await batch.commit();
  const want: { key: string; payload: string }[] = [], tickets: { ids: string[]; batch: string }[] = [];
  for (const [i, puts] of batches.entries()) {
    const b = session.batch();
    for (const { key, payload } of puts) b.put(key, jsonText(payload));
    const ticket = await b.commit();
    tickets.push({ ids: [...ticket.ops], batch: ticket.batch });
    want.push(...puts);
    if (i % 5 === 3) proxy.cut();
  }
  await c.drain();
  const log = await logOf(session);
  // A put equal to the present value makes no event.
  const state = new Map<string, string>(), events = want.filter(({ key, payload }) => {
    const same = state.get(key) === payload;
    state.set(key, payload);
    return !same;
  });
  assert.deepEqual(log.slice(1).map((e) => [e.key, e.payload]), events.map((e) => [e.key, e.payload]));
  const snapshot = await session.snapshot();
  assert.deepEqual(new Map([...snapshot.entries].map(([k, e]) => [k, e.payload])), state);
  const order = tickets.map((x) => x.batch);
  const inLog = log.slice(1).map((e) => order.indexOf(e.batch));
  assert.deepEqual(inLog, [...inLog].sort((a, b) => a - b));
});

/** The share traffic of a recording as batches of puts, by opencode's fold keys. Payloads stay as they are written. */
function recording(file: string): { key: string; payload: string }[][] {
  const out: { key: string; payload: string }[][] = [];
  for (const line of readFileSync(repo(file), "utf8").split("\n")) {
    if (line === "") continue;
    const req = JSON.parse(line) as { method: string; path: string; body?: { data?: { type: string; data: Record<string, string> }[] } };
    if (req.method !== "POST" || !req.path.endsWith("/sync")) continue;
    const puts = (req.body!.data ?? []).flatMap(({ type, data }) => {
      const text = JSON.stringify(data);
      switch (type) {
        case "session": return [{ key: "session", payload: text }];
        case "message": return [{ key: `message/${data["id"]}`, payload: text }];
        case "part": return [{ key: `part/${data["messageID"]}/${data["id"]}`, payload: text }];
        case "session_diff": return [{ key: "session_diff", payload: Array.isArray(data) ? `{"diff":${text}}` : text }];
        case "model": return (Array.isArray(data) ? (data as { id: string }[]) : [data as unknown as { id: string }]).map((m) => ({ key: `model/${m.id}`, payload: JSON.stringify(m) }));
      }
      return [];
    });
    if (puts.length > 0) out.push(puts);
  }
  return out;
}

test("a ref's id alone opens nothing, on a connection that the ref was restored on", async (t) => {
  const server = await TestServer.start(t);
  const c = await client(t), { session, batch: creation } = (await c.space(server.ref)).create();
  (await (await creation.commit()).wait()).check();
  interface Saving { restore(ref: string): { save(): Promise<{ id: string; secret: Uint8Array }> } }
  const saved = await newHttpBatchRpcSession<Saving>(`http://127.0.0.1:${server.port}/rpc`).restore(session.ref.text).save();
  const right = Ref.parse(session.ref.text.replace(/[^/]*$/, `${saved.id}#${toBase64url(saved.secret)}`)); // the server made it: its id tells nothing of its secret
  const wrong = Ref.parse(right.text.replace(/#.*/, `#${"A".repeat(43)}`));
  await (await c.session(right)).info();
  const guessed = await c.session(wrong);
  await assert.rejects(guessed.info(), refused("unknown_ref"));
  await assert.rejects(guessed.put("message/x", {}), refused("unknown_ref"));
  const { batch } = (await c.space(server.ref)).fork(guessed);
  await assert.rejects(batch.commit(), refused("unknown_ref"));
  (await (await (await c.session(right)).put("message/x", {})).wait()).check();
});

test("sessions that know an outbox by its old secret go on, and new ones are shown nothing that leads to it", async (t) => {
  const server = await TestServer.start(t), home = await folder(t, "home");
  const one = await client(t, { home });
  const { session, batch } = (await one.space(server.ref)).create();
  (await (await batch.commit()).wait()).check();
  await one.close();
  // What the server was shown, as the outbox's own secret: so it was once.
  const store = await JournalStore.open(home);
  const box = store.tables.box!, secret = streamSecret(box.secret, session.id);
  await store.update(() => ({ changes: [{ t: "box", k: "box", v: { id: box.id, secret, incarnation: box.incarnation, nextNum: box.nextNum } }], value: undefined }));
  await store.close();

  const two = await client(t, { home });
  (await (await (await two.session(session.ref)).put("message/x", {})).wait()).check();
  const other = (await two.space(server.ref)).create();
  (await (await other.batch.commit()).wait()).check();
  await two.close();
  const after = await JournalStore.open(home);
  assert.equal(after.tables.box!.old, secret);
  assert.notEqual(after.tables.box!.secret, secret);
  assert.deepEqual([after.tables.streams.get(session.id)!.old, after.tables.streams.get(other.session.id)!.old], [true, undefined]);
  await after.close();
});

test("nothing that is printed of a client shows a secret", async (t) => {
  const server = await TestServer.start(t), said: string[] = [];
  const c = await client(t, { log: (m) => said.push(m) });
  const space = await c.space(server.ref);
  const { session, batch } = space.create();
  const { ref } = batch.share({ rights: ["read"] });
  const ticket = await batch.commit();
  const results = await ticket.wait();
  const secrets = [server.ref.secretText, session.ref.secretText, ref.secretText, c.outbox.tables.box!.secret];
  const things = [c, c.outbox, space, session, batch, ticket, results, ref, c.status(), c.outbox.list(), await session.info(), await logOf(session), said];
  for (const thing of things) {
    for (const form of [inspect(thing, { depth: 20, showHidden: true }), JSON.stringify(thing, (_, v: unknown) => (typeof v === "bigint" ? String(v) : v)), String(thing)]) {
      for (const secret of secrets) assert.ok(!form.includes(secret), form.slice(0, 400));
    }
  }
});

test("tickets last as long as they are kept", async (t) => {
  const server = await TestServer.start(t), home = await folder(t, "home");
  const one = await client(t, { home });
  const { session, batch } = (await one.space(server.ref)).create();
  const put = batch.put("message/x", {});
  const old = await batch.commit();
  (await old.wait()).check();
  await one.close();
  await new Promise((r) => setTimeout(r, 5));
  const two = await client(t, { home, outbox: { keep: 1 } });
  (await (await two.sessionByID(session.id).put("message/y", {})).wait()).check();
  await assert.rejects(two.ticket(old.batch).wait(), refused("not_found"));
  const b = two.sessionByID(session.id).batch();
  b.put("message/z", put); // its result is no longer here
  await assert.rejects(b.commit(), refused("bad_reference"));
});

test("waiting can be given up, and ends with the client", async (t) => {
  const server = await TestServer.start(t), c = await client(t);
  const { session, batch } = (await c.space(server.ref)).create();
  await server.kill();
  const ticket = await batch.commit();
  await assert.rejects(ticket.wait({ signal: AbortSignal.timeout(20) }), refused("canceled"));
  await assert.rejects(c.drain({ signal: AbortSignal.timeout(20) }), refused("canceled"));
  const impatient = await client(t, { patience: 50 });
  await assert.rejects((await impatient.session(session.ref)).info(), refused("unavailable"));
  const warned: Error[] = [];
  const warn = (w: Error): void => { warned.push(w); };
  process.on("warning", warn);
  t.after(() => process.off("warning", warn));
  const waiting = [...Array.from({ length: 20 }, () => ticket.wait()), ...Array.from({ length: 20 }, () => session.info()), c.drain(), session.subscribe({}, () => {}), session.follow().next()].map((p) => assert.rejects(p as Promise<unknown>, refused("canceled")));
  await c.close();
  await Promise.all(waiting);
  await assert.rejects(session.put("message/x", {}), refused("canceled"));
  await c.close();
  assert.deepEqual(warned, []);
});

test("a client that cannot be opened says why", async (t) => {
  await assert.rejects(open({}), refused("usage"));
  const file = `${await folder(t, "home")}/file`;
  (await import("node:fs")).writeFileSync(file, "");
  await assert.rejects(open({ home: file }), refused("unavailable"));
  await assert.rejects(open({ home: "" }), refused("usage"));
  const present = process.versions.node;
  t.after(() => Object.defineProperty(process.versions, "node", { value: present }));
  Object.defineProperty(process.versions, "node", { value: "18.20.8" });
  await assert.rejects(open({ home: await folder(t, "home") }), { codeName: "incompatible", message: /Node 18\.20\.8: install Node 20\.3/ });
});

test("a snapshot is in the session's order, whatever ids are", async (t) => {
  const server = await TestServer.start(t);
  const c = await client(t);
  const space = await c.space(server.ref.text);
  for (const order of [undefined, "time"] as const) {
    const { session, batch } = space.create(order ? { order } : {});
    const times = [30, 10, 20];
    for (const [i, id] of ["msg_2", "msg_10", "msg_1"].entries()) batch.put(`message/${id}`, { time: { created: times[i] } });
    batch.put("message/msg_2", { again: true });
    (await (await batch.commit()).wait()).check();
    const want = order === "time" ? ["msg_10", "msg_1", "msg_2"] : ["msg_2", "msg_10", "msg_1"];
    assert.deepEqual([...(await session.snapshot()).entries.keys()], want.map((id) => `message/${id}`));
    assert.equal((await session.info()).session!.order, order ?? "");
  }
});

test("turns that nobody ends are aborted by who may revoke, over links that break, and who waited for room goes on", async (t) => {
  const server = await TestServer.start(t);
  const proxy = await Proxy.start(t, server);
  const { session, batch } = (await (await client(t)).space(proxy.ref(server.ref))).create();
  await batch.commit();
  const guest = async (rights: Right[]): Promise<Session> => {
    const { ref, ticket } = await session.share({ rights });
    (await ticket.wait()).check();
    return (await client(t)).session(ref);
  };
  const begin = async (by: Session, what: string, n: number): Promise<Ticket> => {
    const b = by.batch();
    for (let i = 0; i < n; i++) b.begin(`${what}${i}`, { role: "assistant" });
    return b.commit();
  };
  const left = async (): Promise<string[]> => (await session.snapshot()).turns.filter((x) => x.ended === 0).map((x) => `${x.message} ${x.ref}`);

  const gone = await guest(["read", "append"]), alive = await guest(["read", "append", "share", "revoke"]);
  for (const ticket of [await begin(gone, "g", 2), await begin(session, "o", 1)]) (await ticket.wait()).check();
  (await (await begin(alive, "a", 256)).wait()).check();
  const other = await (await client(t)).session(alive.ref), waits = await begin(other, "w", 1);
  const refusals = (await gone.abortTurns()).refused;
  assert.deepEqual([refusals.length, refusals[0]!.error.codeName], [259, "not_your_turn"]);
  assert.match(refusals[0]!.error.message, / \(batch [0-9A-Z]{26}\)$/);
  await assert.rejects(gone.abortTurns({ dead: true }), refused("missing_right"));
  await session.revoke(gone.ref);
  assert.deepEqual(await session.abortTurns({ dead: true }), { aborted: 2, ended: 0, left: 257, refused: [] });
  const seen: number[] = [];
  const all = await alive.abortTurns({ progress: (done, total) => { seen.push(done); assert.equal(total, 257); proxy.cut(); } });
  assert.deepEqual(all, { aborted: 257, ended: 0, left: 0, refused: [] });
  assert.deepEqual(seen, [0, 50, 100, 150, 200, 250, 257]);
  (await waits.wait()).check();
  assert.deepEqual(await left(), [`w0 ${alive.ref.id}`]);
  assert.deepEqual(await session.abortTurns({ dead: true }), { aborted: 0, ended: 0, left: 1, refused: [] });
});
