// The session store of the Claude Agent SDK against a real server: the contracts of the SDK's conformance suite for stores, each as a test,
// and what a store on an outbox has to hold besides: over cut links, with several processes, and where one is killed.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test, type TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { type ClaudeSessionEntry, ClaudeSessionStore, type ClaudeSessionStoreOptions, type FoldSummary } from "../src/claude-session-store.js";
import { isOwnKey } from "../src/key.js";
import { type Client, MooringError, open, type OpenOptions, type Ref, type Session } from "../src/index.js";
import { folder, logOf, Proxy, TestServer } from "./rig.js";
import { seeded } from "./seed.js";

async function client(t: TestContext, options: Partial<OpenOptions> = {}): Promise<Client> {
  const c = await open({ home: await folder(t, "home"), reconnect: { initial: 5, max: 50 }, outbox: { backoff: { initial: 5, max: 50 } }, ...options });
  t.after(() => c.close());
  return c;
}

/** A new session on a server, and a ref to it as another machine has it. */
async function created(t: TestContext, server: TestServer, at: Ref = server.ref): Promise<{ session: Session; shared: Ref }> {
  const { session, batch } = (await (await client(t)).space(at)).create();
  const { ref: shared } = batch.share({ rights: ["read", "append"] });
  (await (await batch.commit()).wait()).check();
  return { session, shared };
}

/** A store on a session of its own. */
async function store(t: TestContext, options: ClaudeSessionStoreOptions = {}): Promise<ClaudeSessionStore> {
  const { session } = await created(t, await TestServer.start(t));
  return new ClaudeSessionStore(session, options);
}

/** Keeps the last title and counts: what the SDK's own does is in e2e/claude-store. */
const fold: FoldSummary = (prev, { sessionId }, entries, { mtime = prev?.mtime ?? 0 } = {}) => {
  const count = Number(prev?.data["count"] ?? 0) + entries.length, title = entries.findLast((e) => e["customTitle"] !== undefined)?.["customTitle"] ?? prev?.data["title"];
  return { sessionId, mtime, data: { count, title } };
};

const e = (rest: Partial<ClaudeSessionEntry>): ClaudeSessionEntry => ({ type: "user", ...rest });
const main = { projectKey: "-home-ann-app", sessionId: "7c1b9a6e-0000-4000-8000-000000000001" };
const agent = (n: number) => ({ ...main, subpath: `subagents/agent-${n}` });
const ids = (entries: ClaudeSessionEntry[] | null) => entries?.map((e) => e.uuid);

test("contract 1: what is appended is loaded, equal and in the same order", async (t) => {
  const s = await store(t), entries = [
    e({ uuid: "b", nested: { z: [1, null, { "": "ü\u2028\ud83d\ude00" }], a: 1.5e300 } }), e({ uuid: "a", message: { content: [{ type: "text", text: "" }] } }),
    e({ note: 'a "lone" surrogate: \ud800' }),
  ];
  await s.append(main, entries);
  assert.deepStrictEqual(await s.load(main), entries);
});

test("contract 2: a key that was never written is null", async (t) => {
  const s = await store(t);
  assert.equal(await s.load(main), null);
  await s.append(main, [e({ uuid: "a" })]);
  assert.equal(await s.load({ ...main, subpath: "nope" }), null);
  assert.equal(await s.load({ ...main, sessionId: "nope" }), null);
});

test("contract 3: several appends stay in the order of the calls, also if none is waited for", async (t) => {
  const s = await store(t), names = ["z", "a", "m", "b", "0"];
  for (const n of names.slice(0, 3)) await s.append(main, [e({ uuid: n }), e({ uuid: `${n}${n}` })]);
  await Promise.all(names.slice(3).map((n) => s.append(main, [e({ uuid: n }), e({ uuid: `${n}${n}` })])));
  assert.deepEqual(ids(await s.load(main)), names.flatMap((n) => [n, `${n}${n}`]));
});

test("contract 4: an append of nothing does nothing", async (t) => {
  const s = await store(t);
  await s.append(main, []);
  assert.deepEqual([await s.load(main), await s.listSessions(main.projectKey)], [null, []]);
  await s.append(main, [e({ uuid: "a" })]);
  await s.append(main, []);
  assert.deepEqual(ids(await s.load(main)), ["a"]);
});

test("contract 5: subpaths are apart from the main transcript, with the same uuids", async (t) => {
  const s = await store(t);
  await s.append(main, [e({ uuid: "m", n: 1 })]);
  await s.append(agent(1), [e({ uuid: "m", n: 2 })]);
  assert.deepEqual([await s.load(main), await s.load(agent(1))], [[e({ uuid: "m", n: 1 })], [e({ uuid: "m", n: 2 })]]);
});

