// The right manage: a session that another made, under a ref of its space.

import assert from "node:assert/strict";
import { test } from "node:test";
import { open } from "../src/index.js";
import { folder, logOf, TestServer } from "./rig.js";

test("a space's owner acts in a session that another made, and takes it over", { timeout: 60_000 }, async (t) => {
  const server = await TestServer.start(t), agent = await open({ home: await folder(t, "agent") }), home = await folder(t, "owner");
  t.after(() => agent.close());
  const made = (await agent.space(server.ref)).create();
  (await (await made.batch.commit()).wait()).check();
  const first = await open({ home, offline: true }), managed = (await first.space(server.ref)).open(made.session.id);
  const { batch } = await managed.put("message/m1", { role: "user" });
  await first.close(); // a later process sends it

  const c = await open({ home });
  t.after(() => c.close());
  (await c.ticket(batch).wait()).check();
  const space = await c.space(server.ref), session = space.open(made.session.id);
  assert.equal(session.id, made.session.id);
  const put = (await logOf(session)).find((e) => e.key === "message/m1")!;
  assert.equal(put.ref, server.ref.id);
  const { grant } = await session.describe();
  assert.deepEqual([grant.id, grant.owner], [server.ref.id, true]);
  const shared = await session.share({ rights: ["read"] });
  (await shared.ticket.wait()).check();
  assert.equal((await (await c.session(shared.ref)).describe()).grant.dead, "none");
  const refs = [];
  for await (const r of session.refs()) refs.push(r.grant.id);
  assert.deepEqual(refs, [made.session.ref.id, shared.ref.id]);
  (await session.verify()).check();
  assert.deepEqual((await session.verifyAudit()).findings, []);
  await assert.rejects(session.revoke(made.session.ref), { codeName: "not_an_owner" });
  await assert.rejects(session.rotate(), { codeName: "not_an_owner" });
  await assert.rejects(made.session.takeOver(), { codeName: "not_an_owner" });
  const { session: mine, cut } = await session.takeOver();
  assert.ok(cut > 0);
  assert.equal((await made.session.describe()).grant.dead, "revoked");
  await session.revokeOwner(mine.ref);
  assert.equal((await mine.describe()).grant.dead, "revoked");
  assert.throws(() => space.fork(session), { codeName: "bad_argument" }); // the server would refuse it for good
  assert.throws(() => space.create({ parent: session }), { codeName: "bad_argument" });
  assert.throws(() => space.open("issue-17"), { codeName: "bad_argument" });
});
