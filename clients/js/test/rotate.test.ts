// Rotation: a new ref takes an owner's or root ref's place, over cut links, lost answers and processes that end, and what is queued is
// sent once, under the new one.

import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { type Client, newBatchID, open, type OpenOptions, Ref, type Session, type Ticket } from "../src/index.js";
import { fault } from "../src/fault.js";
import { JournalStore } from "../src/journal.js";
import { Outbox } from "../src/outbox.js";
import { newULID } from "../src/ulid.js";
import { LedgerServer } from "./ledger.js";
import { folder, logOf, Proxy, putKeys, TestServer } from "./rig.js";

async function client(t: TestContext, home: string, options: Partial<OpenOptions> = {}): Promise<Client> {
  const c = await open({ home, reconnect: { initial: 10, max: 100 }, outbox: { backoff: { initial: 10, max: 100 } }, ...options });
  t.after(() => c.close());
  return c;
}

async function made(t: TestContext, options: Partial<OpenOptions> = {}): Promise<{ server: TestServer; proxy: Proxy; home: string; c: Client; session: Session; reader: Ref }> {
  const server = await TestServer.start(t), proxy = await Proxy.start(t, server), home = await folder(t, "home"), c = await client(t, home, options);
  const { session, batch } = (await c.space(proxy.ref(server.ref))).create({ external: "ext", label: "mine" }), { ref: reader } = batch.share({ rights: ["read"] });
  (await (await batch.commit()).wait()).check();
  return { server, proxy, home, c, session, reader };
}

const applied = async (...tickets: Ticket[]): Promise<void> => { for (const ticket of tickets) (await ticket.wait()).check(); };

test("an owner's ref is rotated again and again while its session is written, over cut links", { timeout: 60_000 }, async (t) => {
  const { proxy, c, session, reader } = await made(t), tickets: Ticket[] = [], seen = new Set([session.ref.id]);
  let writing = true;
  const writer = (async () => {
    for (let n = 0; writing; n++) {
      const ticket = await session.put(`message/${n}`, { n }); // with the first one, always
      tickets.push(ticket);
      if (n % 20 === 0) await ticket.wait();
    }
  })();
  let now = session;
  for (let i = 0; i < 6; i++) {
    if (i % 2 === 1) void proxy.cutAfter(1, "swallow");
    const { session: next, cut } = await now.rotate();
    assert.ok(!seen.has(next.ref.id) && cut > 0, String(next.ref));
    seen.add(next.ref.id);
    assert.deepEqual([(await now.describe()).grant.dead, (await now.describe()).grant.cut], ["revoked", cut]);
    await assert.rejects(now.events(0, 1), { codeName: "revoked" });
    now = next;
  }
  writing = false;
  await writer;
  await applied(...tickets);
  assert.deepEqual(putKeys(await logOf(now)), tickets.map((_, n) => `message/${n}`));
  assert.deepEqual([(await now.describe()).grant.owner, (await now.describe()).grant.label], [true, "mine"]);
  assert.ok((await (await c.session(reader)).describe()).grant.dead === "none"); // what was shared lives on
  for (const id of [session.id, "ext"]) assert.equal(c.sessionByID(id).ref.text, now.ref.text);
});

test("a rotation that nobody answered is finished by a later process, and what waited is sent", { timeout: 30_000 }, async (t) => {
  const { server, home, c, session } = await made(t, { patience: 1 }), space = await c.space(server.ref);
  await server.kill();
  await assert.rejects(session.rotate(), { codeName: "unavailable" });
  await assert.rejects(space.rotate(), { codeName: "unavailable" });
  const held = c.outbox.rotations().map((r) => r.fresh.text).sort();
  assert.equal(held.length, 2);
  await assert.rejects(session.rotate(), { codeName: "unavailable" }); // goes on with the same ref
  assert.deepEqual(c.outbox.rotations().map((r) => r.fresh.text).sort(), held);
  await assert.rejects(c.outbox.beginRotation(session.ref, session.ref), { codeName: "bad_ref_text" });
  for (const of of [session, space]) assert.equal(c.outbox.refFor(of.id).id, of.ref.id);
  await assert.rejects(c.outbox.dropRef(session.ref.id), { codeName: "in_use" });
  await assert.rejects(c.outbox.dropRef(Ref.parse(held[0]!).id), { codeName: "in_use" });
  const waiting = [await session.put("session", { title: "x" })];
  const { batch } = space.create();
  waiting.push(await batch.commit());
  await c.close();
  await server.start();
  const later = await client(t, home);
  for (const { batch: id } of waiting) await applied(later.ticket(id));
  assert.deepEqual(later.outbox.rotations(), []);
  const next = later.sessionByID(session.id), root = await later.space([...held].find((text) => text.includes("/spc_"))!);
  assert.ok(held.includes(next.ref.text));
  assert.deepEqual([(await next.describe()).grant.owner, (await root.describe()).grant.dead], [true, "none"]);
  assert.equal((await (await later.space(server.ref)).describe()).grant.dead, "revoked");
});

test("a rotation whose answer is lost is finished in the background, and nothing is sent meanwhile", { timeout: 30_000 }, async (t) => {
  const { proxy, c, session } = await made(t, { patience: 1 }), before = session.ref;
  let losing = true;
  void (async () => { while (losing) await proxy.cutAfter(1, "swallow"); })();
  await assert.rejects(session.rotate());
  losing = false;
  assert.equal(c.outbox.rotations().length, 1);
  await applied(await session.put("message/after", {}));
  assert.deepEqual(c.outbox.rotations(), []);
  const next = c.sessionByID(session.id);
  assert.notEqual(next.ref.id, before.id);
  assert.deepEqual(putKeys(await logOf(next)), ["message/after"]);
});