test("contract 6: projects are apart", async (t) => {
  const s = await store(t), [a, b] = ["A", "B"].map((projectKey) => ({ projectKey, sessionId: "s1" })) as [typeof main, typeof main];
  await s.append(a, [e({ uuid: "1", from: "A" })]);
  await s.append(b, [e({ uuid: "1", from: "B" })]);
  assert.deepEqual([(await s.load(a))![0]!["from"], (await s.load(b))![0]!["from"]], ["A", "B"]);
  assert.deepEqual([(await s.listSessions("A")).length, (await s.listSessions("B")).length], [1, 1]);
});

test("contract 7: a project's sessions are listed, with the times of their last appends", async (t) => {
  const s = await store(t), from = Date.now();
  for (const [projectKey, sessionId] of [["p", "a"], ["p", "b"], ["other", "c"]] as const) await s.append({ projectKey, sessionId }, [e({ uuid: "1" })]);
  const first = await s.listSessions("p");
  assert.deepEqual(first.map((x) => x.sessionId).sort(), ["a", "b"]);
  assert.ok(first.every(({ mtime }) => Number.isInteger(mtime) && mtime >= from && mtime <= Date.now()));
  while (Date.now() <= first[0]!.mtime) await new Promise((r) => setTimeout(r, 1));
  await s.append({ projectKey: "p", sessionId: first[0]!.sessionId }, [e({ note: 1 })]);
  assert.ok((await s.listSessions("p")).find((x) => x.sessionId === first[0]!.sessionId)!.mtime > first[0]!.mtime);
  assert.deepEqual(await s.listSessions("never"), []);
});

test("contract 8: subpaths are not listed as sessions", async (t) => {
  const s = await store(t);
  await s.append(main, [e({ uuid: "1" })]);
  await s.append(agent(1), [e({ uuid: "1" })]);
  await s.append({ ...agent(2), sessionId: "only an agent" }, [e({ uuid: "1" })]);
  assert.deepEqual((await s.listSessions(main.projectKey)).map((x) => x.sessionId), [main.sessionId]);
});

for (const purge of [false, true]) {
  test(`contract 9: a session that is deleted is null${purge ? ", and its log has nothing of it if that is to be purged" : ""}`, async (t) => {
    const { session } = await created(t, await TestServer.start(t)), s = new ClaudeSessionStore(session, { purge, foldSessionSummary: fold });
    await s.delete({ ...main, sessionId: "never written" });
    await s.append(main, [e({ uuid: "a", text: "a secret" }), e({ text: `another secret ${"x".repeat(2 << 20)}` })]);
    await s.listSessionSummaries!(main.projectKey);
    await s.delete(main);
    assert.deepEqual([await s.load(main), await s.listSessions(main.projectKey), await s.listSessionSummaries!(main.projectKey)], [null, [], []]);
    assert.deepEqual([...(await session.snapshot()).entries.keys()], []);
    assert.equal((await logOf(session)).some((x) => x.payload.includes("secret")), !purge);
    await s.append(main, [e({ uuid: "a", n: 2 })]);
    assert.deepEqual(await s.load(main), [e({ uuid: "a", n: 2 })]);
  });
}

test("contract 10: deleting a session deletes its subpaths, and nothing else", async (t) => {
  const s = await store(t), others = [{ ...main, sessionId: `${main.sessionId}2` }, { ...main, projectKey: "other" }];
  for (const key of [main, agent(1), agent(2), ...others]) await s.append(key, [e({ uuid: "1" })]);
  await s.delete(main);
  for (const key of [main, agent(1), agent(2)]) assert.equal(await s.load(key), null);
  for (const key of others) assert.equal((await s.load(key))!.length, 1);
  assert.deepEqual([await s.listSubkeys(main), (await s.listSessions(main.projectKey)).map((x) => x.sessionId)], [[], [others[0]!.sessionId]]);
});

test("contract 11: deleting a subpath deletes that alone", async (t) => {
  const s = await store(t), large = e({ uuid: "2", text: "x".repeat(2 << 20) });
  for (const key of [main, agent(1), agent(2)]) await s.append(key, [e({ uuid: "1" }), large]);
  await s.delete(agent(1));
  assert.equal(await s.load(agent(1)), null);
  for (const key of [main, agent(2)]) assert.deepEqual(await s.load(key), [e({ uuid: "1" }), large]);
  assert.deepEqual(await s.listSubkeys(main), ["subagents/agent-2"]);
});

