// Logs, states and audits against their hash chains: the same hashes and findings as in Go, and on a real server.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test, type TestContext } from "node:test";
import { type AuditOptions, hashAuditRow, readAudit } from "../src/audit.js";
import type { Client } from "../src/client.js";
import { open, type Client as AnyClient, type OpenOptions, type Session } from "../src/index.js";
import type { Held } from "../src/link.js";
import { hashEvent, hashState, type Logged, LogVerifier, verifySession } from "../src/verify.js";
import { mooring, repo } from "./paths.js";
import { folder, Rewriting, TestServer } from "./rig.js";

const bytes = (hex: string): Uint8Array => new Uint8Array(Buffer.from(hex, "hex"));
const hex = (b: Uint8Array | undefined): string => Buffer.from(b!).toString("hex");

type Fields = { [name: string]: any };
const shared = JSON.parse(readFileSync(repo("testdata/chains.json"), "utf8")) as { log?: Fields; audit?: Fields; state?: Fields }[];
const cases = (kind: "log" | "audit" | "state"): Fields[] => shared.flatMap((c) => c[kind] ?? []);

const logged = (e: Fields): Logged => ({ ...e, sum: bytes(e["sum"]), hash: bytes(e["hash"]), purged: e["payload"] === "", hidden: false }) as Logged;

test("what is wrong with a log is named as in Go", () => {
  assert.ok(cases("log").length > 20);
  for (const c of cases("log")) {
    const v = new LogVerifier("ses_x", c["after"], c["redacted"], undefined);
    for (const e of c["log"]) v.add(logged(e));
    assert.deepEqual(v.findings(c["cursor"], bytes(c["head"])).map((f) => `${f.cursor} ${f.what}`), c["found"], c["name"]);
  }
});

test("hashes of events, of rows of an audit and of states are those that Go makes", () => {
  const log = (cases("log")[0]!["log"] as Fields[]).map(logged);
  for (const [i, e] of log.entries()) assert.equal(hex(hashEvent(i === 0 ? new Uint8Array(32) : log[i - 1]!.hash, "ses_x", e)), hex(e.hash));
  for (const r of cases("audit")) assert.equal(hex(hashAuditRow(bytes(r["prev"]), "ses_x", r as never, r["code"])), r["hash"]);
  assert.equal(hashAuditRow(new Uint8Array(32), "ses_x", { ...cases("audit")[0]!, act: "of a later version" } as never, 0), undefined);
  for (const s of cases("state")) {
    const claims = (s["entries"] as Fields[]).filter((e) => e["claim"]).map((e) => [e["key"], { cursor: e["claim"].Cursor, until: e["claim"].Until, outbox: e["claim"].Outbox, worker: e["claim"].Worker }] as const);
    assert.equal(hex(hashState(s["cursor"], s["epoch"], s["entries"], s["turns"], new Map(claims) as never)), s["hash"]);
  }
});

async function client(t: TestContext, options: Partial<OpenOptions> = {}): Promise<AnyClient> {
  const c = await open({ home: await folder(t, "home"), reconnect: { initial: 10, max: 100 }, outbox: { backoff: { initial: 10, max: 100 } }, ...options });
  t.after(() => c.close());
  return c;
}

/** What the command says of a session or space, as objects. */
const command = (home: string, ...args: string[]): Fields[] => {
  const text = execFileSync(mooring(), [...args, "--json", "--home", home], { encoding: "utf8", env: { ...process.env, HOME: home } });
  return text.trim().split("\n").map((l) => JSON.parse(l) as Fields);
};