test("what is opened under a ref while that is rotated goes under the new one, and nothing is opened meanwhile", { timeout: 10_000 }, async (t) => {
  const box = await Outbox.open(await JournalStore.open(await folder(t)), { backoff: { initial: 1, max: 1 } });
  t.after(() => box.close());
  const base = Ref.parse(`mooring://localhost/spc_01M7XHZXQMGNPZVGCRHFRZXZNW.ocapurnajy5xoc62kp6aymbx4ee#${"A".repeat(43)}`);
  const refs = [0, 1, 2].map(() => base.for(`ses_${newULID()}`)) as [Ref, Ref, Ref], put = (of: Ref) => box.commit({ session: of.target, ops: [{ method: "put", args: [] }] });
  for (const r of refs) await box.putRef(r);
  const [early, late, other] = refs, opened: string[] = [], server = new LedgerServer({ open: () => undefined, before: () => undefined, after: () => false, delay: () => 0 });
  let refuse!: (err: Error) => void, asked!: () => void;
  const refusal = new Promise<never>((_, no) => { refuse = no; }), arrived = new Promise<void>((yes) => { asked = yes; });
  box.run({
    openStream: async (req) => {
      opened.push(req.through!.ref.id);
      if (req.through!.ref.id === early.id) {
        asked();
        await refusal;
      }
      return server.openStream(req);
    },
  });
  const one = await put(early);
  await arrived;
  const fresh = await Promise.all([early, late].map((r) => box.beginRotation(r, r.for(r.target))));
  const two = await put(late), three = await put(other);
  await box.wait(three.batch);
  assert.deepEqual(opened, [early.id, other.id]);
  refuse(fault("revoked", "it came behind the rotation"));
  await box.wait((await put(other)).batch);
  await box.endRotation(early.id, false);
  assert.deepEqual((await box.wait(one.batch)).map((o) => o.status), ["applied"]);
  await box.endRotation(late.id, false);
  assert.deepEqual((await box.wait(two.batch)).map((o) => o.status), ["applied"]);
  assert.deepEqual(opened, [early.id, other.id, ...fresh.map((r) => r.id)]);
});

test("a rotation that is refused changes nothing", async (t) => {
  const { server, c, session, reader } = await made(t), guest = await client(t, await folder(t, "guest"));
  const theirs = await guest.session(reader), { ref, ticket } = await session.share({ rights: ["append"] });
  await applied(ticket);
  await assert.rejects(theirs.rotate(), { codeName: "not_an_owner" });
  assert.deepEqual([guest.outbox.rotations(), guest.sessionByID(session.id).ref.text], [[], reader.text]);
  const appender = await guest.session(ref);
  await assert.rejects(appender.rotate(), { codeName: "not_an_owner" });
  await applied(await appender.put("message/1", {}));
  const creating = await (await c.space(server.ref)).share({ rights: ["create"] }), space = await guest.space(creating);
  await assert.rejects(space.rotate(), { codeName: "not_an_owner" });
  await applied(await space.create().batch.commit());
  const hasty = await client(t, await folder(t, "hasty"), { patience: 1 });
  await assert.rejects(hasty.session(session.ref.for(session.id)).then((s) => s.rotate()), { codeName: "not_yet_known" }); // no server knows it
  assert.deepEqual(hasty.outbox.rotations(), []);
});

test("what was rotated here leads to what replaced it, and is never brought back", async (t) => {
  const { server, home, c, session } = await made(t), first = session.ref;
  const one = await session.rotate(), again = await session.rotate();
  assert.deepEqual([again.session.ref.text, again.cut], [one.session.ref.text, one.cut]);
  const two = await one.session.rotate();
  assert.equal((await session.rotate()).session.ref.text, two.session.ref.text);
  await applied(await session.put("message/1", {}), await one.session.put("message/2", {}), await two.session.put("message/3", {}));
  assert.deepEqual(putKeys(await logOf(two.session)), ["message/1", "message/2", "message/3"]);
  await assert.rejects((await c.session(first)).events(), { codeName: "revoked" });

  // A creation that is repeated has the owner's ref as it was made.
  const space = await c.space(server.ref), owner = space.newOwner(), batchID = newBatchID(), create = () => space.create({ owner, batchID });
  await applied(await create().batch.commit());
  const { session: next } = await create().session.rotate();
  await applied(await create().batch.commit(), await create().session.put("message/1", {}));
  assert.equal(c.sessionByID(owner.target).ref.text, next.ref.text);

  // Nobody is taken at his word for a ref with another secret.
  const other = Ref.parse(first.text.replace(/#.*/, `#${first.for(first.target).secretText}`));
  await assert.rejects(c.session(other), { codeName: "unknown_ref" });
  await c.close();
  const later = await client(t, home);
  await applied(await (await later.session(first)).put("message/4", {}));
  await later.outbox.dropRef(two.session.ref.id);
  await assert.rejects((await later.session(first)).put("message/5", {}).then((ticket) => ticket.wait()).then((r) => r.check()), { codeName: "revoked" });
});

test("under a space's root ref that is rotated sessions are made on", async (t) => {
  const { server, c } = await made(t), space = await c.space(server.ref), guests = await space.share({ rights: ["create"] });
  const next = await space.rotate();
  assert.deepEqual([next.id, (await next.describe()).grant.dead], [space.id, "none"]);
  assert.notEqual(next.ref.id, space.ref.id);
  assert.equal((await space.describe()).grant.dead, "revoked");
  for (const s of [space, next, await c.space(guests)]) {
    const { session, batch } = s.create();
    await applied(await batch.commit());
    assert.equal((await session.describe()).grant.dead, "none");
  }
  let n = 0;
  for await (const _ of next.list()) n++;
  assert.equal(n, 4);
});
