// Searching a session's state for words against a real server, and through links on which it is of another version or still makes its index.

import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { type Client, type Found, open, type OpenOptions, type Session } from "../src/index.js";
import { folder, Rewriting, TestServer } from "./rig.js";

async function client(t: TestContext, options: Partial<OpenOptions> = {}): Promise<Client> {
  const c = await open({ home: await folder(t, "home"), reconnect: { initial: 10, max: 100 }, outbox: { backoff: { initial: 10, max: 100 } }, ...options });
  t.after(() => c.close());
  return c;
}

async function all(session: Session, query: string): Promise<Found[]> {
  const found = [];
  for await (const e of session.search(query)) found.push(e);
  return found;
}

const keys = async (session: Session, query: string): Promise<string[]> => (await all(session, query)).map((e) => e.key);

test("a search finds the values that have all words, page by page, as far as the ref shows them", async (t) => {
  const server = await TestServer.start(t), c = await client(t);
  const { session, batch } = (await c.space(server.ref)).create({ external: "searched" });
  batch.put("session", { title: "Login Fails" });
  batch.put("message/m", { role: "user", note: "login" });
  batch.put("part/m/p", { type: "text", text: "the LOGIN of a user_name fails" });
  for (let n = 0; n < 120; n++) batch.put(`todo/${n}`, { text: `a login, number n${n}`, tries: n });
  const reader = batch.share({ rights: ["read"], readKeys: ["todo/1", "session"] });
  (await (await batch.commit()).wait()).check();
  const state = await session.snapshot();

  const hits = await all(session, "login fails");
  assert.deepEqual(hits.map((e) => [e.key, e.place, e.excerpt]), [
    ["part/m/p", "/text", ["the ", "LOGIN", " of a user_name ", "fails", ""]], ["session", "/title", ["", "Login", " ", "Fails", ""]],
  ]);
  const part = state.entries.get("part/m/p")!, { place: _, excerpt: __, at, ...info } = hits[0]!;
  assert.deepEqual(info, { key: part.key, cursor: part.cursor, schema: part.schema, payload: "", ord: part.ord, bytes: part.payload.length, ref: session.ref.id, actor: "owner" });
  assert.ok(at > 0);
  assert.deepEqual(await keys(session, '"user name"'), ["part/m/p"]);
  assert.deepEqual(await keys(session, "nowhere"), []);
  const logins = await keys(session, "login");
  assert.deepEqual([logins.length, new Set(logins).size, logins[0], logins.at(-1)], [123, 123, "todo/119", "session"]);

  const first = await session.searchPage("login", { limit: 2 }), second = await session.searchPage("login", { limit: 2, after: first.next });
  assert.deepEqual([first, second].map((p) => [p.found.map((e) => e.key), p.cursor, p.indexing]), [[["todo/119", "todo/118"], state.cursor, false], [["todo/117", "todo/116"], state.cursor, false]]);
  const most = await session.searchPage("login");
  assert.deepEqual([most.found.length, most.next !== "", (await session.searchPage("fails")).next], [20, true, ""]);

  const shared = await c.session(reader.ref);
  assert.deepEqual(await keys(shared, "login"), ["todo/1", "session"]);
  assert.deepEqual(await keys(shared, "user"), []);

  for (const wrong of ["", "…!", '""', "a ".repeat(501), Array.from({ length: 65 }, (_, n) => `w${n}`).join(" ")]) {
    await assert.rejects(session.searchPage(wrong), { codeName: "bad_argument" }, wrong);
    await assert.rejects(all(session, wrong), { codeName: "bad_argument" }, wrong);
  }
  await assert.rejects(session.searchPage("login", { limit: 101 }), { codeName: "bad_argument" });
  await assert.rejects(session.searchPage("login", { after: "~" }), { codeName: "bad_argument" });
  (await (await session.put("todo/1", { text: "done" })).wait()).check();
  assert.deepEqual(await keys(shared, "login"), ["session"]);
  await session.revoke(reader.ref);
  await assert.rejects(all(shared, "login"), { codeName: "revoked" });
});

test("a search finds text while it streams, and not what is purged", async (t) => {
  const server = await TestServer.start(t), c = await client(t);
  const { session, batch } = (await c.space(server.ref)).create();
  batch.begin("m", { role: "assistant" });
  batch.put("part/m/p", { type: "text", text: "" });
  (await (await batch.commit()).wait()).check();
  let length = 0;
  for (const word of ["lighthouse", "harbour", "東京"]) {
    const b = session.batch(), text = `the ${word} `;
    b.appendText("part/m/p", length, text);
    length += Buffer.byteLength(text);
    (await (await b.commit()).wait()).check();
    assert.deepEqual(await keys(session, `lighthouse ${word}`), ["part/m/p"]);
  }
  const purge = session.batch();
  purge.purge("part/m/p");
  (await (await purge.commit()).wait()).check();
  assert.deepEqual(await keys(session, "lighthouse"), []);
});

test("a search waits for the index and for servers that have it in use", async (t) => {
  const server = await TestServer.start(t), link = await Rewriting.start(t, server), c = await client(t);
  const { session, batch } = (await c.space(server.ref)).create();
  batch.put("todo/1", { text: "login" });
  (await (await batch.commit()).wait()).check();
  const hasty = await (await client(t, { patience: 0 })).session(link.ref(session.ref));
  const patient = await (c).session(link.ref(session.ref));
  const searches = (): number => link.sent.filter((m) => m.includes('"search"')).length;

  let times = 2;
  link.toClient = (m) => (m.includes('"indexing":false') && times-- > 0 ? m.replace('"indexing":false', '"indexing":true') : m);
  assert.deepEqual([await keys(hasty, "login"), searches()], [["todo/1"], 3]); // once each
  times = 1;
  const page = await hasty.searchPage("login");
  assert.deepEqual([page.indexing, page.found.length], [true, 1]);

  const refused = link.toServer = (m) => m.replace('"login"', '"!"'); // which a server refuses, as of another version as another refusal
  link.toClient = (m) => m.replaceAll("bad_argument", "unsupported");
  await assert.rejects(all(hasty, "login"), { codeName: "unsupported" });
  await assert.rejects(hasty.searchPage("login"), { codeName: "unsupported" });
  const before = searches();
  link.toServer = (m) => (searches() < before + 2 ? refused(m) : m);
  assert.deepEqual([await keys(patient, "login"), searches()], [["todo/1"], before + 3]);

  link.toServer = (m) => m.replace('"search"', '"find"');
  await assert.rejects(all(hasty, "login"), { codeName: "incompatible" });
});