/** A session with turns, edits, claims, purges and shares. */
async function story(t: TestContext, order?: "time"): Promise<{ server: TestServer; c: AnyClient; session: Session }> {
  const server = await TestServer.start(t), c = await client(t), { session, batch: b } = (await c.space(server.ref)).create(order ? { order } : {});
  b.begin("m", { role: "assistant" });
  b.put("part/m/p", { type: "text", text: "ü" });
  b.appendText("part/m/p", 2, "\u2028x");
  b.finalize("m", "completed");
  b.begin("n", {});
  b.put("todo/1", { n: 1, secret: "s3cret" });
  b.patch("todo/1", { m: "patched" });
  b.add("todo/1", "n", 4);
  b.put("todo/2", null);
  b.claim("todo/2", 3_600_000, "w");
  b.put("gone/1", "away");
  b.purge("gone/1");
  b.bumpEpoch();
  b.put("last", "unmistakable");
  (await (await b.commit()).wait()).check();
  return { server, c, session };
}

for (const order of [undefined, "time"] as const) {
  test(`a session ${order ? "ordered by time " : ""}verifies, with the hashes that the command prints`, async (t) => {
    const { c, session } = await story(t, order), reached: number[] = [];
    const v = (await session.verify({ progress: (cursor) => reached.push(cursor) })).check();
    assert.deepEqual([v.from, v.events, v.cursor, v.purged, v.findings, v.differences, v.unverified, reached.at(-1)], [1, v.cursor, v.stateCursor, 1, [], [], [], v.cursor]);
    const [said] = command(await folder(t, "cli"), "session", "verify", session.ref.text);
    assert.deepEqual([said!["cursor"], said!["head"], said!["state_hash"]], [v.cursor, hex(v.head), hex(v.state)]);

    // While others write, too.
    const tickets = Array.from({ length: 50 }, (_, i) => session.put(`todo/x${i % 7}`, i));
    for (let i = 0; i < 5; i++) (await session.verify()).check();
    for (const ticket of tickets) await (await ticket).wait();

    // A fork's state is the one that its log begins with.
    const fork = (await c.space((await story(t, order)).server.ref)).create();
    (await (await fork.batch.commit()).wait()).check();
    (await fork.session.verify()).check();
  });
}

test("a fork verifies", async (t) => {
  const { server, c, session } = await story(t), { session: fork, batch } = (await c.space(server.ref)).fork(session);
  batch.patch("todo/1", { forked: true });
  (await (await batch.commit()).wait()).check();
  (await fork.verify()).check();
});

test("what was changed by hand is named", async (t) => {
  const { server, session } = await story(t), between = await Rewriting.start(t, server);
  const theirs = await (await client(t)).session(between.ref(session.ref)), last = (await session.describe()).session!.cursor;
  const changed = async (f: (message: string) => string): Promise<[unknown, unknown]> => {
    between.toClient = f;
    const v = await theirs.verify();
    assert.throws(() => v.check(), { codeName: "internal" });
    return [v.findings.map((x) => `${x.cursor} ${x.what}`), v.differences];
  };
  const log = (m: string): boolean => m.includes('"events"'), state = (m: string): boolean => m.includes('"entries"') && m.includes('"last"') && !log(m);
  const [findings] = await changed((m) => (log(m) ? m.replace("s3cret", "public") : m));
  assert.deepEqual(findings, ["7 has another payload than was written"]);
  assert.deepEqual(await changed((m) => (log(m) ? m.replaceAll('"patch"', '"put"') : m)), [["8 was changed"], ["todo/1"]]);
  assert.deepEqual(await changed((m) => (state(m) ? m.replace("unmistakable", "another") : m)), [[], ["last"]]);
  assert.deepEqual(await changed((m) => (log(m) ? m.replaceAll('"bumpEpoch"', '"nothing"') : m)), [[`${last - 1} was changed`], ["epoch"]]);
  between.toClient = (m) => m;
  assert.equal((await theirs.verify()).error, undefined);
});