test("contract 12: the subpaths of a session are listed", async (t) => {
  const s = await store(t), long = { ...main, subpath: `subagents/${"long/".repeat(60)}ü` };
  for (const key of [main, agent(1), agent(2), long, { ...agent(3), sessionId: "other" }]) await s.append(key, [e({ uuid: "1" })]);
  assert.deepEqual((await s.listSubkeys(main)).sort(), ["subagents/agent-1", "subagents/agent-2", long.subpath]);
  assert.deepEqual(ids(await s.load(long)), ["1"]);
});

test("contract 13: the main transcript is no subpath", async (t) => {
  const s = await store(t);
  await s.append(main, [e({ uuid: "1" })]);
  assert.deepEqual([await s.listSubkeys(main), await s.listSubkeys({ ...main, sessionId: "never" })], [[], []]);
});

test("contract of summaries: each is folded over all entries in order, once, whoever appends and lists", async (t) => {
  const { session, shared } = await created(t, await TestServer.start(t)), other = await (await client(t)).session(shared), calls: number[] = [];
  const counting: FoldSummary = (prev, key, entries, options) => (calls.push(entries.length), fold(prev, key, entries, options));
  const [a, b] = [session, other].map((x) => new ClaudeSessionStore(x, { foldSessionSummary: counting })) as [ClaudeSessionStore, ClaudeSessionStore];
  await a.append(main, [e({ customTitle: "first" }), e({})]);
  await a.append({ ...main, projectKey: "other" }, [e({})]);
  const summary = async (s: ClaudeSessionStore) => (await s.listSessionSummaries!(main.projectKey)).map(({ sessionId, mtime, data }) => ({ sessionId, mtime, data }));
  const of = async (data: object) => [{ ...(await a.listSessions(main.projectKey))[0], data }];
  assert.deepEqual(await summary(a), await of({ count: 2, title: "first" }));
  await b.append(main, [e({ customTitle: "second" })]);
  await b.append(agent(1), [e({ customTitle: "the agent's" })]);
  assert.deepEqual(await summary(b), await of({ count: 3, title: "second" }));
  assert.deepEqual(await summary(a), await of({ count: 3, title: "second" }));
  assert.deepEqual(calls, [2, 1]);
  assert.deepEqual(await a.listSessionSummaries!("never"), []);
  assert.equal(new ClaudeSessionStore(session).listSessionSummaries, undefined);
});

test("an entry is there once by its uuid, those without one as often as they are appended", async (t) => {
  const { session, shared } = await created(t, await TestServer.start(t)), other = await (await client(t)).session(shared);
  const a = new ClaudeSessionStore(session), b = new ClaudeSessionStore(other), title = e({ type: "custom-title" }), large = e({ uuid: "large", text: "é\ud83d\ude00\n".repeat(400_000) });
  await a.append(main, [e({ uuid: "1" }), title, large, e({ uuid: "2" }), e({ uuid: "2" })]);
  await b.append(main, [e({ uuid: "2", other: true }), e({ uuid: "1" }), title, large, e({ uuid: "3" })]);
  await a.append(main, [title, title]);
  const loaded = await b.load(main);
  assert.deepEqual(loaded!.map((x) => x.uuid ?? x.type), ["1", "custom-title", "large", "2", "custom-title", "3", "custom-title", "custom-title"]);
  assert.deepEqual(loaded!.slice(2, 4), [large, e({ uuid: "2" })]);
});

test("names of any length and signs are told apart, and make keys", async (t) => {
  const names = ["a", "a/b", "a+2fb", "a b", "@main", "@sessions", "@", "ü", "\ud83d\ude00", "x".repeat(100), "x".repeat(101), `${"x".repeat(300)}1`, `${"x".repeat(300)}2`, "../..", "A", "s", "sessions"];
  const s = await store(t);
  await Promise.all(names.map((name) => s.append({ projectKey: name, sessionId: name, subpath: name }, [e({ uuid: name, name })])));
  for (const name of names) assert.deepEqual((await s.load({ projectKey: name, sessionId: name, subpath: name }))!.map((x) => x["name"]), [name]);
  await s.append(main, names.map((name) => e({ uuid: name })));
  assert.deepEqual(ids(await s.load(main)), names);
});

