// Going on where one was, on a server that was put back to a copy and has gone on otherwise since; and lifetimes, which
// begin where they apply.

import assert from "node:assert/strict";
import { test } from "node:test";
import { MooringError, open, type SessionEvent, type State } from "../src/index.js";
import { hintsOf } from "../src/intent.js";
import { folder, logOf, TestServer } from "./rig.js";

const behind = (err: unknown): boolean => err instanceof MooringError && err.codeName === "server_behind";

test("who followed a log that is gone is told, or starts over", async (t) => {
  const server = await TestServer.start(t);
  const homes = { a: await folder(t, "a"), b: await folder(t, "b"), late: await folder(t, "late") };
  const opened = async (home: string) => {
    const c = await open({ home, reconnect: { initial: 10, max: 100 }, outbox: { backoff: { initial: 10, max: 100 } } });
    t.after(() => c.close());
    return c;
  };
  const a = await opened(homes.a);
  const { session, batch } = (await a.space(server.ref.text)).create();
  for (let i = 0; i < 5; i++) batch.put(`message/a${i}`, { by: "a" });
  const { ref } = batch.share({ rights: ["read", "append"] });
  await (await batch.commit()).wait();

  const restore = await server.save();
  const more = session.batch();
  for (let i = 0; i < 5; i++) more.put(`message/more${i}`, { by: "a" });
  await (await more.commit()).wait();

  // Two follow, one of them to start over, and a third one's place is kept.
  const follower = await (await opened(homes.late)).session(ref.text);
  const seen: SessionEvent[] = [], states: State[] = [], after: SessionEvent[] = [];
  const stop = new AbortController();
  const cut = assert.rejects(follower.subscribe({}, (e) => { seen.push(e); }), behind);
  const over = follower.subscribe({ signal: stop.signal, startOver: (s) => { states.push(s); after.length = 0; } }, (e) => { after.push(e); });
  while (seen.length < 12 || after.length < 12) await new Promise((r) => setTimeout(r, 5));
  const last = seen.at(-1)!;
  assert.equal(last.cursor, 12);

  await restore();
  const b = (await (await opened(homes.b)).session(ref.text)), others = b.batch();
  for (let i = 0; i < 20; i++) others.put(`message/b${i}`, { by: "b" });
  await (await others.commit()).wait();

  await cut;
  assert.equal(seen.length, 12);
  await assert.rejects(b.events(last.cursor, 1, { hash: last.hash }), behind);
  await assert.rejects(b.snapshot({ at: last.cursor, hash: last.hash }), behind);
  await assert.rejects(b.subscribe({ after: last.cursor, hash: last.hash }, () => assert.fail("it was given an event of another log")), behind);
  await assert.rejects(b.events(99, 1), behind);
  assert.equal((await b.events(last.cursor, 1)).events[0]!.cursor, last.cursor + 1); // who names no hash

  const log = await logOf(b), end = log.at(-1)!;
  while (states.length === 0 || (after.at(-1)?.cursor ?? states.at(-1)!.cursor) < end.cursor) await new Promise((r) => setTimeout(r, 5));
  const from = states.at(-1)!;
  assert.deepEqual(after.map((e) => e.hash), log.filter((e) => e.cursor > from.cursor).map((e) => e.hash));
  assert.deepEqual(from.hash, log.find((e) => e.cursor === from.cursor)!.hash);
  assert.deepEqual(await b.snapshot({ at: from.cursor, hash: from.hash }).then((s) => s.entries), from.entries);
  stop.abort();
  await over;
});

test("a lifetime begins where it applies", async (t) => {
  const server = await TestServer.start(t);
  const c = await open({ home: await folder(t, "home") });
  t.after(() => c.close());
  const space = await c.space(server.ref.text);
  const { session, batch } = space.create();
  const made = session.ref.for(session.id);
  const slow = batch.do("share", { ref: made.id, hash: made.hashText, rights: ["read"], expires_at: Date.now() - 3_600_000, expires_in: 3_600_000 });
  batch.share({ rights: ["read"], lifetime: 3_600_000 });
  const past = batch.share({ rights: ["read"], expires: Date.now() - 1000 });
  const results = await (await batch.commit()).wait();
  assert.equal(results.of(slow).status, "applied");
  assert.equal(results.of(past.op).reason, "bad_argument");
  const shares = (await logOf(session)).filter((e) => e.method === "share");
  assert.equal(shares.length, 2);
  for (const e of shares) assert.equal((JSON.parse(e.payload) as { expires_at: number }).expires_at, e.at + 3_600_000);

  const listing = await c.space((await space.share({ rights: ["list"], lifetime: 60_000 })).text), about = await listing.info();
  const left = about.grant.expires - about.now;
  assert.ok(left > 0 && left <= 60_000, `${left} ms are left`);
  assert.throws(() => session.batch().share({ rights: ["read"], lifetime: 1, expires: new Date() }), /not both/);
  assert.throws(() => session.batch().share({ rights: ["read"], lifetime: 0.5 }), /whole number/);
});

test("hints travel beside the arguments that do without them", () => {
  const at = { name: "expires_at", json: "5" }, lasts = { name: "expires_in", json: "6" }, hash = { name: "at_hash", json: '"00"' };
  assert.deepEqual(hintsOf("share", [at, lasts, hash]), { args: [at], hints: [lasts, hash] });
  assert.deepEqual(hintsOf("share", [lasts]), { args: [lasts], hints: [] }); // without it the ref would live for ever
  const order = { name: "order", json: '"time"' };
  assert.deepEqual([hintsOf("create", [order]).hints, hintsOf("share", [order]).hints], [[order], []]);
  assert.deepEqual(hintsOf("fork", [{ name: "at_hash", ref: { op: "o", path: "" } }]).hints, []);
});
