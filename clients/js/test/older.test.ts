// Old sessions of a space.

import assert from "node:assert/strict";
import { test } from "node:test";
import { open, type OldPage, type Space } from "../src/index.js";
import { folder, TestServer } from "./rig.js";

async function pages(space: Space, options: Parameters<Space["removeOlder"]>[0]): Promise<OldPage[]> {
  const all = [];
  for await (const page of space.removeOlder(options)) all.push(page);
  return all;
}

test("a space's old sessions are listed, purged and deleted", { timeout: 60_000 }, async (t) => {
  const server = await TestServer.start(t), agent = await open({ home: await folder(t, "agent") });
  t.after(() => agent.close());
  const theirs = await agent.space(server.ref), ids: string[] = [];
  const make = async (key: string) => {
    const { session, batch } = theirs.create();
    batch.put(key, { text: "x" });
    (await (await batch.commit()).wait()).check();
    return session;
  };
  for (let i = 0; i < 3; i++) ids.push((await make(i === 0 ? "env/secret" : "message/m")).id);
  const last = (await (await agent.session((await make("message/m")).ref)).describe()).session!;
  const before = last.updated; // the clock of the database, after the others or with them
  const c = await open({ home: await folder(t, "owner") });
  t.after(() => c.close());
  const space = await c.space(server.ref);

  const listed = await pages(space, { before, limit: 2 });
  const old = listed.flatMap((p) => p.sessions);
  for (const s of old) assert.ok(ids.includes(s.id) && s.updated < before && s.events === 2 && s.bytes > 0 && !s.error);
  assert.ok(listed.every((p) => p.before === before && p.done === 0));
  const purged = await pages(space, { remove: "purge", key: "env/secret", before });
  const sum = (all: OldPage[], of: "done" | "unchanged") => all.reduce((n, p) => n + p[of], 0);
  assert.equal(sum(purged, "done") + sum(purged, "unchanged"), old.length);
  const rest = old.length - sum(purged, "done"); // what was purged has changed now
  assert.equal(sum(await pages(space, { remove: "delete", before }), "done"), rest);
  assert.deepEqual(await pages(space, { remove: "delete", before }), [{ before, done: 0, unchanged: 0, sessions: [], next: "" }]);
  const left = [];
  for await (const s of space.list()) left.push(s.id);
  assert.equal(left.length, 4 - rest);
  assert.ok(left.includes(last.id));

  const maker = await space.share({ rights: ["create", "list"] });
  await assert.rejects(pages(await agent.space(maker), { remove: "delete", before }), { codeName: "missing_right" });
  await assert.rejects(pages(space, { remove: "delete" }), { codeName: "bad_argument" });
  await assert.rejects(pages(space, { remove: "purge", age: 1000 }), { codeName: "bad_argument" });
});
