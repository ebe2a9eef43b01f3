// A ref that reaches the sessions below its own.

import assert from "node:assert/strict";
import { test } from "node:test";
import { open } from "../src/index.js";
import { folder, logOf, TestServer } from "./rig.js";

test("a ref with children opens the sessions below, those that are there and those that come, until it ends in all of them", { timeout: 60_000 }, async (t) => {
  const server = await TestServer.start(t), agent = await open({ home: await folder(t, "agent") }), home = await folder(t, "guest");
  t.after(() => agent.close());
  const space = await agent.space(server.ref), made = space.create();
  (await (await made.batch.commit()).wait()).check();
  const born = async (parent = made.session) => {
    const child = space.create({ parent });
    (await (await child.batch.commit()).wait()).check();
    return child.session;
  };
  const before = await born();
  const shared = await made.session.share({ rights: ["read", "append"], children: ["read", "append"] });
  (await shared.ticket.wait()).check();
  const after = await born(before);

  const first = await open({ home, offline: true });
  const { batch } = await (await first.session(shared.ref)).open(before.id).put("message/m1", { role: "user" });
  await first.close(); // a later process sends it
  const c = await open({ home });
  t.after(() => c.close());
  (await c.ticket(batch).wait()).check();
  const reached = await c.session(shared.ref), child = reached.open(before.id), below = reached.open(after.id);
  assert.equal(child.id, before.id);
  assert.equal((await logOf(child)).find((e) => e.key === "message/m1")!.ref, shared.ref.id);
  assert.deepEqual((await child.describe()).grant.rights, ["read", "append"]);
  assert.deepEqual((await reached.describe()).grant.children, ["read", "append"]);
  assert.equal((await child.open(after.id).describe()).session!.id, after.id);
  await assert.rejects(reached.open(made.session.id).snapshot(), { codeName: "not_found" });
  await assert.rejects(child.rotate(), { codeName: "not_an_owner" });
  await assert.rejects(child.takeOver(), { codeName: "not_an_owner" });
  assert.throws(() => reached.open("issue-17"), { codeName: "bad_argument" });
  await assert.rejects(made.session.share({ rights: ["read"], children: ["append"] }), { codeName: "bad_argument" });
  await assert.rejects(made.session.share({ rights: ["read"], children: ["read"], message: "m1" }), { codeName: "bad_argument" });

  const live = await reached.attenuate({ rights: ["read"] });
  live.release();
  const ended = assert.rejects(below.subscribe({}, () => {}), { codeName: "revoked" });
  const cut = await made.session.revoke(shared.ref);
  assert.deepEqual([cut.childCount, cut.children.map((c) => c.session).sort()], [2, [before.id, after.id].sort()]);
  await ended;
  await assert.rejects(child.snapshot(), { codeName: "revoked" });
  const { batch: late } = await child.put("message/m2", { role: "user" });
  assert.equal((await c.ticket(late).wait()).outcomes[0]!.reason, "revoked");
  for (const one of [before, after]) {
    const last = (await logOf(one)).at(-1)!;
    assert.deepEqual([last.method, last.key, last.cursor], ["revoke", `ref/${shared.ref.id}`, cut.children.find((c) => c.session === one.id)!.cursor]);
  }
});
