// A ref that reaches the sessions below its own.

import assert from "node:assert/strict";
import { test } from "node:test";
import { open, type Session } from "../src/index.js";
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

test("a child that was opened follows over a reconnect, and ends with its owner's next epoch, or its parent's, also one that came meanwhile", { timeout: 60_000 }, async (t) => {
  const server = await TestServer.start(t), agent = await open({ home: await folder(t, "agent"), reconnect: { initial: 20, max: 200 } });
  const guest = await open({ home: await folder(t, "guest"), reconnect: { initial: 20, max: 200 } });
  for (const c of [agent, guest]) t.after(() => c.close());
  const space = await agent.space(server.ref);
  const born = async (parent?: Session) => {
    const { session, batch } = space.create(parent && { parent });
    (await (await batch.commit()).wait()).check();
    return session;
  };
  const above = await born(), one = await born(above), other = await born(above);
  const { ref, ticket } = await above.share({ rights: ["read", "append"], children: ["read", "append"] });
  (await ticket.wait()).check();
  const reached = await guest.session(ref), ends: Promise<void>[] = [], seen: string[] = [];
  for (const child of [one, other].map((s) => reached.open(s.id))) {
    (await (await child.put("message/m1", { role: "user" })).wait()).check();
    ends.push(assert.rejects(child.subscribe({}, (e) => { seen.push(`${child.id} ${e.key}`); }), { codeName: "stale_epoch" }));
  }
  await server.restart();
  for (const child of [one, other]) (await (await child.put("message/m2", { role: "user" })).wait()).check();
  while (![one, other].every((s) => seen.includes(`${s.id} message/m2`))) await new Promise((resolve) => setTimeout(resolve, 20));
  await one.bumpEpoch();
  await ends[0];
  const late = await (await reached.open(one.id).put("message/m3", { role: "user" })).wait();
  assert.equal(late.outcomes[0]!.reason, "stale_epoch");
  await assert.rejects(reached.open(one.id).snapshot(), { codeName: "stale_epoch" });
  (await (await reached.open(other.id).put("message/m3", { role: "user" })).wait()).check();

  // The epoch comes while the guest has no connection, and its op waits.
  await server.kill();
  const waiting = await reached.open(other.id).put("message/m4", { role: "user" });
  await server.restart();
  await above.bumpEpoch();
  await ends[1];
  const outcome = (await waiting.wait()).outcomes[0]!; // it came before the epoch, or was denied after it
  assert.ok(outcome.status === "applied" || outcome.reason === "stale_epoch", outcome.reason);
  await assert.rejects(reached.open(other.id).snapshot(), { codeName: "stale_epoch" });
  assert.equal((await logOf(other)).at(-1)!.method, "revoke");
});
