// The client in Chromium: IndexedDB, pages that are reloaded in the middle of sending, and tabs that share an outbox.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import * as fs from "node:fs/promises";
import * as http from "node:http";
import { once } from "node:events";
import * as path from "node:path";
import { after, before, test, type TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import { open, Ref, type Session } from "../src/index.js";
import { full } from "./full.js";
import { folder, freePort, logOf, Proxy, putKeys, TestServer } from "./rig.js";
import { seeded } from "./seed.js";

const executablePath = process.env["CHROMIUM_BIN"] ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser"].find((f) => existsSync(f)) ?? "";
const built = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const modules = path.resolve(built, "../node_modules");

let browser: Browser;
let site: http.Server;
let origin = "";

const page = `<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><title>agent</title><script type="importmap">{"imports": {
  "mooring-client": "/src/index.browser.js", "capnweb": "/modules/capnweb/dist/index.js"}}</script>
<script type="module" src="/test/page.js"></script>`;

before(async () => {
  site = http.createServer((req, res) => {
    const url = new URL(req.url!, "http://x");
    if (url.pathname === "/") {
      res.setHeader("content-type", "text/html").end(page);
      return;
    }
    const file = url.pathname.startsWith("/modules/") ? path.join(modules, url.pathname.slice(9)) : path.join(built, url.pathname);
    fs.readFile(file).then((data) => res.setHeader("content-type", "text/javascript").end(data), () => res.writeHead(404).end());
  });
  site.listen(0, "127.0.0.1");
  await once(site, "listening");
  origin = `http://localhost:${(site.address() as { port: number }).port}`;
  browser = await chromium.launch({
    executablePath,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
});

after(async () => {
  await browser?.close();
  site.close();
  site.closeAllConnections();
});

async function tabs(t: TestContext): Promise<BrowserContext> {
  const context = await browser.newContext();
  t.after(() => context.close());
  return context;
}

/** Opens the page, with its client open. */
async function tab(context: BrowserContext): Promise<Page> {
  const p = await context.newPage();
  p.on("pageerror", (err) => console.error("page:", err.message));
  p.on("console", (m) => { if (m.type() === "error" && !/WebSocket connection|Failed to load resource/.test(m.text())) console.error("page:", m.text()); });
  await load(p);
  return p;
}

async function load(p: Page): Promise<void> {
  await p.goto(origin);
  await p.waitForFunction(() => "agent" in globalThis);
}

async function serve(t: TestContext): Promise<TestServer> {
  return TestServer.start(t, ["--allow-origin", "localhost:*"]);
}

async function reader(t: TestContext, ref: Ref): Promise<Session> {
  const c = await open({ home: await folder(t, "reader") });
  t.after(() => c.close());
  return c.session(ref);
}

interface Agent {
  write(ref: string, owner: string, from: number, to: number): Promise<string[]>;
  fill(owner: string, ops: number, bytes: number): Promise<void>;
  said(): string[];
  drain(): Promise<void>;
  rotating(): number;
  rotate(owner: string): Promise<[string, unknown]>;
  status(): { pending: number; inFlight: number; sending: boolean; incarnation: number; acked: number; streams: { stopped: boolean }[] };
  statuses(batch: string): Promise<string[]>;
  reconcile(owner: string, expecting: boolean): Promise<string[]>;
  follow(owner: string, until: number): Promise<number[]>;
  text(owner: string): Promise<string>;
  unreached(ref: string): Promise<string>;
}
declare const agent: Agent;

const owner = (ref: Ref): Ref => ref.for("ses_01M81J7GST9DWMXM945JE8CXTV");

test("a page is reloaded in the middle of sending, and the link cut", { timeout: 40_000 }, async (t) => {
  const random = seeded(t), server = await serve(t), proxy = await Proxy.start(t, server), own = owner(proxy.ref(server.ref));
  const context = await tabs(t), p = await tab(context);
  const batches = 200;
  let reloads = 0;
  for (; reloads < 6; reloads++) {
    const writing = p.evaluate(([ref, own, to]) => agent.write(ref, own, 0, to), [proxy.ref(server.ref).text, own.text, batches] as const);
    const done = await Promise.race([writing.then(() => true, () => false), sleep(50 + random() * 150).then(() => false)]);
    if (reloads % 3 === 1) proxy.cut();
    await load(p);
    await writing.catch(() => {});
    if (done) break;
  }
  t.diagnostic(`${reloads} reloads, ${proxy.links} links`);
  const ids = await p.evaluate(([ref, own, to]) => agent.write(ref, own, 0, to), [proxy.ref(server.ref).text, own.text, batches] as const);
  await p.evaluate(() => agent.drain());
  const st = await p.evaluate(() => agent.status());
  assert.ok(st.incarnation > 1 && reloads > 0);
  assert.deepEqual(await p.evaluate((id) => agent.statuses(id), ids.at(-1)!), ["applied", "applied"]);
  const s = await reader(t, own);
  const log = (await logOf(s)).filter((e) => e.op !== "");
  assert.deepEqual(putKeys(log).slice(1), Array.from({ length: batches }, (_, i) => `message/${i + 1}`));
  const want = Array.from({ length: batches + 1 }, (_, i) => `${i}ä `).join("");
  assert.equal((JSON.parse((await s.snapshot()).entries.get("part/m/p")!.payload) as { text: string }).text, want);
  assert.equal(await p.evaluate((own) => agent.text(own), own.text), want);
  const seen = await p.evaluate(([own, until]) => agent.follow(own, until), [own.text, log.at(-1)!.cursor] as const);
  assert.deepEqual(seen, Array.from({ length: log.at(-1)!.cursor }, (_, i) => i + 1));
});

const unsent = full(10_000, 100_000), most = unsent * 600 / 1e6; // MB: of 1000 bytes an op, none is in memory
test(`${unsent} ops that are not sent take at most ${most} MB of a tab's memory`, { timeout: 300_000 }, async (t) => {
  const server = await serve(t), own = owner(server.ref), context = await tabs(t);
  await server.kill();
  const p = await tab(context), tools = await context.newCDPSession(p);
  p.setDefaultTimeout(200_000);
  const used = async (): Promise<number> => {
    await tools.send("HeapProfiler.collectGarbage");
    const m = (await tools.send("Runtime.getHeapUsage")) as { usedSize: number; embedderHeapUsedSize?: number; backingStorageSize?: number };
    return (m.usedSize + (m.embedderHeapUsedSize ?? 0) + (m.backingStorageSize ?? 0)) / 1e6;
  };
  const before = await used();
  await p.evaluate(([own, ops]) => agent.fill(own, ops, 1000), [own.text, unsent] as const);
  const committed = (await used()) - before;
  await load(p);
  assert.equal((await p.evaluate(() => agent.status())).pending, unsent);
  const reopened = (await used()) - before;
  t.diagnostic(JSON.stringify({ committed, reopened }));
  assert.ok(committed <= most && reopened <= most, `${committed}, ${reopened}`);
});

test("what is committed without a server outlives the page, and is sent when there is one", { timeout: 40_000 }, async (t) => {
  const server = await serve(t), own = owner(server.ref), context = await tabs(t);
  await server.kill();
  const p = await tab(context);
  const ids = await p.evaluate(([ref, own]) => agent.write(ref, own, 0, 20), [server.ref.text, own.text] as const);
  await load(p);
  assert.equal((await p.evaluate(() => agent.status())).pending, 4 + 40);
  await server.start();
  await p.evaluate(() => agent.drain());
  assert.deepEqual(await p.evaluate((id) => agent.statuses(id), ids[5]!), ["applied", "applied"]);
  assert.equal(putKeys(await logOf(await reader(t, own))).length, 21);
});

test("two tabs commit into one outbox, one sends, and the other goes on when it is closed", { timeout: 40_000 }, async (t) => {
  const server = await serve(t), proxy = await Proxy.start(t, server), own = owner(proxy.ref(server.ref)), context = await tabs(t);
  const one = await tab(context);
  await one.evaluate(([ref, own]) => agent.write(ref, own, 0, 0), [proxy.ref(server.ref).text, own.text] as const);
  await one.evaluate(() => agent.drain());
  const two = await tab(context);
  const statuses = await Promise.all([one, two].map((p) => p.evaluate(() => agent.status())));
  assert.deepEqual(statuses.map((s) => s.sending), [true, false]);

  // What the second commits the first sends, and the second learns how it ended.
  const ids = await two.evaluate(([ref, own]) => agent.write(ref, own, 1, 20), ["", own.text] as const);
  assert.deepEqual(await two.evaluate((id) => agent.statuses(id), ids.at(-1)!), ["applied", "applied"]);
  assert.deepEqual(await one.evaluate((id) => agent.statuses(id), ids.at(-1)!), ["applied", "applied"]);
  await two.evaluate(() => agent.drain());

  // The sender's tab is closed in the middle.
  proxy.refusing = true;
  proxy.cut();
  await one.evaluate(([ref, own]) => agent.write(ref, own, 21, 60), ["", own.text] as const);
  await one.close();
  proxy.refusing = false;
  const last = await two.evaluate(([ref, own]) => agent.write(ref, own, 61, 90), ["", own.text] as const);
  await two.evaluate(() => agent.drain());
  assert.equal((await two.evaluate(() => agent.status())).sending, true);
  assert.deepEqual(await two.evaluate((id) => agent.statuses(id), last.at(-1)!), ["applied", "applied"]);
  const log = (await logOf(await reader(t, own))).filter((e) => e.op !== "");
  assert.deepEqual(putKeys(log).slice(1), Array.from({ length: 90 }, (_, i) => `message/${i + 1}`));
});

test("one tab rotates a ref while another sends under it", { timeout: 60_000 }, async (t) => {
  const server = await serve(t), proxy = await Proxy.start(t, server), own = owner(proxy.ref(server.ref)), context = await tabs(t);
  const one = await tab(context), two = await tab(context), watching = await reader(t, own);
  await one.evaluate(([ref, own]) => agent.write(ref, own, 0, 0), [proxy.ref(server.ref).text, own.text] as const);
  await one.evaluate(() => agent.drain());
  assert.deepEqual(await two.evaluate((own) => agent.text(own), own.text), "0ä "); // its link is there
  await watching.describe();

  // What is on its way when the rotation begins is waited for: here it is kept back until then.
  proxy.keeps = (bytes) => bytes > 300;
  const kept = proxy.kept(), ids = await one.evaluate(([own]) => agent.write("", own, 1, 1), [own.text] as const), through = await kept;
  proxy.keeps = () => false;
  const rotated = two.evaluate((own) => agent.rotate(own), own.text);
  await two.waitForFunction(() => agent.rotating() === 1);
  for (let i = 0; i < 20; i++) assert.equal((await watching.describe()).grant.dead, "none");
  const before = performance.now();
  await through();
  const [next, wrong] = await rotated;
  assert.ok(performance.now() - before < 3000); // the tab that sends has told that nothing is in flight any more
  assert.deepEqual([next === own.text, wrong], [false, undefined]);
  ids.push(...(await one.evaluate(([own]) => agent.write("", own, 2, 30), [own.text] as const))); // by the old one's name
  for (const id of ids) assert.deepEqual(await two.evaluate((id) => agent.statuses(id), id), ["applied", "applied"]);
  assert.deepEqual(await Promise.all([one, two].map((p) => p.evaluate(() => agent.status().sending))), [true, false]);
  const log = await logOf(await reader(t, Ref.parse(next)));
  assert.deepEqual(putKeys(log).slice(1), Array.from({ length: 30 }, (_, i) => `message/${i + 1}`));
  await assert.rejects(watching.events(), { codeName: "revoked" });
});

test("one tab brings back what the server has lost, another one sends it", { timeout: 60_000 }, async (t) => {
  const server = await serve(t), own = owner(server.ref), context = await tabs(t), restore = await server.save();
  const one = await tab(context), two = await tab(context);
  await one.evaluate(([ref, own]) => agent.write(ref, own, 0, 5), [server.ref.text, own.text] as const);
  await one.evaluate(() => agent.drain());
  await restore();
  assert.deepEqual(await two.evaluate((own) => agent.reconcile(own, true), own.text), Array.from({ length: 14 }, () => "sent_again"));
  await two.evaluate(() => agent.drain());
  const again = () => two.evaluate((own) => agent.reconcile(own, true), own.text);
  assert.deepEqual(await again(), []);
  await load(two); // and so it is in the storage
  assert.deepEqual(await again(), []);
  assert.deepEqual(await Promise.all([one, two].map((p) => p.evaluate(() => agent.status().sending))), [true, false]);
  const last = await two.evaluate(([ref, own]) => agent.write(ref, own, 6, 6), ["", own.text] as const);
  assert.deepEqual(await two.evaluate((id) => agent.statuses(id), last[0]!), ["applied", "applied"]);
  assert.deepEqual(putKeys(await logOf(await reader(t, own))).slice(1), [1, 2, 3, 4, 5, 6].map((i) => `message/${i}`));
  assert.equal(await one.evaluate((own) => agent.text(own), own.text), [0, 1, 2, 3, 4, 5, 6].map((i) => `${i}ä `).join(""));
});

test("a tab with an older version goes on with a stream that was left, until it is closed", { timeout: 60_000 }, async (t) => {
  const server = await serve(t), own = owner(server.ref), context = await tabs(t), restore = await server.save();
  const one = await tab(context);
  await one.evaluate(([ref, own]) => agent.write(ref, own, 0, 3), [server.ref.text, own.text] as const);
  await one.evaluate(() => agent.drain());
  await restore();
  await one.evaluate((own) => agent.reconcile(own, true), own.text);
  await one.evaluate(() => agent.drain());

  // What such a tab does: it takes the right to send, raises the incarnation, and is told that the stream cannot go on.
  const older = await context.newPage();
  await older.goto(`${origin}/src/rows.js`); // of the origin, without a client
  await older.evaluate((name) => void navigator.locks.request(`${name}/sender`, () => new Promise((never) => void never)), "mooring-outbox/agent");
  await load(one);
  await older.waitForFunction(async (name) => (await navigator.locks.query()).held?.some((l) => l.name === `${name}/sender`), "mooring-outbox/agent");
  await older.evaluate((name) => new Promise<void>((resolve) => {
    const open = indexedDB.open(name);
    open.onsuccess = () => {
      const tx = open.result.transaction(["rows", "writes"], "readwrite"), rows = tx.objectStore("rows");
      const get = tx.objectStore("writes").get("last");
      get.onsuccess = () => {
        const n = (get.result as number) + 1;
        tx.objectStore("writes").put(n, "last");
        const all = rows.getAll();
        all.onsuccess = () => {
          for (const r of all.result as { t: string; d: Record<string, unknown> }[]) {
            if (r.t === "box") rows.put({ ...r, n, d: { ...r.d, incarnation: (r.d["incarnation"] as number) + 1 } });
            if (r.t === "stream") rows.put({ ...r, n, d: { ...r.d, stopped: "server_behind", reason: "the server knows less" } });
          }
        };
      };
      tx.oncomplete = () => { open.result.close(); resolve(); };
    };
  }), "mooring-outbox/agent");

  // Who waits is told, goes on waiting, and leaves no stream again, which would help nobody.
  const waited = one.evaluate(([own]) => agent.write("", own, 4, 4).then((ids) => agent.statuses(ids[0]!)), [own.text] as const);
  await one.waitForFunction(() => agent.said().some((reason) => /^in_use: a tab with an older version .*close that tab/.test(reason)));
  await assert.rejects(one.evaluate((own) => agent.reconcile(own, true), own.text), /in_use: a tab with an older version/);
  assert.deepEqual(await one.evaluate(() => agent.status().streams.map((s) => s.stopped)), [false]);
  await older.close();
  assert.deepEqual(await waited, ["applied", "applied"]);
  assert.deepEqual(putKeys(await logOf(await reader(t, own))).slice(1), [1, 2, 3, 4].map((i) => `message/${i}`));
});

test("what was removed long ago is forgotten when the outbox is opened again", { timeout: 40_000 }, async (t) => {
  const p = await tab(await tabs(t));
  // Rows as a sweep leaves them, of long ago and of just now, and one that was made again.
  const removed = (old: number[], fresh: number[]): Promise<number> => p.evaluate(async ([old, fresh]) => {
    const db = await new Promise<IDBDatabase>((resolve) => {
      const open = indexedDB.open("mooring-outbox/agent");
      open.onsuccess = () => resolve(open.result);
    });
    const rows = db.transaction("rows", "readwrite").objectStore("rows");
    for (const k of old) rows.put({ t: "retry", k: String(k), n: 1, d: null, at: Date.now() - 25 * 3600_000 });
    for (const k of fresh) rows.put({ t: "retry", k: String(k), n: 1, d: null, at: Date.now() - 3600_000 });
    return new Promise<number>((resolve) => {
      const all = rows.getAll();
      all.onsuccess = () => {
        db.close();
        resolve((all.result as { d: unknown }[]).filter((r) => r.d === null).length);
      };
    });
  }, [old, fresh] as const);
  assert.equal(await removed([1, 2, 3], [4, 5]), 5);
  await load(p);
  assert.equal(await removed([], []), 2);
  assert.equal((await p.evaluate(() => agent.status())).incarnation > 0, true);
});

test("a page learns whether anybody answers, and what to look at", { timeout: 40_000 }, async (t) => {
  const server = await TestServer.start(t), p = await tab(await tabs(t)); // which lets in no page of another origin
  const other = http.createServer((_, res) => res.writeHead(404).end()).listen(0, "127.0.0.1");
  t.after(() => other.close());
  await once(other, "listening");
  const at = (address: string): Promise<string> => p.evaluate((ref) => agent.unreached(ref), server.ref.text.replace(server.ref.address, address));
  const web = `mooring://127.0.0.1:${(other.address() as { port: number }).port}`, nobody = `127.0.0.1:${await freePort()}`;
  for (const address of [server.ref.address, web]) {
    assert.match(await at(address), new RegExp(`^unavailable: what answers at ${address} opens no WebSocket to this page: .*serve --allow-origin.*begins with moorings://`));
  }
  assert.match(await at(`mooring://${nobody}`), /^unavailable: no server answers at .*is it running, and does it speak plain HTTP .* http:\/\/127/);
  assert.match(await at(`moorings://${nobody}`), /is it running, does it speak TLS, and does the browser trust its certificate\? Opened in a tab, https:\/\/127/);
});
