// The arguments of ops are in the storage alone: memory stays small, and what is read is what was written, wherever it is by then.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import * as fs from "node:fs/promises";
import * as path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Arg } from "../src/intent.js";
import { crc32, JournalStore, line } from "../src/journal.js";
import { Outbox } from "../src/outbox.js";
import { Ref } from "../src/ref.js";
import { type BatchRow, isWhole } from "../src/rows.js";
import type { Change, Plan } from "../src/store.js";
import { batchOf, isULID, newBatchID, newULID, opID, ownID } from "../src/ulid.js";
import { full } from "./full.js";
import { LedgerServer } from "./ledger.js";
import { repo } from "./paths.js";
import { folder } from "./rig.js";
import { seeded } from "./seed.js";

const unsent = full(20_000, 100_000), most = unsent * 600 / 1e6; // MB
for (const [batch, bytes] of [[1, 1000], [10, 100]] as const) {
  test(`${unsent} unsent ops of ${bytes} bytes in batches of ${batch} take at most ${most} MB of memory`, { timeout: 300_000 }, async (t) => {
    const child = fileURLToPath(new URL("./unsent.js", import.meta.url)), home = await folder(t, "home");
    const { stdout } = await promisify(execFile)(process.execPath, ["--expose-gc", child, home, String(unsent), String(batch), String(bytes)]);
    const said = JSON.parse(stdout) as { pending: number; committed: number; reopened: number };
    t.diagnostic(stdout.trim());
    assert.equal(said.pending, unsent);
    assert.ok(said.committed <= most && said.reopened <= most, stdout);
  });
}

const put = (v: BatchRow): Change => ({ t: "batch", k: v.id, v });
const plan = (...changes: Change[]) => (): Plan<undefined> => ({ changes, value: undefined });

const row = (n: number): BatchRow => ({
  num: n, id: `B${n}`, session: "S", via: "", atomic: false, created: 1, bytes: 10, state: "pending", first: 0, attempts: 0, nextRetryAt: 0, lastError: "", finishedAt: 0,
  outcomes: null, dropping: false, ops: [{ id: `O${n}`, method: "put", args: [{ name: "a", json: `"${n}"` }] }],
});

/** All batches with their arguments. */
const all = (s: JournalStore): Promise<BatchRow[]> => s.look((t) => t.whole([...t.batches.values()]));

test("what is read is what was written, after any writes, new files and openings", async (t) => {
  const random = seeded(t), pick = (n: number): number => Math.floor(random() * n), home = await folder(t, "home");
  const model = new Map<string, BatchRow>();
  let num = 0;
  const args = (): Arg[] => Array.from({ length: pick(3) }, (_, i): Arg => (pick(4) === 0 ? { name: `r${i}`, ref: { op: newULID(), path: "ü" } } : { name: `a${i}`, json: `{"ops":["${"ß".repeat(pick(60))}"]}` }));
  const make = (id: string): BatchRow => ({
    ...row(++num), id, session: `S${pick(3)}`,
    ops: Array.from({ length: 1 + pick(3) }, (_, i) => ({ id: pick(4) === 0 ? newULID() : opID(id, i), method: "put", args: args(), ...(pick(5) === 0 && { dropAsked: true }) })),
  });
  let store = await JournalStore.open(home, { compactFrom: 3000 });
  for (let step = 0; step < full(150, 400); step++) {
    const some = [...model.keys()], changes: Change[] = [];
    for (let i = 0; i <= pick(4); i++) {
      const k = some[pick(some.length)];
      if (k === undefined || pick(3) === 0) changes.push(put(make(pick(3) === 0 ? newULID() : newBatchID())));
      else if (pick(3) === 0 && some.length > 5) changes.push({ t: "batch", k, v: null });
      else if (pick(2) === 0) changes.push({ t: "batch", k, p: { ops: make(k).ops } });
      else changes.push({ t: "batch", k, p: { attempts: step } });
    }
    const kept = changes.filter((c, i) => !changes.slice(0, i).some((b) => b.k === c.k)); // one change of a row
    for (const c of kept) {
      if ("p" in c) model.set(c.k, { ...model.get(c.k)!, ...(c.p as Partial<BatchRow>) });
      else if (c.v) model.set(c.k, c.v as BatchRow);
      else model.delete(c.k);
    }
    // What is read with a write, before it or after, is read once that is done, wherever it has put the rows.
    const [, , now] = await Promise.all([all(store), Promise.all(kept.map((c) => store.update(plan(c)))), all(store)]);
    assert.deepEqual(new Map(now.map((r) => [r.id, r])), model, `step ${step}`);
    assert.ok([...store.tables.batches.values()].every((r) => !isWhole(r)));
    if (pick(20) > 0) continue;
    await store.close();
    store = await JournalStore.open(home, { compactFrom: 3000 });
  }
  assert.ok((await fs.stat(path.join(home, "outbox.journal"))).size < 200_000);
  await store.close();
});