test("through a ref that shows a part, that part is verified, or nothing is", async (t) => {
  const { c, session } = await story(t), b = session.batch();
  const late = b.share({ rights: ["read"], from: 4 }).ref, some = b.share({ rights: ["read"], readKeys: ["todo/"] }).ref;
  const lateOfSome = b.share({ rights: ["read"], readKeys: ["todo/"], from: 4 }).ref, blind = b.share({ rights: ["append"] }).ref;
  (await (await b.commit()).wait()).check();
  const v = await (await c.session(late)).verify();
  assert.deepEqual([v.error, v.from, v.events, v.state, v.unverified.length > 0], [undefined, 4, v.cursor - 3, undefined, true]);
  for (const ref of [some, lateOfSome, blind]) await assert.rejects((await c.session(ref)).verify(), { codeName: "missing_right" });
  await session.bumpEpoch();
  await assert.rejects((await c.session(late)).verify(), { codeName: "stale_epoch" });
});

/** A client whose server is an object, and a ref to its session. */
const fake = (live: object) => [
  { call: (_: unknown, ask: (live: unknown, peer: unknown) => unknown) => ask(live, { has: async () => true }), life: new AbortController().signal } as unknown as Client,
  { ref: { target: "ses_x" }, redemption: "" } as unknown as Held,
] as const;

test("a log that is purged while it is read is read again, and not for ever", async () => {
  const purges = [true, true, false], log = (cases("log")[0]!["log"] as Fields[]).map(logged), info = { cursor: 5, head: log[4]!.hash, epoch: 1, base: 0 };
  let reads = 0;
  const live = {
    info: async () => ({ info, grant: { dead: null } }),
    snapshot: async () => 0,
    events: async () => (purges[reads++] ?? true ? { events: log, cursor: 8 } : { events: log.slice(0, 5), cursor: 5 }),
  };
  assert.equal((await verifySession(...fake(live), {})).events, 5);
  assert.equal(reads, 3);
  await assert.rejects(verifySession(...fake(live), {}), { codeName: "overloaded" });
  assert.equal(reads, 3 + 4);
});

test("a log that is another one than the session's is found out at the session's cursor", async () => {
  const log = (cases("log")[0]!["log"] as Fields[]).map(logged), head = new Uint8Array(32).fill(1);
  const live = (cursor: number, grant: object) => ({
    info: async () => ({ info: { cursor, head, epoch: 1, base: 0 }, grant }), snapshot: async () => 0, events: async () => ({ events: log, cursor: 8 }),
  });
  const found = async (cursor: number) => (await verifySession(...fake(live(cursor, {})), {})).findings;
  assert.deepEqual(await found(7), [{ cursor: 7, what: "is not the one that the session was at" }]);
  assert.deepEqual(await found(8), [{ cursor: 8, what: "is not the one that the session ends with" }]);
  await assert.rejects(verifySession(...fake(live(8, { dead: { code: 41, name: "revoked" } })), {}), { message: /^revoked: the ref is dead/ });
});

test("an audit is read to its present end, page by page", async () => {
  let seq = 5;
  const asked: number[][] = [], live = {
    audit: async (after: number, limit: number) => {
      asked.push([after, limit]);
      seq++; // it grows while it is read
      const rows = [1, 2].map((i) => after + i).filter((n) => n <= seq && (limit === 0 || n <= after + limit)).map((n) => ({ seq: n, act: "of a later version", hash: new Uint8Array(32).fill(n) }));
      return { rows, seq, head: new Uint8Array(32).fill(seq) };
    },
  };
  const read = async (options: AuditOptions) => {
    const rows: number[] = [];
    for await (const r of readAudit(...fake(live), options)) rows.push(r.seq);
    return rows;
  };
  assert.deepEqual(await read({}), [1, 2, 3, 4, 5, 6]);
  assert.deepEqual(asked, [[0, 0], [2, 0], [4, 0]]);
  asked.length = 0;
  assert.deepEqual(await read({ after: 1, limit: 3 }), [2, 3, 4]);
  assert.deepEqual(asked, [[1, 3], [3, 1]]);
  assert.deepEqual(await read({ after: seq + 1 }), []); // by then there is one more
  asked.length = 0;
  const ahead = seq + 1;
  seq += 9;
  assert.equal((await read({ after: ahead })).length, 9);
});