test("long transcripts are appended and loaded whole", { timeout: 60_000 }, async (t) => {
  const { session } = await created(t, await TestServer.start(t)), s = new ClaudeSessionStore(session, { foldSessionSummary: fold });
  const entries = Array.from({ length: 2500 }, (_, n) => e({ uuid: `u${n}`, text: "y".repeat(4000), n }));
  await Promise.all([s.append(main, entries.slice(0, 1200)), s.append(main, entries.slice(1200))]); // several batches each
  assert.deepEqual(await s.load(main), entries);
  assert.deepEqual((await s.listSessionSummaries!(main.projectKey))[0]!.data, { count: 2500, title: undefined });
  await s.append(main, [e({ uuid: "more", customTitle: "more" })]);
  assert.deepEqual((await s.listSessionSummaries!(main.projectKey))[0]!.data, { count: 2501, title: "more" });
  assert.ok([...(await session.snapshot({ keys: ["claude/"] })).entries.keys()].every((k) => isOwnKey(k)));
  await s.delete(main);
  assert.equal(await s.load(main), null);
});

test("a fork of the session has what it has, with times", async (t) => {
  const server = await TestServer.start(t), c = await client(t), space = await c.space(server.ref), { session, batch } = space.create(), from = Date.now();
  await batch.commit();
  const s = new ClaudeSessionStore(session, { foldSessionSummary: fold }), large = e({ uuid: "large", text: "x".repeat(2 << 20) });
  await s.append(main, [e({ uuid: "1" }), large]);
  const forked = space.fork(session);
  (await (await forked.batch.commit()).wait()).check();
  const f = new ClaudeSessionStore(forked.session, { foldSessionSummary: fold });
  assert.deepEqual(await f.load(main), [e({ uuid: "1" }), large]);
  const [listed] = await f.listSessions(main.projectKey);
  assert.ok(listed!.mtime >= from && listed!.mtime <= Date.now(), `${listed!.mtime}`);
  await f.append(main, [e({ uuid: "1" }), e({ uuid: "2" })]);
  assert.deepEqual([ids(await f.load(main)), ids(await s.load(main))], [["1", "large", "2"], ["1", "large"]]);
  assert.equal((await f.listSessionSummaries!(main.projectKey))[0]!.data["count"], 3);
});

test("a project of the options stands for that of every key", async (t) => {
  const { session } = await created(t, await TestServer.start(t)), s = new ClaudeSessionStore(session, { project: "app" });
  await s.append(main, [e({ uuid: "1" })]);
  const elsewhere = { ...main, projectKey: "-Users-bob-work-app" };
  assert.deepEqual([ids(await s.load(elsewhere)), (await s.listSessions("any")).length], [["1"], 1]);
});

test("a ref that is limited to a session's keys has that one alone, and what it may not do is refused", async (t) => {
  const { session } = await created(t, await TestServer.start(t)), s = new ClaudeSessionStore(session), other = { ...main, sessionId: "other" };
  await s.append(main, [e({ uuid: "1" })]);
  await s.append(other, [e({ uuid: "1" })]);
  const keys = [`claude/${main.projectKey}/${main.sessionId}/`, `claude/${main.projectKey}/@sessions/${main.sessionId}`], b = session.batch();
  const writer = b.share({ rights: ["read", "append"], readKeys: keys, writeKeys: keys }).ref, reader = b.share({ rights: ["read"] }).ref;
  (await (await b.commit()).wait()).check();
  const limited = new ClaudeSessionStore(await (await client(t)).session(writer));
  await limited.append(main, [e({ uuid: "2" })]);
  assert.deepEqual([ids(await limited.load(main)), await limited.load(other), (await limited.listSessions(main.projectKey)).map((x) => x.sessionId)], [["1", "2"], null, [main.sessionId]]);
  await assert.rejects(limited.append(other, [e({ uuid: "2" })]), (err: MooringError) => err.codeName === "missing_right");
  const read = new ClaudeSessionStore(await (await client(t)).session(reader), { foldSessionSummary: fold });
  assert.deepEqual((await read.listSessionSummaries!(main.projectKey)).map((x) => x.data["count"]).sort(), [1, 2]);
  await assert.rejects(read.append(other, [e({ uuid: "2" })]), (err: MooringError) => err.codeName === "missing_right");
  assert.deepEqual(ids(await s.load(other)), ["1"]);
});