test("what fails while a journal is written anew leaves every place as it was", async (t) => {
  const home = await folder(t, "home"), h = await fs.open(fileURLToPath(import.meta.url)), proto = Object.getPrototypeOf(h) as fs.FileHandle;
  await h.close();
  const want = new Map<string, BatchRow>(), rows = async (s: JournalStore): Promise<unknown> => new Map((await all(s)).map((r) => [r.id, r]));
  let store = await JournalStore.open(home);
  for (let n = 0; n < 300; n++) want.set(row(n).id, row(n));
  await store.update(plan(...[...want.values()].map(put)));
  for (let nth = 0, failed = true; failed; nth++) {
    await store.close();
    store = await JournalStore.open(home, { compactFrom: 1 });
    assert.deepEqual(await rows(store), want, `opened after call ${nth} had failed`);
    failed = false;
    let begun = false, calls = 0;
    const { appendFile, sync } = proto, fail = (): void => {
      if (calls++ < nth) return;
      failed = true;
      throw Object.assign(new Error("full"), { code: "ENOSPC" });
    };
    proto.appendFile = function (...args) {
      begun ||= String(args[0]).includes("mooring outbox journal");
      if (begun && !failed) fail();
      return appendFile.apply(this, args);
    };
    proto.sync = function () {
      if (begun && !failed) fail();
      return sync.apply(this);
    };
    for (let n = 0; !begun; n++) {
      const r = { ...row(0), lastError: `${nth} ${n} ${"x".repeat(2000)}` };
      want.set(r.id, r);
      await store.update(plan(put(r)));
    }
    Object.assign(proto, { appendFile, sync });
    if (failed && calls < 5) assert.deepEqual(await rows(store), want, `call ${nth}`); // the fifth is that of the folder, after which nothing is sure
    else assert.ok(calls >= 5, `${calls}`);
  }
  await store.close();
});

test("an outbox that the version before has written is sent as it is", async (t) => {
  const home = await folder(t, "home");
  await fs.copyFile(repo("clients/js/test/earlier.journal"), path.join(home, "outbox.journal"));
  const store = await JournalStore.open(home), box = await Outbox.open(store);
  t.after(() => box.close());
  assert.ok([...store.tables.batches.values()].every((r) => !isWhole(r)));
  assert.deepEqual(box.list().map((r) => [r.op.slice(-6), r.state]), [["E80001", "pending"], ["E80002", "pending"], ["EZZZZZ", "pending"], ["EC0001", "void"], ["EC0002", "pending"]]);
  assert.deepEqual((await box.whole("01M81J7GST9DWMXM945JEA0000"))?.ops, [{
    id: "01M81J7GST9DWMXM945JEZZZZZ", method: "put", args: [{ name: "key", json: '"message/3"' }, { name: "payload", json: '{"text":  "ü\\"ops\\":[3]"}' }],
    dependsOn: ["01M81J7GST9DWMXM945JE80001"], expected: { ref: { op: "01M81J7GST9DWMXM945JE80002", path: "cursor" } },
  }]);
  const server = new LedgerServer({ open: () => undefined, before: () => undefined, after: () => false, delay: () => 0 });
  box.run(server);
  await box.drain(undefined, AbortSignal.timeout(10_000));
  assert.equal(server.violation, undefined);
  assert.deepEqual(server.log.map((l) => l.args), [1, 2, 3, 5].map((n) => `"message/${n}"|{"text":  "ü\\"ops\\":[${n}]"}`));
});

