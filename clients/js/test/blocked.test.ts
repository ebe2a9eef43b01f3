// Batches that need ops of several sessions, one of which cannot go on.

import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { fault } from "../src/fault.js";
import { JournalStore } from "../src/journal.js";
import { Outbox } from "../src/outbox.js";
import { type Committed, type Op, Standstill } from "../src/outbox_types.js";
import { Ref } from "../src/ref.js";
import { newULID } from "../src/ulid.js";
import { LedgerServer } from "./ledger.js";
import { folder } from "./rig.js";

const base = Ref.parse(`mooring://localhost/spc_01M7XHZXQMGNPZVGCRHFRZXZNW.ocapurnajy5xoc62kp6aymbx4ee#${"A".repeat(43)}`);

/** An outbox with three sessions: one that cannot go on, one whose stream is not opened before admit is called, and one more. */
async function scene(t: TestContext) {
  const box = await Outbox.open(await JournalStore.open(await folder(t)));
  t.after(() => box.close());
  const refs = [0, 1, 2].map(() => base.for(`ses_${newULID()}`));
  for (const r of refs) await box.putRef(r);
  const [stuck, late, mine] = refs.map((r) => r.target) as [string, string, string];
  const server = new LedgerServer({ open: () => undefined, before: () => undefined, after: () => false, delay: () => 0 });
  let admit!: () => void;
  const admitted = new Promise<void>((resolve) => { admit = resolve; });
  const run = (): void => box.run({
    openStream: async (req) => {
      if (req.session === stuck) throw fault("server_behind", "told to");
      if (req.session === late) await admitted;
      return server.openStream(req);
    },
  });
  return { box, stuck, late, mine, run, admit };
}

const put = (...on: Committed[]): Op => ({ method: "put", args: [], dependsOn: on.flatMap((c) => c.ops) });

test("any op that a batch needs decides it, also while another's stream stands still", { timeout: 10_000 }, async (t) => {
  const { box, stuck, late, mine, run, admit } = await scene(t);
  const x = await box.commit({ session: stuck, ops: [put()] });
  const y = await box.commit({ session: late, ops: [{ method: "reject", args: [] }] });
  const z = await box.commit({ session: mine, ops: [put(x, y)] });
  run(); // looks at all three together: when x stands still, z waits
  await assert.rejects(box.wait(x.batch), Standstill);
  assert.deepEqual(box.list({ batch: z.batch }).map((r) => [r.state, r.seq]), [["pending", 0]]);
  const told = box.wait(z.batch);
  admit();
  assert.deepEqual((await told).map((o) => [o.status, o.cause]), [["skipped", y.ops[0]]]);
});

for (const [what, atomic, want] of [
  ["an op that is skipped needs nothing any more", false, ["skipped", "applied"]],
  ["a batch that is decided needs nothing any more", true, ["batch_aborted", "batch_aborted"]],
] as const) {
  test(what, { timeout: 10_000 }, async (t) => {
    const { box, stuck, late, run, admit } = await scene(t);
    const x = await box.commit({ session: stuck, ops: [put()] });
    const y = await box.commit({ session: late, ops: [put()] });
    const z = await box.commit({ session: late, atomic, ops: atomic ? [put(x), put(y)] : [put(x, y), put()] });
    run();
    await assert.rejects(box.wait(x.batch), Standstill);
    await box.drop(y.ops[0]!);
    const told = box.wait(z.batch);
    admit();
    assert.deepEqual((await told).map((o) => o.status), want);
  });
}

test("what follows a create that is skipped in its turn is sent by the way it was to be made", { timeout: 10_000 }, async (t) => {
  const { box, late, admit } = await scene(t);
  const space = await box.putRef(base), owner = base.for(`ses_${newULID()}`);
  await box.putRef(owner, { role: "owner" });
  const bad = await box.commit({ session: late, ops: [{ method: "reject", args: [] }] });
  const create = await box.commit({
    session: owner.target, via: space.id, ops: [{ method: "create", args: [{ name: "ref", json: JSON.stringify(owner.id) }], dependsOn: bad.ops }],
  });
  const after = await box.commit({ session: owner.target, ops: [put()] });
  const asked: [string, string | undefined][] = [];
  const server = new LedgerServer({ open: () => undefined, before: () => undefined, after: () => false, delay: () => 0 });
  box.run({
    openStream: async (req) => {
      if (req.session === owner.target) asked.push([req.ownerRef, req.space?.ref.id]);
      return server.openStream(req);
    },
  });
  admit();
  assert.deepEqual((await box.wait(create.batch)).map((o) => o.status), ["skipped"]);
  await box.wait(after.batch);
  assert.deepEqual(asked, [[owner.id, space.id]]);
});

for (const [what, times, want] of [["is late to see", 2, "applied"], ["has forgotten", Infinity, "server_behind"]] as const) {
  test(`a server ${what} a session that it has made`, { timeout: 10_000 }, async (t) => {
    let left = 0;
    const server = new LedgerServer({
      open: () => undefined, before: () => (left-- > 0 ? fault("not_yet_known", "told to") : undefined), after: () => false, delay: () => 0,
    });
    const box = await Outbox.open(await JournalStore.open(await folder(t)));
    t.after(() => box.close());
    const owner = base.for(`ses_${newULID()}`);
    await box.putRef(owner, { role: "owner" });
    box.run(server);
    await box.wait((await box.commit({ session: owner.target, ops: [put()] })).batch);
    left = times;
    const told = box.wait((await box.commit({ session: owner.target, ops: [put()] })).batch);
    const came = await told.then((o) => o[0]!.status, (err: Standstill) => err.codeName);
    assert.equal(came, want);
  });
}
