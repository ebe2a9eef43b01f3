// Copies and restored backups, of the outbox and of the server: the ledger finds them out, and nothing is sent that could
// do harm.

import assert from "node:assert/strict";
import { once } from "node:events";
import * as fs from "node:fs/promises";
import * as path from "node:path";
import { test, type TestContext } from "node:test";
import { type Client, type CodeName, MooringError, newBatchID, newSealKey, newULID, open, type OpenOptions, type RefInfo, Standstill } from "../src/index.js";
import { folder, freePort, logOf, Proxy, putKeys, TestServer } from "./rig.js";

const still = (codeName: CodeName, session: string) => (err: unknown): boolean => {
  assert.ok(err instanceof Standstill, String(err));
  assert.deepEqual([err.codeName, err.session], [codeName, session]);
  return true;
};

async function client(t: TestContext, home: string, options: Partial<OpenOptions> = {}): Promise<Client> {
  const c = await open({ home, reconnect: { initial: 10, max: 100 }, outbox: { backoff: { initial: 10, max: 100 } }, ...options });
  t.after(() => c.close());
  return c;
}

test("a copy of an outbox is found out, when it has fallen behind and when it has not", async (t) => {
  const server = await TestServer.start(t), dir = await folder(t, "home"), home = path.join(dir, "a");
  const first = await client(t, home);
  const { session, batch } = (await first.space(server.ref)).create();
  (await (await batch.commit()).wait()).check();
  await first.close();
  const copy = async (name: string): Promise<string> => {
    await fs.cp(home, path.join(dir, name), { recursive: true });
    return path.join(dir, name);
  };
  const even = await copy("even"), behind = await copy("behind");

  // The original goes on.
  const again = await client(t, home);
  (await (await again.sessionByID(session.id).put("message/original", {})).wait()).check();

  // A copy that has been opened as often has the same incarnation, and gives the same seq to another op.
  const twin = await client(t, even);
  await assert.rejects((await twin.sessionByID(session.id).put("message/twin", {})).wait(), still("outbox_diverged", session.id));
  await twin.close();

  // The original is opened more often: a copy that is behind is fenced, catches up, and is found out then.
  for (let i = 0; i < 5; i++) {
    await (i === 0 ? again : await client(t, home)).close();
    const c = await client(t, home);
    (await (await c.sessionByID(session.id).put(`message/${i}`, {})).wait()).check();
    await c.close();
  }
  const late = await client(t, behind), before = late.status().incarnation;
  await assert.rejects((await late.sessionByID(session.id).put("message/late", {})).wait(), still("outbox_diverged", session.id));
  assert.ok(late.status().incarnation > before + 2);
  const { state, outcome } = late.outbox.list({ session: session.id }).at(-1)!;
  assert.deepEqual([state === "pending" || state === "in_flight", outcome], [true, undefined]); // it is kept
  await late.close();

  // The original is fenced by what the copy claimed, and goes on all the same.
  const last = await client(t, home);
  (await (await last.sessionByID(session.id).put("message/last", {})).wait()).check();
  assert.deepEqual(putKeys(await logOf(last.sessionByID(session.id))), ["message/original", ...[0, 1, 2, 3, 4].map((i) => `message/${i}`), "message/last"]);
});

test("a server that was restored to an earlier time is told apart, and nothing more is sent to it", async (t) => {
  const server = await TestServer.start(t), home = await folder(t, "home");
  const c = await client(t, home);
  const { session, batch } = (await c.space(server.ref)).create();
  (await (await batch.commit()).wait()).check();
  const restore = await server.save();
  const lost = (await c.space(server.ref)).create();
  for (let i = 0; i < 3; i++) (await (await session.put(`message/${i}`, {})).wait()).check();
  (await (await lost.batch.commit()).wait()).check();
  await restore();
  await assert.rejects((await session.put("message/after", {})).wait(), still("server_behind", session.id));
  assert.deepEqual(putKeys(await logOf(session)), []);
  // A session that the server no longer knows is not waited for.
  await assert.rejects((await lost.session.put("message/x", {})).wait(), still("server_behind", lost.session.id));
  // Others go on.
  const other = (await c.space(server.ref)).create();
  (await (await other.batch.commit()).wait()).check();
});