test("of what waits a look reads a little, however much that is", async (t) => {
  const home = await folder(t, "home"), box = await Outbox.open(await JournalStore.open(home));
  t.after(() => box.close());
  const ref = Ref.parse(`mooring://localhost/ses_01M81J7GST9DWMXM945JE8CXTV.o2l5dlsxujxywdsytewag7vpk3m#${"A".repeat(43)}`);
  await box.putRef(ref, { role: "owner" });
  for (let n = 0; n < 20; n++) await box.commit({ session: ref.target, ops: [{ method: "put", args: [{ name: "payload", json: `"${"x".repeat(200 << 10)}"` }] }] });
  const h = await fs.open(fileURLToPath(import.meta.url)), proto = Object.getPrototypeOf(h) as fs.FileHandle;
  await h.close();
  let bytes = 0;
  const read = proto.read as unknown as (...args: unknown[]) => unknown;
  t.mock.method(proto, "read", function (this: fs.FileHandle, ...args: unknown[]) {
    bytes += Number(args[2]);
    return read.apply(this, args);
  });
  await new Promise<void>((opened) => box.run({
    openStream: () => {
      opened();
      return new Promise(() => {});
    },
  }));
  assert.ok(bytes >= 200 << 10 && bytes <= 300 << 10, `${bytes}`);
});

test("what another program has written in another form of JSON stays in memory", async (t) => {
  const home = await folder(t, "home");
  await (await JournalStore.open(home)).close();
  const r = row(7), next = row(8), body = Buffer.from(JSON.stringify([put(r)]).replace('"ops":', '"ops" : '));
  await fs.appendFile(path.join(home, "outbox.journal"), Buffer.concat([Buffer.from(`${crc32(body).toString(16).padStart(8, "0")} `), body, Buffer.from("\n"), line([put(next)])]));
  for (const compactFrom of [1 << 20, 1]) {
    const store = await JournalStore.open(home, { compactFrom });
    assert.equal(isWhole(store.tables.batches.get(r.id)!), true);
    assert.deepEqual(await all(store), [r, next]);
    for (let n = 0; n < 20; n++) await store.update(plan({ t: "retry", k: "x", v: "y".repeat(1000) }));
    await store.close();
  }
  const store = await JournalStore.open(home);
  assert.equal(isWhole(store.tables.batches.get(r.id)!), false); // the file was written anew
  assert.deepEqual(await all(store), [r, next]);
  await store.close();
});

test("ops that are not there any more as they were written are an error, and are not sent", async (t) => {
  const home = await folder(t, "home"), store = await JournalStore.open(home), r = row(1);
  t.after(() => store.close());
  await store.update(plan(put(r)));
  assert.deepEqual(await all(store), [r]);
  const file = path.join(home, "outbox.journal"), data = await fs.readFile(file);
  data.write("X", data.indexOf('"id":"O1"') + 6);
  await fs.writeFile(file, data);
  await assert.rejects(all(store), { codeName: "internal" });
});

test("ids of ops are those of their batch, counted up", () => {
  const letters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
  const value = (id: string): bigint => [...id].reduce((n, c) => (n << 5n) | BigInt(letters.indexOf(c)), 0n);
  for (let i = 0; i < 200; i++) {
    const batch = newBatchID(1795349005259 + i * 7919);
    for (const place of [0, 1, 30, 31, 32, 1023, 32766, 32767, 65533, 65534]) {
      const id = ownID(batch, place)!;
      assert.equal(value(id), value(batch) + BigInt(place + 1));
      assert.equal(batchOf(id), batch);
      assert.ok(isULID(id));
    }
    for (const place of [-1, 65535, 65536]) assert.equal(ownID(batch, place), undefined);
    assert.equal(ownID(opID(batch, 0), 0), undefined);
  }
  for (const bad of ["", "8".padEnd(26, "0"), "0".repeat(25), "0".repeat(27), `${"0".repeat(25)}I`, "0".repeat(25) + "\n", `${"0".repeat(26)}\n`]) assert.equal(batchOf(bad), undefined);
});
