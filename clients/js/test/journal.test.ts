// The journal: what a process finds that comes after one that died, at every byte at which it can have died.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import * as fs from "node:fs/promises";
import fsExports from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import * as os from "node:os";
import * as path from "node:path";
import { test, type TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { JournalStore, line, recover } from "../src/journal.js";
import { lockFolder } from "../src/lockfile.js";
import type { BatchRow } from "../src/rows.js";
import type { Change, Plan } from "../src/store.js";

async function folder(t: TestContext): Promise<string> {
  const dir = await fs.mkdtemp(path.join(os.tmpdir(), "mooring-journal-"));
  t.after(() => fs.rm(dir, { recursive: true, force: true }));
  return dir;
}

const row = (num: number, p: Partial<BatchRow> = {}): BatchRow => ({
  num, id: `B${num}`, session: "S", via: "", atomic: false, created: 1, bytes: 10, ops: [{ id: `O${num}`, method: "put", args: [{ name: "payload", json: `{"ü":${num}}` }] }],
  state: "pending", first: 0, attempts: 0, nextRetryAt: 0, lastError: "", finishedAt: 0, outcomes: null, dropping: false, ...p,
});
const put = (r: BatchRow): Change => ({ t: "batch", k: r.id, v: r });
const plan = (...changes: Change[]) => (): Plan<undefined> => ({ changes, value: undefined });
/** All that a store has, without where that is. */
const shape = (s: JournalStore): Promise<unknown> => s.look((t) => JSON.parse(JSON.stringify([t.others(), t.whole([...t.batches.values()])])) as unknown);

test("what was written is there again", async (t) => {
  const dir = await folder(t);
  const a = await JournalStore.open(dir);
  await Promise.all([a.update(plan(put(row(1)))), a.update(plan(put(row(2)), { t: "retry", k: "x", v: "y" }))]);
  await a.update(plan({ t: "batch", k: "B1", p: { first: 7, state: "in_flight" } }, { t: "batch", k: "B2", v: null }));
  const want = await shape(a);
  assert.equal(a.tables.nextSeq("S"), 8);
  await a.close();
  const b = await JournalStore.open(dir);
  assert.deepEqual(await shape(b), want);
  assert.equal(b.tables.nextSeq("S"), 8);
  assert.equal(b.tables.unfinishedOps, 1);
  await b.close();
  assert.equal((await fs.stat(path.join(dir, "outbox.journal"))).mode & 0o777, 0o600);
  assert.deepEqual(await fs.readdir(dir), ["outbox.journal"]);
});

test("a folder of another user's, or one that all may write to, is not used", async (t) => {
  const dir = await folder(t);
  await fs.chmod(dir, 0o777);
  await assert.rejects(JournalStore.open(dir), /usage.*every user may write/s);
  await fs.chmod(dir, 0o700);
  const user = process.geteuid!();
  t.mock.method(process as { geteuid(): number }, "geteuid", () => user + 1);
  await assert.rejects(JournalStore.open(dir), /usage.*belongs to another user/s);
});

test("cut at every byte, the file has the groups before the cut, whole, and goes on", async (t) => {
  const dir = await folder(t), file = path.join(dir, "outbox.journal");
  const a = await JournalStore.open(dir);
  const ends = [(await fs.stat(file)).size], states = [await shape(a)];
  for (let n = 1; n <= 5; n++) {
    await a.update(plan(put(row(n)), { t: "op", k: `N${n}`, v: `B${n}` }));
    ends.push((await fs.stat(file)).size);
    states.push(await shape(a));
  }
  await a.close();
  const whole = await fs.readFile(file);
  for (let cut = 0; cut <= whole.length; cut++) {
    const { groups, end } = recover(whole.subarray(0, cut));
    const complete = ends.filter((e) => e <= cut).length;
    assert.equal(end, complete === 0 ? 0 : ends[complete - 1]);
    assert.equal(groups.length, Math.max(complete - 1, 0));
    if (cut % 29 !== 0 && cut < whole.length - 3) continue; // the file itself now and then
    await fs.writeFile(file, whole.subarray(0, cut));
    const b = await JournalStore.open(dir);
    assert.deepEqual(await shape(b), states[Math.max(complete - 1, 0)], `cut at ${cut}`);
    await b.update(plan(put(row(9))));
    await b.close();
    const c = await JournalStore.open(dir);
    assert.equal(c.tables.batches.get("B9")?.num, 9, `cut at ${cut}`);
    await c.close();
  }
});

test("a last line that is spoilt was never told of; one before others was, and is an error", () => {
  const head = line({ format: "mooring outbox journal", version: 1 });
  const one = line([put(row(1))]), two = line([put(row(2))]);
  const all = Buffer.concat([head, one, two]);
  for (let at = 0; at < all.length; at++) {
    const spoilt = Buffer.from(all);
    spoilt[at]! ^= 0x15;
    if (at >= head.length + one.length) assert.equal(recover(spoilt).groups.length, 1, String(at));
    else assert.throws(() => recover(spoilt), { codeName: "internal" }, String(at));
  }
  const zeros = Buffer.concat([head, one, Buffer.alloc(100)]);
  assert.equal(recover(zeros).end, head.length + one.length);
  assert.throws(() => recover(line({ format: "mooring outbox journal", version: 2 })), { codeName: "incompatible" });
  assert.throws(() => recover(line({ hello: 1 })), { codeName: "internal" });
});

test("a plan that throws changes nothing, and others of its group go through", async (t) => {
  const a = await JournalStore.open(await folder(t));
  const ok = a.update(plan(put(row(1))));
  const bad = a.update(() => { throw new Error("no"); });
  const later = a.update((t): Plan<number> => ({ changes: [put(row(2))], value: t.batches.size }));
  await assert.rejects(bad, /no/);
  await ok;
  assert.equal(await later, 1);
  await a.close();
  await assert.rejects(a.update(plan()), { codeName: "canceled" });
});

test("when the disk is full memory and file stay as they were, and it goes on when there is room", async (t) => {
  const a = await JournalStore.open(await folder(t));
  await a.update(plan(put(row(1, { first: 1 }))));
  const want = await shape(a);
  const append = t.mock.method((await fsHandle()), "appendFile", () => Promise.reject(Object.assign(new Error("full"), { code: "ENOSPC" })));
  const failed = [a.update(plan(put(row(2, { first: 2 })), { t: "batch", k: "B1", v: null })), a.update(plan(put(row(3))))];
  for (const f of failed) await assert.rejects(f, { codeName: "disk_full" });
  assert.deepEqual(await shape(a), want);
  assert.equal(a.tables.nextSeq("S"), 2);
  append.mock.restore();
  await a.update(plan(put(row(4))));
  await a.close();
});

/** The prototype of the file handles that stores write through. */
async function fsHandle(): Promise<fs.FileHandle> {
  const h = await fs.open(fileURLToPath(import.meta.url));
  await h.close();
  return Object.getPrototypeOf(h) as fs.FileHandle;
}

test("a journal that is mostly history is written anew, while it is open and when it is opened", async (t) => {
  const dir = await folder(t), file = path.join(dir, "outbox.journal");
  const a = await JournalStore.open(dir, { compactFrom: 4096 });
  const long = "x".repeat(500);
  for (let n = 1; n <= 200; n++) {
    await a.update(plan(put(row(n, { lastError: long })), ...(n > 3 ? [{ t: "batch" as const, k: `B${n - 3}`, v: null }] : [])));
  }
  assert.ok((await fs.stat(file)).size < 20_000);
  const want = await shape(a);
  await a.close();
  await fs.writeFile(path.join(dir, "outbox.journal.new"), "left over");
  const b = await JournalStore.open(dir, { compactFrom: 1 });
  assert.deepEqual(await shape(b), want);
  await b.close();
  assert.deepEqual(await fs.readdir(dir), ["outbox.journal"]);
});

test("one at a time: within a process, and between processes", async (t) => {
  const dir = await folder(t);
  const a = await JournalStore.open(dir);
  await assert.rejects(JournalStore.open(dir), { codeName: "in_use" });
  await a.close();
  await (await JournalStore.open(dir)).close();

  const child = spawn(process.execPath, ["-e", `import(${JSON.stringify(new URL("../src/lockfile.js", import.meta.url).href)})
    .then((m) => m.lockFolder(${JSON.stringify(dir)})).then(() => { console.log("locked"); setInterval(() => {}, 1000) })`], { stdio: ["ignore", "pipe", "inherit"] });
  t.after(() => child.kill("SIGKILL"));
  await once(child.stdout, "data");
  await assert.rejects(JournalStore.open(dir), { codeName: "in_use" });
  child.kill("SIGKILL");
  await once(child, "exit");
  await (await JournalStore.open(dir)).close();
});

test("of many that find a dead holder one gets the lock", async (t) => {
  const dir = await folder(t);
  for (let round = 0; round < 20; round++) {
    await fs.writeFile(path.join(dir, `outbox.lock.${1 + (round % 3)}`), JSON.stringify({ pid: 2 ** 22 - 1, start: "", host: os.hostname(), token: "x" }));
    const got = await Promise.allSettled(Array.from({ length: 8 }, () => lockFolder(dir)));
    const held = got.flatMap((g) => (g.status === "fulfilled" ? [g.value] : []));
    assert.equal(held.length, 1, String(round));
    for (const g of got) if (g.status === "rejected") assert.equal((g.reason as { codeName: string }).codeName, "in_use");
    await held[0]!();
    assert.deepEqual(await fs.readdir(dir), []);
  }
});

test("a file system without links has the lock all the same", async (t) => {
  const dir = await folder(t);
  const link = t.mock.method(fsExports, "link", () => Promise.reject(Object.assign(new Error("no links"), { code: "EPERM" })));
  syncBuiltinESMExports();
  t.after(() => {
    link.mock.restore();
    syncBuiltinESMExports();
  });
  const got = await Promise.allSettled(Array.from({ length: 8 }, () => lockFolder(dir)));
  assert.equal(got.filter((g) => g.status === "fulfilled").length, 1);
  await fs.writeFile(path.join(dir, "outbox.locking.x"), JSON.stringify({ pid: 2 ** 22 - 1, start: "", host: os.hostname(), token: "x" }));
  for (const g of got) if (g.status === "fulfilled") await g.value();
  await (await lockFolder(dir))();
  assert.deepEqual(await fs.readdir(dir), []);
  assert.ok(link.mock.callCount() > 1);
});

test("what cannot be opened says what to do, and no path", async (t) => {
  const dir = await folder(t);
  await fs.writeFile(path.join(dir, "file"), "");
  for (const home of ["file", "file/x", "file/x/y"]) {
    await assert.rejects(JournalStore.open(path.join(dir, home)), (err: Error) => {
      assert.match(err.message, /^unavailable: open the outbox: E\w+: (home|a part of home) is a file: give a folder$/);
      return true;
    });
  }
  const write = t.mock.method(fsExports, "writeFile", async (name: string) => {
    await (await fs.open(name, "wx")).close(); // it is made, and then there is no room for what it is to hold
    throw Object.assign(new Error("full"), { code: "ENOSPC" });
  });
  syncBuiltinESMExports();
  t.after(() => {
    write.mock.restore();
    syncBuiltinESMExports();
  });
  await assert.rejects(JournalStore.open(path.join(dir, "full")), { codeName: "disk_full", message: /make some/ });
  assert.deepEqual(await fs.readdir(path.join(dir, "full")), []);
});

test("a lock of another machine says which file is in the way", async (t) => {
  const dir = await folder(t);
  await fs.writeFile(path.join(dir, "outbox.lock.7"), JSON.stringify({ pid: 1, start: "", host: `not-${os.hostname()}`, token: "x" }));
  await assert.rejects(JournalStore.open(dir), { codeName: "in_use", message: /remove outbox\.lock\.7 in home/ });
  await fs.rm(path.join(dir, "outbox.lock.7"));
  await (await JournalStore.open(dir)).close();
});

test("every folder that was made is forced to the disk, and that of the file each time it is opened", async (t) => {
  const dir = await fs.realpath(await folder(t)), home = path.join(dir, "a/b/c"), synced: string[] = [];
  const proto = await fsHandle();
  const names = new WeakMap<object, string>(), real = fs.open, sync = proto.sync;
  const opened = t.mock.method(fsExports, "open", async (...args: Parameters<typeof fs.open>) => {
    const h = await real(...args);
    names.set(h, String(args[0]));
    return h;
  });
  const synching = t.mock.method(proto, "sync", function (this: fs.FileHandle) {
    synced.push(names.get(this) ?? "");
    return sync.call(this);
  });
  syncBuiltinESMExports();
  t.after(() => {
    opened.mock.restore();
    synching.mock.restore();
    syncBuiltinESMExports();
  });
  await (await JournalStore.open(home)).close();
  for (const made of [dir, path.join(dir, "a"), path.join(dir, "a/b"), home]) assert.ok(synced.includes(made), `${made} in ${synced.join(" ")}`);
  synced.length = 0;
  await (await JournalStore.open(home)).close();
  assert.ok(synced.includes(home));
});

test("when it is not known that a journal written anew is in its place, nothing more is written", async (t) => {
  const a = await JournalStore.open(await folder(t), { compactFrom: 1 });
  const proto = await fsHandle();
  let calls = 0;
  const sync = t.mock.method(proto, "sync", () => (++calls === 2 ? Promise.reject(Object.assign(new Error("bad disk"), { code: "EIO" })) : Promise.resolve()));
  const write = async (): Promise<void> => { for (let n = 1; n <= 50 && calls < 2; n++) await a.update(plan(put(row(1, { attempts: n })))); };
  await write();
  sync.mock.restore();
  assert.equal(calls, 2); // the new file's, and the folder's
  await assert.rejects(a.update(plan(put(row(2)))), { codeName: "unavailable" });
  await a.close();
});

test("what could not be forced to the disk is not there for the next process: it was said to have failed", async (t) => {
  const dir = await folder(t), a = await JournalStore.open(dir);
  await a.update(plan(put(row(1))));
  const want = await shape(a);
  const sync = t.mock.method(await fsHandle(), "datasync", () => Promise.reject(Object.assign(new Error("bad disk"), { code: "EIO" })));
  await assert.rejects(a.update(plan(put(row(2)))), { codeName: "unavailable" });
  sync.mock.restore();
  await a.close();
  const b = await JournalStore.open(dir);
  assert.deepEqual(await shape(b), want);
  await b.close();
});