test("refs of a space are shared and revoked, with what was made under them", async (t) => {
  const server = await TestServer.start(t);
  const owner = await client(t, await folder(t, "owner")), guest = await client(t, await folder(t, "guest"));
  const space = await owner.space(server.ref);
  const ref = await space.share({ rights: ["create", "list"], label: "guest", actor: "guest" });
  const theirs = await guest.space(ref);
  assert.deepEqual((await theirs.info()).grant.rights, ["create", "list"]);
  const { session, batch } = theirs.create();
  (await (await batch.commit()).wait()).check();
  const forked = theirs.fork(session);
  forked.batch.put("message/in-fork", {});
  (await (await forked.batch.commit()).wait()).check();
  assert.equal((await logOf(forked.session)).at(-1)!.actor, "guest/owner");
  await assert.rejects(theirs.share({ rights: ["list"] }), (err) => err instanceof MooringError && err.codeName === "missing_right");
  assert.ok((await space.revoke(ref)) >= 3);
  await assert.rejects(theirs.info().then((i) => { if (i.grant.dead !== "none") throw new MooringError(i.grant.dead, "dead"); }), (err) => err instanceof MooringError && err.codeName === "revoked");
  const denied = await (await session.put("message/late", {})).wait();
  assert.equal(denied.error!.codeName, "revoked");
});

test("trees of refs come depth first, in pages", async (t) => {
  const server = await TestServer.start(t), c = await client(t, await folder(t, "owner"));
  const space = await c.space(server.ref), { session, batch } = space.create();
  const helper = batch.share({ rights: ["read", "share", "revoke"], label: "helper" }).ref;
  const many = Array.from({ length: 600 }, () => batch.share({ rights: ["read"] }).ref.id); // more than a page
  (await (await batch.commit()).wait()).check();
  const theirs = await c.session(helper);
  const { ref: below, ticket } = await theirs.share({ rights: ["read"] });
  (await ticket.wait()).check();
  await session.revoke(many[0]!);

  const tree = async (of: AsyncIterable<RefInfo>): Promise<RefInfo[]> => {
    const all = [];
    for await (const r of of) all.push(r);
    return all;
  };
  const ids = (all: RefInfo[]): string[] => all.map((r) => r.grant.id);
  const whole = await tree(session.refs()), mine = ids(whole);
  assert.equal(mine[0], session.ref.id);
  assert.deepEqual([...mine].sort(), [session.ref.id, helper.id, below.id, ...many].sort());
  assert.equal(mine.indexOf(below.id), mine.indexOf(helper.id) + 1);
  const dead = whole.find((r) => r.grant.id === many[0])!;
  assert.deepEqual([dead.grant.dead, dead.parent, dead.revokedBy, dead.revoked >= dead.created], ["revoked", session.ref.id, session.ref.id, true]);
  const living = whole.find((r) => r.grant.id === helper.id)!;
  assert.deepEqual([living.grant.dead, living.grant.label, living.revoked, living.uses > 0, living.lastUsed > 0], ["none", "helper", 0, true, true]);
  assert.deepEqual(ids(await tree(theirs.refs())), [helper.id, below.id]);
  assert.deepEqual(ids(await tree(session.refs({ under: helper }))), [helper.id, below.id]);
  assert.deepEqual(ids(await tree(space.refs())), [server.ref.id, ...mine]);
  await assert.rejects(tree(theirs.refs({ under: many[1]! })), (err) => err instanceof MooringError && err.codeName === "missing_right");
});

test("a sealed ref takes its key, to read, to follow and to append", async (t) => {
  const server = await TestServer.start(t), proxy = await Proxy.start(t, server);
  const owner = await client(t, await folder(t, "owner"));
  const key = await newSealKey(), other = await newSealKey();
  const { batch } = (await owner.space(server.ref)).create();
  const { ref } = batch.share({ rights: ["read", "append"], seal: key.publicText });
  (await (await batch.commit()).wait()).check();
  const refused = async (c: Client): Promise<void> => {
    await assert.rejects((await c.session(ref)).events(), (err) => err instanceof MooringError && err.codeName === "sealed");
  };
  await refused(await client(t, await folder(t, "none")));
  await refused(await client(t, await folder(t, "other"), { sealKey: other.privateKey }));
  const holder = await client(t, await folder(t, "holder"), { sealKey: key.privateKey });
  const theirs = await holder.session(ref), seen: number[] = [], done = new AbortController();
  const following = theirs.subscribe({ signal: done.signal }, (e) => {
    seen.push(e.cursor);
    if (e.cursor === 12) done.abort();
  });
  for (let i = 0; i < 10; i++) {
    (await (await theirs.put(`message/${i}`, {})).wait()).check();
    if (i === 4) await server.restart();
  }
  await following;
  assert.deepEqual(seen, Array.from({ length: 12 }, (_, i) => i + 1));
  // Through a proxy the server is dialled at a place that it does not know as its own.
  const astray = await client(t, await folder(t, "astray"), { sealKey: key.privateKey });
  await assert.rejects((await astray.session(proxy.ref(ref))).events(), (err) => err instanceof MooringError && err.codeName === "sealed");
});