test("appends over a link that is cut, and answers that are swallowed, are there once and in order", { timeout: 60_000 }, async (t) => {
  const random = seeded(t), server = await TestServer.start(t), proxy = await Proxy.start(t, server), { session, shared } = await created(t, server);
  const s = new ClaudeSessionStore(await (await client(t, { quiet: 500 })).session(proxy.ref(shared)));
  let over = false, cuts = 0;
  const cutting = (async () => {
    for (; !over; cuts++) await Promise.race([proxy.cutAfter(200 + random() * 1500, random() < 0.5 ? "cut" : "swallow"), new Promise((r) => setTimeout(r, 100))]);
  })();
  const want: ClaudeSessionEntry[] = [];
  for (let n = 0; n < 40; n++) {
    const some = [e({ uuid: `u${n}`, n }), e({ n })];
    want.push(...some);
    await s.append(n % 3 === 0 ? agent(1) : main, some);
  }
  over = true;
  await cutting;
  assert.ok(proxy.links > 5, `${proxy.links} links`);
  const direct = new ClaudeSessionStore(session);
  const of = (agents: boolean) => want.filter((x) => (Number(x["n"]) % 3 === 0) === agents);
  assert.deepEqual([await direct.load(main), await direct.load(agent(1))], [of(false), of(true)]);
});

test("what could not be appended and is appended again, as the SDK does, is there once", async (t) => {
  const server = await TestServer.start(t), { session, shared } = await created(t, server), c = await client(t);
  const s = new ClaudeSessionStore(await c.session(shared)), twice = e({ n: 1 }), entries = [twice, e({ uuid: "u" }), twice];
  const waits = t.mock.method(c.outbox, "wait", () => Promise.reject(new Error("no answer")));
  await assert.rejects(s.append(main, entries), /no answer/);
  await assert.rejects(s.append(main, entries), /no answer/);
  waits.mock.restore();
  await s.append(main, entries);
  const direct = new ClaudeSessionStore(session);
  assert.deepEqual(await direct.load(main), entries);
  await s.append(main, entries); // and one that was appended, and is again, is another
  assert.deepEqual(await direct.load(main), [...entries, twice, twice]);
});

test("without a server an append can be durable in the outbox, and is sent by the next process", async (t) => {
  const server = await TestServer.start(t), { session, shared } = await created(t, server), home = await folder(t, "machine");
  const first = await client(t, { home });
  const s = new ClaudeSessionStore(await first.session(shared), { durable: "outbox" });
  await server.kill();
  for (const n of [1, 2, 3]) await s.append(main, [e({ uuid: `${n}` })]);
  await first.close();
  await server.start();
  const next = new ClaudeSessionStore(await (await client(t, { home })).session(shared));
  assert.deepEqual(ids(await next.load(main)), ["1", "2", "3"]); // load waits for what the outbox has
  assert.deepEqual(ids(await new ClaudeSessionStore(session).load(main)), ["1", "2", "3"]);
});

const writer = fileURLToPath(new URL("./claude-writer.js", import.meta.url));

test("a process is killed in the middle of its appends, and another, elsewhere, goes on with the session", { timeout: 60_000 }, async (t) => {
  const server = await TestServer.start(t), { shared } = await created(t, server), home = await folder(t, "one");
  const child = spawn(process.execPath, [writer, home, shared.text, JSON.stringify(main)], { stdio: ["ignore", "pipe", "inherit"] });
  let said = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => { said += text; });
  while (said.split("\n").length < 20) await once(child.stdout, "data");
  child.kill("SIGKILL");
  await once(child, "exit");
  const acknowledged = said.split("\n").slice(0, -1).length;

  const elsewhere = new ClaudeSessionStore(await (await client(t)).session(shared));
  const found = (await elsewhere.load(main))!;
  assert.ok(found.length >= 2 * acknowledged, `${found.length} of ${2 * acknowledged}`);
  assert.deepEqual(found, found.map((_, i) => (i % 2 === 0 ? e({ uuid: `u${i / 2}`, n: i / 2 }) : e({ n: (i - 1) / 2 }))));
  await elsewhere.append(main, [e({ uuid: "resumed" })]);

  // The first machine is back: what it had made durable arrives, once, and it sees what was appended meanwhile.
  const back = new ClaudeSessionStore(await (await client(t, { home })).session(shared)), all = (await back.load(main))!;
  assert.deepEqual(all.slice(0, found.length + 1), [...found, e({ uuid: "resumed" })]);
  const late = all.slice(found.length + 1);
  const uuids = all.flatMap((x) => x.uuid ?? []), own = all.filter((x) => x.uuid !== "resumed");
  assert.equal(new Set(uuids).size, uuids.length);
  assert.deepEqual(own, own.map((_, i) => (i % 2 === 0 ? e({ uuid: `u${i / 2}`, n: i / 2 }) : e({ n: (i - 1) / 2 }))));
  t.diagnostic(`${acknowledged} appends acknowledged, ${found.length} entries found elsewhere, ${late.length} after the outbox was opened again`);
});
