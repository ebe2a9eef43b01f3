// States that are followed event by event are the server's, whoever writes and over whatever wire.

import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { test, type TestContext } from "node:test";
import { newHttpBatchRpcSession } from "capnweb";
import { type Client, type CreateOptions, fold, jsonText, newULID, open, type Session, type SessionEvent, type State } from "../src/index.js";
import { folder, TestServer } from "./rig.js";
import { seeded } from "./seed.js";

async function client(t: TestContext): Promise<Client> {
  const c = await open({ home: await folder(t, "home"), reconnect: { initial: 10, max: 100 }, outbox: { backoff: { initial: 10, max: 100 } } });
  t.after(() => c.close());
  return c;
}

const empty = (): State => ({ cursor: 0, hash: new Uint8Array(), entries: new Map(), turns: [], claims: new Map() });

/** A state as values that compare. */
const shown = (s: State) => ({
  cursor: s.cursor, hash: [...s.hash], turns: s.turns, claims: Object.fromEntries(s.claims),
  entries: [...s.entries].map(([name, { key, cursor, schema, payload, ord }]) => ({ name, key, cursor, schema, payload, ord })),
});

/** Follows a state to a cursor. */
async function followed(session: Session, to: number, state = empty(), order = "", keys?: string[]): Promise<State> {
  for await (const e of session.follow({ after: state.cursor, hash: state.hash, ...(keys && { keys }) })) {
    fold(state, e, order);
    if (state.cursor >= to) return state;
  }
  return assert.fail("the events ended");
}

/** Writes with plain HTTP, as an outbox of its own. */
class HTTPWriter {
  readonly #url: string;
  readonly #headers: Record<string, string>;
  readonly #outbox = { outbox: "by-http", secret: randomBytes(32).toString("base64url"), incarnation: 1 };
  #seq = 0;

  constructor(server: TestServer, session: Session) {
    this.#url = `http://127.0.0.1:${server.port}/api/v1/sessions/${session.id}`;
    this.#headers = { authorization: `Bearer ${session.ref.text}`, "content-type": "application/json" };
  }