test("a session whose create is refused: what follows is recorded as refused too, and nothing hangs", async (t) => {
  const server = await TestServer.start(t), proxy = await Proxy.start(t, server);
  const c = await client(t, await folder(t, "home"));
  const space = await c.space(proxy.ref(server.ref));
  (await (await space.create({ external: "taken" }).batch.commit()).wait()).check();
  const { session, batch } = space.create({ external: "taken" });
  const put = batch.put("message/a", {});
  const first = await (await batch.commit()).wait();
  assert.deepEqual([first.outcomes[0]!.status, first.outcomes[0]!.reason], ["rejected", "already_exists"]);
  assert.notEqual(first.of(put).status, "applied");
  proxy.cut();
  const later = await (await session.put("message/b", {})).wait();
  assert.notEqual(later.outcomes[0]!.status, "applied");
});

test("who waits for a session that stands still is told so", async (t) => {
  const server = await TestServer.start(t), c = await client(t, await folder(t, "home"));
  const space = await c.space(server.ref), nobody = space.newOwner();
  const lost = await c.session(nobody.text.replace(/\.o[a-z2-7]{26}#/, `.s${newULID()}#`)), b = lost.batch();
  const put = b.put("message/lost", {});
  await b.commit();
  const { batch } = space.create();
  batch.put("message/needs", put);
  const ticket = await batch.commit();
  await assert.rejects(ticket.wait(), still("unknown_ref", lost.id));
  await assert.rejects(c.drain(), still("unknown_ref", lost.id));
  const other = space.create();
  (await (await other.batch.commit()).wait()).check();
});

test("a server that stops in good order is waited for", async (t) => {
  const server = await TestServer.start(t), c = await client(t, await folder(t, "home"));
  const { session, batch } = (await c.space(server.ref)).create();
  (await (await batch.commit()).wait()).check();
  const cursors: number[] = [], done = new AbortController();
  const following = session.subscribe({ signal: done.signal }, (e) => {
    cursors.push(e.cursor);
    if (e.cursor === 21) done.abort();
  });
  const tickets = [];
  for (let i = 0; i < 20; i++) {
    tickets.push(await session.put(`message/${i}`, {}));
    if (i === 9) await server.kill("SIGTERM");
  }
  await server.start();
  for (const ticket of tickets) (await ticket.wait()).check();
  await following;
  assert.deepEqual(cursors, Array.from({ length: 21 }, (_, i) => i + 1));
});

test("who waits is told what for, each reason once", async (t) => {
  const server = await TestServer.start(t), said: string[] = [];
  let heard = (): void => {};
  const first = (): Promise<void> => new Promise((resolve) => { said.length = 0; heard = resolve; });
  const c = await client(t, await folder(t, "home"), { patience: 600_000, onWaiting: (reason) => { said.push(reason); heard(); } });
  const { session, batch } = (await c.space(server.ref)).create();
  (await (await batch.commit()).wait()).check();
  const waits = [async () => (await (await session.put("message/1", {})).wait()).check(), () => c.drain()], reads = [async () => void (await session.snapshot())];
  for (const verb of [...waits, ...reads]) {
    await server.kill();
    await c.outbox.commit({ session: session.id, ops: [{ method: "put", args: [{ name: "key", json: '"message/2"' }, { name: "payload", json: "{}" }] }] });
    const told = first(), verbs = Promise.all([verb(), verb()]);
    const late = AbortSignal.timeout(60_000);
    await Promise.race([told, verbs.then(() => assert.fail("a server that is not there has answered")), once(late, "abort").then(() => assert.fail("nothing is said"))]);
    await server.start();
    await verbs;
    assert.match(said[0]!, /^(unavailable|disconnected): ./);
    if (waits.includes(verb)) assert.equal(new Set(said).size, said.length, "two who wait are told once");
    await c.drain();
  }
});

test("a server holds no more for a connection over which many sessions were made", async (t) => {
  const port = await freePort();
  const server = await TestServer.start(t, ["--metrics-listen", `127.0.0.1:${port}`]);
  const c = await client(t, await folder(t, "home"), { outbox: { window: { streams: 16 } } });
  const space = await c.space(server.ref);
  for (let done = 0; done < 400; done += 50) {
    const tickets = await Promise.all(Array.from({ length: 50 }, () => space.create().batch.commit()));
    for (const ticket of tickets) (await ticket.wait()).check();
  }
  const metrics = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
  const held = Number(/^mooring_web_objects{table="exports"} (\d+)$/m.exec(metrics)![1]);
  assert.ok(held < 350, String(held));
});

test("the server forgets no outcome that is not stored, also where later ones are", async (t) => {
  const server = await TestServer.start(t), home = await folder(t, "home"), c = await client(t, home);
  const { session, batch } = (await c.space(server.ref)).create();
  (await (await batch.commit()).wait()).check();

  // There is no room for one outcome, and there is for what comes after it.
  const handle = await fs.open(path.join(home, "outbox.journal")), proto = Object.getPrototypeOf(handle) as fs.FileHandle;
  await handle.close();
  const append = proto.appendFile, held = newBatchID();
  let refusals = 0;
  const mock = t.mock.method(proto, "appendFile", function (this: fs.FileHandle, data: Buffer) {
    if (data.includes(`"k":"${held}","p"`) && data.includes("finished")) {
      refusals++;
      return Promise.reject(Object.assign(new Error("full"), { code: "ENOSPC" }));
    }
    return append.call(this, data);
  });
  const one = session.batch(held);
  one.put("message/1", {});
  await (await one.commit()).wait(); // told as soon as it is there
  for (let n = 2; n <= 5; n++) {
    const id = (await (await session.put(`message/${n}`, {})).wait()).outcomes[0]!.op;
    while (c.outbox.list().find((r) => r.op === id)?.state !== "acked") await new Promise((r) => setTimeout(r, 5));
  }
  assert.ok(refusals > 0);
  await c.close();
  mock.mock.restore();

  const later = await client(t, home);
  (await later.ticket(held).wait()).check();
  assert.deepEqual(putKeys(await logOf(later.sessionByID(session.id))), [1, 2, 3, 4, 5].map((n) => `message/${n}`));
});

test("a ref that can change nothing gets 16 streams, and who comes then is denied all the same", async (t) => {
  const server = await TestServer.start(t), owner = await client(t, await folder(t, "owner"));
  const { session, batch } = (await owner.space(server.ref)).create();
  const reader = batch.share({ rights: ["read"] }).ref, writer = batch.share({ rights: ["read", "append"] }).ref;
  (await (await batch.commit()).wait()).check();
  for (let n = 0; n < 17; n++) {
    const home = await folder(t, `reader-${n}`);
    let c = await client(t, home);
    const b = (await c.session(reader)).batch();
    b.put("message/a", {});
    b.put("message/b", {});
    const { outcomes } = await (await b.commit()).wait();
    assert.deepEqual(outcomes.map((o) => [o.status, o.reason]), [["denied", "missing_right"], ["denied", "missing_right"]], String(n));
    await c.outbox.drain();
    if (n < 16) {
      await c.close();
      continue;
    }
    await c.close();
    c = await client(t, home); // it is durable, and what comes has the seqs that were never used
    assert.deepEqual(c.outbox.list().map((r) => [r.state, r.seq]), [["failed", 0], ["failed", 0]]);
    (await (await (await c.session(writer)).put("message/c", {})).wait()).check();
    assert.equal(c.outbox.list().at(-1)!.seq, 1);
    assert.equal((await (await (await c.session(reader)).put("message/d", {})).wait()).error!.codeName, "missing_right");
  }
  assert.deepEqual(putKeys(await logOf(session)), ["message/c"]);
});