test("an audit is read, followed and verified", { timeout: 30_000 }, async (t) => {
  const server = await TestServer.start(t), c = await client(t), space = await c.space(server.ref), { session, batch } = space.create();
  const { ref } = batch.share({ rights: ["read"], label: "reader" });
  for (let i = 0; i < 3; i++) batch.share({ rights: ["read"] });
  (await (await batch.commit()).wait()).check();
  const all = async (options = {}) => {
    const rows = [];
    for await (const r of session.audit(options)) rows.push(r);
    return rows;
  };
  const before = await all(), minted = before.filter((r) => r.act === "share"), shares = minted.filter((r) => r.ref === session.ref.id);
  assert.deepEqual(before.map((r) => r.seq), before.map((_, i) => i + 1));
  assert.deepEqual([shares.length, shares[0]!.ref, shares[0]!.subject, shares[0]!.reason], [4, session.ref.id, ref.id, "none"]);
  assert.deepEqual((await all({ limit: 2 })).map((r) => r.seq), [1, 2]);
  const second = before[1]!;
  assert.deepEqual((await all({ after: 2, hash: second.hash })).map((r) => r.seq).slice(0, before.length - 2), before.slice(2).map((r) => r.seq));
  await assert.rejects(all({ after: 2, hash: before[2]!.hash }), { codeName: "server_behind" });
  await assert.rejects(all({ after: 1e6 }), { codeName: "server_behind" });
  for (const wrong of [{ after: -1 }, { after: 1.5 }, { limit: 0 }, { limit: NaN }, { interval: 0, follow: true }, { hash: new Uint8Array(3) }]) await assert.rejects(all(wrong), { codeName: "bad_argument" }, JSON.stringify(wrong));
  await assert.rejects((async () => { for await (const _ of (await c.session(ref)).audit()); })(), { codeName: "not_an_owner" });

  // What is added later follows, over a server that is restarted, until the signal fires.
  const stop = new AbortController(), seen: string[] = [];
  const following = (async () => {
    for await (const r of session.audit({ after: before.length, hash: before.at(-1)!.hash, follow: true, interval: 20, signal: stop.signal })) {
      if (r.act === "revoke") seen.push(r.subject);
      if (seen.length === 2) stop.abort();
    }
  })();
  await session.revoke(ref);
  await server.restart();
  await session.revoke(shares[1]!.subject);
  await following;
  assert.deepEqual(seen, [ref.id, shares[1]!.subject]);

  const v = await session.verifyAudit();
  assert.deepEqual([v.findings, hex(v.head)], [[], hex((await all()).find((r) => r.seq === v.seq)!.hash)]);
  assert.deepEqual((await space.verifyAudit()).findings, []);
  assert.ok((await (async () => { for await (const r of space.audit()) return r; })())!.seq === 1);
  const [said] = command(await folder(t, "cli"), "audit", "verify", session.ref.text);
  assert.equal(said!["chain"], "audit");

  // Rows that are changed by hand are named; a page that does not continue what was read ends reading.
  const between = await Rewriting.start(t, server), theirs = await (await client(t)).session(between.ref(session.ref));
  between.toClient = (m) => m.replaceAll('"share"', '"save"');
  assert.deepEqual((await theirs.verifyAudit()).findings.map((f) => f.text), minted.map((r) => `audit row ${r.seq} was changed after it was written`));
  await assert.rejects((async () => { for await (const _ of theirs.audit({ after: shares[0]!.seq - 1, hash: before[shares[0]!.seq - 2]!.hash })); })(), { codeName: "server_behind" });
});

test("a restored server's other audit is told apart", async (t) => {
  const server = await TestServer.start(t), c = await client(t), { session, batch } = (await c.space(server.ref)).create();
  (await (await batch.commit()).wait()).check();
  const restore = await server.save();
  (await (await session.share({ rights: ["read"], label: "lost" })).ticket.wait()).check();
  let last;
  for await (const r of session.audit()) last = r;
  await restore();
  await assert.rejects((async () => { for await (const _ of session.audit({ after: last!.seq, hash: last!.hash })); })(), { codeName: "server_behind" });
});