  async apply(ops: { method: string; args: Record<string, unknown> }[]): Promise<void> {
    const body = { ...this.#outbox, batch_id: newULID(), ops: ops.map((op) => ({ op_id: newULID(), seq: ++this.#seq, ...op })) };
    const answer = await fetch(`${this.#url}/batches`, { method: "POST", headers: this.#headers, body: JSON.stringify(body) });
    assert.equal(answer.status, 200, await answer.clone().text());
  }

  async snapshot(): Promise<{ cursor: number; entries: { key: string; payload: unknown }[] }> {
    return (await (await fetch(`${this.#url}/snapshot`, { headers: this.#headers })).json()) as { cursor: number; entries: { key: string; payload: unknown }[] };
  }
}

/** A session with every kind of event: two clients and one over HTTP write to it, at random. */
async function story(t: TestContext, options: CreateOptions, rounds: number) {
  const random = seeded(t), upTo = (n: number): number => Math.floor(random() * n), one = <T>(of: readonly T[]): T => of[upTo(of.length)]!;
  const server = await TestServer.start(t), a = await client(t), space = await a.space(server.ref), { session, batch } = space.create(options);
  const { ref } = batch.share({ rights: ["read", "append"] });
  (await (await batch.commit()).wait()).check();
  const other = await (await client(t)).session(ref), http = new HTTPWriter(server, session);
  const parts = [{ type: "text" }, { type: "text", text: "ö" }, { text: 7, a: 1 }, {}, jsonText('{"text":"x", "text" : "ö\\ud800"}')];
  const texts = ["é", "\u2028\u2029", "\ud83d\ude00", '"\\\n\u0001', "x"], lengths = new Map<string, number>();
  const own = (): string => `todo/${upTo(4)}`;
  for (let round = 0; round < rounds; round++) {
    const batches = [session, other].map((by) => {
      const b = by.batch();
      for (let n = upTo(4); n >= 0; n--) {
        switch (upTo(11)) {
          case 0: b.put(own(), one([null, 7, [], { a: 1 }, { a: { b: 1 }, n: 5 }, { time: { created: 5 } }])); break;
          case 1: case 2: b.patch(own(), one([{ [`m${upTo(4)}`]: upTo(9) }, { a: null }, { a: { [`c${upTo(3)}`]: upTo(3) } }, {}, [1]])); break;
          case 3: case 4: b.add(own(), one(["n", "m1", "a"]), upTo(9) - 4); break;
          case 5: b.remove(own()).expectKey(upTo(20)); break;
          case 6: b.put(`model/m${upTo(3)}`, { n: upTo(3), time: { created: upTo(2) * 1000 + 1 } }); break;
          case 7: b.remove(`model/m${upTo(3)}`); break;
          case 9: {
            const key = own(), claim = b.claim(key, 60_000, one(["", "w"]));
            b.patch(key, { claimed: round }).withClaim(claim);
            b.release(key, claim);
            break;
          }
          case 10: {
            const key = `work/${upTo(3)}`;
            b.put(key, round);
            b.claim(key, one([1000, 60_000]), one(["", "w"]));
            const first = b.claimFirst("work/", 60_000);
            if (upTo(3) === 0) b.remove("work/0").withClaim(first);
            break;
          }
          case 8: b.patch(own(), { s: one(texts) }).arg("schema_version", 2); break;
        }
      }
      return b;
    });
    const m = `msg_${(round * 7919).toString(16).padStart(12, "0")}x`, part = `part/${m}/p`;
    if (round % 3 === 0) batches[0]!.begin(m, { role: "assistant" });
    if (round % 3 === 0) batches[0]!.put(part, parts[(round / 3) % parts.length]!);
    const tickets = [await batches[0]!.commit(), await batches[1]!.commit()];
    await http.apply([{ method: "patch", args: { key: own(), patch: { http: round } } }, { method: "add", args: { key: own(), member: "n", by: 1 } }]);
    for (const ticket of tickets) await ticket.wait();
    if (round % 3 !== 0) continue;
    const value = (await session.get(part)).entries[0]?.payload ?? "{}", now = (JSON.parse(value) as { text?: unknown }).text;
    if (now === undefined || typeof now === "string") {
      lengths.set(part, Buffer.byteLength(now ?? ""));
      const b = session.batch();
      for (let n = 0; n < 3; n++) {
        const text = one(texts);
        b.appendText(part, lengths.get(part)!, text);
        lengths.set(part, lengths.get(part)! + Buffer.byteLength(text));
      }
      if (round % 2 === 0) b.finalize(m, one(["completed", "failed", "aborted"])).arg("usage", { n: 1 }).arg("parts", [{ id: "q", payload: { late: true } }]);
      (await (await b.commit()).wait()).check();
    }
  }
  // Two turns are open when the server is killed, and one of them goes on.
  const open = session.batch();
  for (const m of ["i", "j"]) open.begin(m, {});
  (await (await open.commit()).wait()).check();
  await server.restart();
  const resumed = session.batch();
  resumed.put("part/i/p", { text: "a" });
  (await (await resumed.commit()).wait()).check();
  const end = session.batch();
  end.put("secret/1", { a: 1 });
  const claimed = end.claim("secret/1", 60_000);
  end.put("kept", 1);
  end.claim("kept", 3_600_000, "w");
  end.patch("secret/1", { b: 2 }).withClaim(claimed);
  end.purge("secret/1");
  end.begin("k", {});
  end.finalize("k", "completed").arg("parts", [{ id: "a", payload: { a: 1 } }, { id: "b", payload: { b: 1 }, schema_version: 2 }]);
  end.purge("part/k/a");
  end.bumpEpoch();
  (await (await end.commit()).wait()).check();
  return { server, space, session, http };
}

for (const order of ["", "time"] as const) {
  test(`a state that is followed is the server's, in a session ordered by ${order || "its log"}`, { timeout: 60_000 }, async (t) => {
    const { server, space, session, http } = await story(t, order === "" ? {} : { order }, 30);
    const want = await session.snapshot(), to = want.cursor, log = [];
    for (let page; (page = await session.events(log.length)).events.length > 0; ) log.push(...page.events);
    const methods = new Set(log.map((e) => e.method));
    for (const m of ["put", "patch", "add", "remove", "claim", "release", "begin", "appendText", "finalize", "interrupted", "resumed", "purge"]) assert.ok(methods.has(m), `no ${m}`);
    assert.deepEqual(shown(await followed(session, to, empty(), order)), shown(want));
    const interrupted = log.filter((e) => e.method === "interrupted").at(-1)!.cursor;
    for (const at of [1, 2, Math.floor(to / 3), Math.floor(to / 2), interrupted]) {
      const then = await session.snapshot({ at });
      assert.deepEqual(shown(await followed(session, at, empty(), order)), shown(then), `at ${at}`);
      assert.deepEqual(shown(await followed(session, to, then, order)), shown(want), `from ${at}`);
    }
    const some = ["todo/1", "part/"], part = await session.snapshot({ keys: some });
    // A value's index in its event counts only what is shown.
    const inOrder = (s: State) => shown(s).entries.map((e) => ({ ...e, ord: e.ord[0] }));
    assert.deepEqual(inOrder(await followed(session, to, empty(), order, some)), inOrder(part));

    // The other wires have the same values and events.
    const byHTTP = await http.snapshot();
    const values = (of: Iterable<{ key: string; payload: unknown }>) => new Map([...of].map((e) => [e.key, e.payload]));
    assert.equal(byHTTP.cursor, to);
    assert.deepEqual(values(byHTTP.entries), values([...want.entries.values()].map((e) => ({ key: e.key, payload: JSON.parse(e.payload) as unknown }))));
    const api = (): any => newHttpBatchRpcSession(`http://127.0.0.1:${server.port}/rpc`);
    const page = (await api().restore(session.ref.text).events({ from: 0, limit: 1000, understands: ["keys"] })) as { events: SessionEvent[] };
    assert.deepEqual(page.events.map((e) => [e.key, e.payload]), log.slice(0, page.events.length).map((e) => [e.key, e.payload]));
    await assert.rejects(async () => { await api().restore(session.ref.text).events(0); }, /incompatible/);

    const fork = space.fork(session);
    fork.batch.patch("todo/1", { forked: true });
    (await (await fork.batch.commit()).wait()).check();
    const copy = await fork.session.snapshot();
    assert.deepEqual(shown(await followed(fork.session, copy.cursor)), shown(copy));

    const ids = [...copy.entries.values()].filter((e) => e.key.startsWith("message/")).sort((a, b) => Number(a.ord[0] - b.ord[0]) || a.ord[1] - b.ord[1]).map((e) => e.key.slice("message/".length));
    const branch = space.fork(session, { message: ids[0]! });
    (await (await branch.batch.commit()).wait()).check();
    const upTo = await branch.session.snapshot();
    assert.ok(ids.length > 1, "there are messages to leave out");
    assert.deepEqual([...upTo.entries.keys()].filter((k) => k.startsWith("message/")), [`message/${ids[0]}`]);
    assert.ok(upTo.entries.has("todo/1"));
    assert.deepEqual((await branch.session.describe()).session!.origin, { session: session.id, cursor: to, message: ids[0] });
    assert.equal((await session.describe()).session!.origin, undefined);
    const from = (await branch.session.describe()).session!.origin!, brought = space.create({ origin: from });
    (await (await brought.batch.commit()).wait()).check();
    assert.deepEqual((await brought.session.describe()).session!.origin, from);

    const child = space.create({ parent: session, part: `message/${ids[0]}` });
    (await (await child.batch.commit()).wait()).check();
    const children: unknown[] = [], under: unknown[] = [];
    for await (const c of session.children()) children.push([c.id, c.key, c.created > 0]);
    for await (const s of space.list({ parent: session.id })) under.push(s.id);
    assert.deepEqual([children, under], [[[child.session.id, `message/${ids[0]}`, true]], [child.session.id]]);
    assert.deepEqual((await child.session.describe()).session!.parent, { session: session.id, key: `message/${ids[0]}` });
    assert.equal((await session.describe()).session!.parent, undefined);

    // The server does not know the parent yet when the child's stream is opened.
    const other = await client(t), run = space.create();
    const sub = (await other.space(server.ref)).create({ parent: await other.session(run.session.ref) });
    const waiting = await sub.batch.commit(), there = await other.session(session.ref);
    for (let i = 0; i < 5; i++) await there.stat();
    (await (await run.batch.commit()).wait()).check();
    (await waiting.wait()).check();
    assert.equal((await sub.session.describe()).session!.parent!.session, run.session.id);

    const gone = session.batch();
    gone.delete();
    (await (await gone.commit()).wait()).check();
    fold(want, { ...log.at(-1)!, method: "delete", cursor: to + 1 }, order);
    assert.deepEqual([want.entries.size, want.turns.length, want.claims.size], [0, 0, 0]);
  });
}

test("what a revert hides is hidden from who follows, and shown again", { timeout: 60_000 }, async (t) => {
  for (const order of ["", "time"] as const) {
    const server = await TestServer.start(t), c = await client(t), { session, batch } = (await c.space(server.ref)).create(order === "" ? {} : { order });
    (await (await batch.commit()).wait()).check();
    const live = empty(), inBetween: State[] = [];
    const step = async (add: (b: ReturnType<Session["batch"]>) => void): Promise<State> => {
      const b = session.batch();
      add(b);
      (await (await b.commit()).wait()).check();
      const now = await session.snapshot();
      await followed(session, now.cursor, live, order);
      assert.deepEqual(shown(live), shown(now));
      assert.deepEqual(shown(await followed(session, now.cursor, empty(), order)), shown(await session.snapshot({ at: now.cursor })));
      for (const s of inBetween) {
        await followed(session, now.cursor, s, order);
        if (!s.stale) assert.deepEqual(shown(s), shown(now));
      }
      inBetween.push(now);
      return now;
    };
    await step((b) => {
      for (const [i, m] of ["a", "b", "c", "d"].entries()) {
        b.put(`message/${m}`, { time: { created: 1000 + i } });
        b.put(`part/${m}/1`, { text: m });
        b.put(`part/${m}/2`, { text: m });
      }
      b.put("todo/1", 7);
    });
    await step((b) => { b.begin("e", { time: { created: 2000 } }); b.put("part/e/1", { text: "e" }); b.put("part/a/9", {}); });
    let now = await step((b) => b.revert("message/c"));
    assert.deepEqual([...now.entries.keys()].sort(), ["message/a", "message/b", "part/a/1", "part/a/2", "part/a/9", "part/b/1", "part/b/2", "todo/1"]);
    assert.deepEqual((await session.describe()).session!.reverted, { to: "message/c", cursor: now.cursor, actor: "owner", at: (await session.describe()).session!.updated });
    await step((b) => { b.put("message/a", { time: { created: 1000 }, n: 2 }); b.put("todo/2", 1); });
    await step((b) => b.revert("message/d"));
    assert.equal(inBetween.at(-3)!.stale, true); // it was read while more was hidden
    const parts = await session.snapshot({ keys: ["part/d/"] });
    now = await step((b) => b.purge("message/d"));
    assert.ok(now.entries.has("part/d/1"), "what no message hides is shown");
    assert.equal(inBetween.at(-2)!.stale, true); // it was read while that was hidden
    await followed(session, now.cursor, parts, order, ["part/d/"]);
    assert.equal(parts.stale, true); // also of who reads but the parts
    await step((b) => b.unrevert());
    await step((b) => b.revert("part/b/2"));
    await step((b) => b.purge("part/b/2"));
    await step((b) => { b.unrevert(); b.revert("message/b"); });
    await step((b) => { b.put("message/f", { time: { created: 3000 } }); b.put("part/b/1", { text: "late" }); });
    await step((b) => { b.put("message/b", { time: { created: 1001 } }); b.put("part/b/3", {}); });
    now = await step((b) => { b.purge("message/c"); b.purge("message/b"); b.put("todo/3", 1); });
    assert.deepEqual([...now.entries.keys()].sort(), ["message/a", "message/f", "part/a/1", "part/a/2", "part/a/9", "part/b/1", "part/b/3", "part/d/1", "part/d/2", "todo/1", "todo/2", "todo/3"]);
    assert.equal((await session.describe()).session!.reverted, undefined);
    const after = session.batch(), [wrong, late] = [after.unrevert(), after.revertAfter(1)];
    const results = await (await after.commit()).wait(), said = (op: { opID: string }) => results.outcomes.find((o) => o.op === op.opID)!.reason;
    assert.deepEqual([said(wrong), said(late)], ["not_reverted", order === "" ? "none" : "bad_argument"]);
  }
});

const emptyView = (): State => ({ ...empty(), view: { compacted: undefined, leftOut: new Set() } });

/** A compacted view as values that compare. */
const shownView = (s: State) => ({
  ...shown(s), leftOut: [...s.view!.leftOut].sort(),
  mark: s.view!.compacted && [s.view!.compacted.upto, s.view!.compacted.ord, s.view!.compacted.summary, s.view!.compacted.place],
});

for (const order of ["", "time"] as const) {
  test(`a compacted view is followed, ordered by ${order || "the log"}`, { timeout: 60_000 }, async (t) => {
    const random = seeded(t), upTo = (n: number): number => Math.floor(random() * n);
    const server = await TestServer.start(t), c = await client(t), space = await c.space(server.ref), { session, batch } = space.create(order === "" ? {} : { order });
    (await (await batch.commit()).wait()).check();
    const live = emptyView();
    let inBetween: State[] = [], stale = 0;
    const step = async (add: (b: ReturnType<Session["batch"]>) => void): Promise<State> => {
      const b = session.batch();
      add(b);
      await (await b.commit()).wait();
      const now = await session.snapshot({ compacted: true });
      for (const s of [live, ...inBetween]) {
        if (s.cursor < now.cursor) await followed(session, now.cursor, s, order);
        if (s.stale) stale++;
        else assert.deepEqual(shownView(s), shownView(now));
      }
      if (live.stale) Object.assign(live, await session.snapshot({ compacted: true }), { stale: undefined, hidden: undefined });
      inBetween = [...inBetween.filter((s) => !s.stale), now].slice(-4);
      const listed: string[] = [];
      for await (const e of session.list({ compacted: true, order: "put" })) listed.push(e.key);
      assert.deepEqual(listed, [...now.entries.keys()]);
      return now;
    };
    await step((b) => {
      for (const [i, m] of ["a", "b", "s", "c"].entries()) {
        b.put(`message/${m}`, { time: { created: 1000 + i } });
        b.put(`part/${m}/1`, { text: m });
      }
      b.put("todo/1", 7);
    });
    const now = await step((b) => b.compact("message/b", "message/s"));
    assert.equal(live.stale, undefined);
    assert.deepEqual([...now.entries.keys()].sort(), ["message/c", "message/s", "part/c/1", "part/s/1", "todo/1"]);
    const { compacted } = (await session.describe()).session!;
    assert.deepEqual([compacted!.upto, compacted!.summary, compacted!.actor, compacted!.cursor], ["message/b", "message/s", "owner", now.cursor]);
    await step((b) => { b.put("part/a/2", { late: true }); b.put("message/a", { time: { created: 1000 }, n: 2 }); b.put("message/d", { time: { created: 2000 } }); b.put("message/0", { time: { created: 1 } }); });
    await step((b) => { b.revert("message/d"); b.unrevert(); });
    assert.equal(live.stale, undefined);
    const { session: fork, batch: forking } = space.fork(session);
    (await (await forking.commit()).wait()).check();
    const copy = await fork.snapshot({ compacted: true });
    assert.deepEqual(shownView(await followed(fork, copy.cursor, emptyView())), shownView(copy));
    assert.deepEqual([...copy.view!.leftOut].sort(), order === "" ? ["a", "b"] : ["0", "a", "b"]);
    await step((b) => b.revert("message/b"));
    await step((b) => b.unrevert());
    for (let i = 0; i < 40; i++) {
      await step((b) => {
        for (let n = 0; n <= upTo(3); n++) {
          const [m, o] = ["abscd0"[upTo(6)]!, "abscd0"[upTo(6)]!], value = { time: { created: 1000 + upTo(6) }, i };
          [
            () => b.put(`message/${m}`, value), () => b.put(`part/${m}/${upTo(2)}`, value), () => b.remove(`message/${m}`), () => b.purge(`message/${m}`), () => b.compact(`message/${m}`, `message/${o}`),
            () => b.compact(`message/${m}`, `message/${m}`), () => b.revert(`message/${m}`), () => b.unrevert(), () => b.begin(m, value), () => b.finalize(m, "completed"), () => b.remove(`part/${m}/1`),
          ][upTo(11)]!();
        }
      });
    }
    assert.ok(stale > 0);
  });
}

test("two clients that change one value see what both did", { timeout: 60_000 }, async (t) => {
  const server = await TestServer.start(t), a = await client(t), { session, batch } = (await a.space(server.ref)).create();
  batch.put("todo/1", { n: 0 });
  const { ref } = batch.share({ rights: ["read", "append"] });
  (await (await batch.commit()).wait()).check();
  const other = await (await client(t)).session(ref), both = [session, other], each = 20;
  const watching = both.map((by) => followed(by, 2 + 2 * 2 * each + 1)); // 2 ops of each batch, by both
  await Promise.all(both.map(async (by, who) => {
    const tickets = [];
    for (let i = 0; i < each; i++) {
      const b = by.batch();
      b.patch("todo/1", { [`by${who}`]: i });
      b.add("todo/1", "n", 1);
      tickets.push(await b.commit());
    }
    for (const ticket of tickets) (await ticket.wait()).check();
  }));
  const last = await session.snapshot(), value = JSON.parse(last.entries.get("todo/1")!.payload) as Record<string, number>;
  assert.deepEqual([value["n"], value["by0"], value["by1"]], [2 * each, each - 1, each - 1]);
  for (const state of await Promise.all(watching)) assert.deepEqual(shown(state), shown(last));
});

test("a value whose base a ref does not show is left out until it is put whole, and marks only move the cursor", () => {
  const state = empty();
  const event = (cursor: number, method: string, key: string, payload: string, more: Partial<SessionEvent> = {}): SessionEvent => ({
    cursor, method, key, payload, schema: 1, ref: "", actor: "", op: "", batch: "", at: 0, outbox: "", purged: false, hidden: false,
    hash: createHash("sha256").update(String(cursor)).digest(), ...more,
  });
  fold(state, event(5, "", "", "", { hidden: true }));
  fold(state, event(6, "patch", "todo/1", '{"a":1}'));
  fold(state, event(7, "add", "todo/1", '{"member":"n","by":1}'));
  assert.deepEqual([state.cursor, state.entries.size], [7, 0]);
  fold(state, event(8, "put", "todo/1", '{"a":0}', { schema: 3 }));
  fold(state, event(8, "put", "todo/1", '"a repeat"'));
  fold(state, event(9, "patch", "todo/1", '{"a":1}', { schema: 4 }));
  assert.deepEqual(shown(state).entries, [{ name: "todo/1", key: "todo/1", cursor: 9, schema: 4, payload: '{"a":1}', ord: [8, 0] }]);
  fold(state, event(10, "patch", "todo/1", "", { purged: true }));
  fold(state, event(11, "shine", "sun/1", "{}"));
  fold(state, event(12, "put", "todo/1", "1"));
  fold(state, event(13, "purge", "todo/1", ""));
  assert.deepEqual([state.cursor, state.entries.size], [13, 0]);
  fold(state, event(14, "claim", "todo/2", '{"lease":1000,"until":5}', { outbox: "obx", ref: "r", actor: "ann" }));
  assert.deepEqual([...state.claims], [["todo/2", { cursor: 14, until: 5, outbox: "obx", worker: "", ref: "r", actor: "ann" }]]); // its value is hidden
  fold(state, event(15, "claim", "todo/2", '{"claim":14,"lease":1000,"until":9,"worker":"w"}', { outbox: "obx" }));
  assert.deepEqual([state.claims.get("todo/2")!.cursor, state.claims.get("todo/2")!.until, state.claims.get("todo/2")!.worker], [14, 9, "w"]);
  for (const method of ["release", "lapse", "remove", "purge", "delete"]) {
    const claimed = { ...state, claims: new Map(state.claims), entries: new Map(state.entries) };
    fold(claimed, event(16, method, "todo/2", ""));
    assert.equal(claimed.claims.size, 0, method);
  }
});

test("a large session is forked in pieces, with what its batch has besides", async (t) => {
  const server = await TestServer.start(t), space = await (await client(t)).space(server.ref), { session, batch } = space.create();
  (await (await batch.commit()).wait()).check();
  for (let i = 0; i < 10; i++) {
    const more = session.batch();
    more.put(`message/m${i}`, { text: "x".repeat(1 << 20) });
    (await (await more.commit()).wait()).check();
  }
  const fork = space.fork(session);
  fork.batch.put("message/last", {});
  (await (await fork.batch.commit()).wait()).check();
  const { session: info } = await fork.session.describe();
  assert.deepEqual([info!.origin, info!.cursor, info!.base], [{ session: session.id, cursor: 11, message: "" }, 13, 12]);
  const keys: string[] = [];
  for await (const e of fork.session.list({ prefix: "message/", order: "put" })) keys.push(e.key);
  assert.deepEqual(keys, [...Array(10).keys()].map((i) => `message/m${i}`).concat("message/last"));
});
