// What the outbox is for: whatever is killed, cut or swallowed while batches are sent, the session's log has every op
// once, in order, as it was written. Random moments are printed as a seed; SEED=N runs the same again, as far as the
// machine's own timing lets it.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import * as path from "node:path";
import { test, type TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { type Client, jsonText, open, Ref, type Session } from "../src/index.js";
import { full } from "./full.js";
import { folder, logOf, Proxy, TestServer } from "./rig.js";
import { seeded } from "./seed.js";
import { batchID, piece } from "./writer.js";

const writer = fileURLToPath(new URL("./writer.js", import.meta.url));

/** The log has what the writer wrote, once and in order, and the text is whole. */
async function check(session: Session, batches: number): Promise<void> {
  const log = (await logOf(session)).filter((e) => e.op !== ""); // without what the server notes of itself: interrupted, resumed
  const want = [["create", ""], ["begin", "message/m"], ["put", "part/m/p"], ["appendText", "part/m/p"]];
  for (let i = 1; i <= batches; i++) want.push(["put", `message/${i}`], ["put", "session"], ["appendText", "part/m/p"]);
  assert.deepEqual(log.map((e) => [e.method, e.method === "create" ? "" : e.key]), want);
  assert.deepEqual(log.filter((e) => e.key.startsWith("message/") && e.method === "put").map((e) => e.payload), Array.from({ length: batches }, (_, i) => `{"n":  ${i + 1}}`));
  assert.equal(log.at(-1)!.batch, batchID(batches));
  const state = await session.snapshot();
  const text = (JSON.parse(state.entries.get("part/m/p")!.payload) as { text: string }).text;
  assert.equal(text, Array.from({ length: batches + 1 }, (_, i) => piece(i)).join(""));
}

async function reader(t: TestContext, ref: Ref): Promise<Session> {
  const c = await open({ home: await folder(t, "reader") });
  t.after(() => c.close());
  return c.session(ref);
}

/** Runs the writer until it is done, killing it after random times; how often it was killed. */
async function killUntilDone(home: string, ref: Ref, owner: Ref, batches: number, random: () => number, most: number): Promise<number> {
  for (let kills = 0; ; ) {
    const child = spawn(process.execPath, [writer, home, ref.text, owner.text, String(batches)], { stdio: ["ignore", "pipe", "inherit"] });
    let said = "";
    child.stdout.setEncoding("utf8").on("data", (d: string) => { said += d; });
    const exit = once(child, "exit") as Promise<[number | null, string | null]>;
    if (kills < most) {
      await Promise.race([once(child.stdout, "data"), exit]);
      const early = await Promise.race([sleep(random() * 120).then(() => false), exit.then(() => true)]);
      if (!early) {
        child.kill("SIGKILL");
        kills++;
      }
    }
    const [code] = await exit;
    if (code === 0) {
      assert.ok(said.includes("done"));
      return kills;
    }
    assert.equal(code, null, said);
  }
}

test("the process is killed while it sends, again and again", async (t) => {
  const random = seeded(t);
  const server = await TestServer.start(t), home = await folder(t, "home"), owner = server.ref.for("ses_01M81J7GTG4B7MGJRTM0XSHNN7");
  const batches = full(100, 200);
  const kills = await killUntilDone(path.join(home, "outbox"), server.ref, owner, batches, random, full(4, 8));
  t.diagnostic(`killed ${kills} times`);
  assert.ok(kills > 0);
  await check(await reader(t, owner), batches);
});

test("process, server and link all die at random", async (t) => {
  const random = seeded(t);
  const server = await TestServer.start(t), proxy = await Proxy.start(t, server), home = await folder(t, "home");
  const owner = server.ref.for("ses_01M81J7GTG4B7MGJRTM0XSHNN7");
  let over = false;
  const trouble = (async () => {
    for (let n = 0; !over; n++) {
      await sleep(random() * 150);
      if (n % 4 === 3) await server.restart();
      else if (n % 2 === 0) proxy.cut();
      else void proxy.cutAfter(1 + random() * 2000, random() < 0.5 ? "swallow" : "cut");
    }
  })();
  try {
    const kills = await killUntilDone(path.join(home, "outbox"), proxy.ref(server.ref), proxy.ref(owner), 120, random, 6);
    t.diagnostic(`killed ${kills} times, ${proxy.links} links`);
  } finally {
    over = true;
    await trouble;
  }
  await check(await reader(t, owner), 120);
});

/** Commits the writer's batches in this process, as fast as they are durable. */
async function write(client: Client, ref: Ref, owner: Ref, batches: number): Promise<void> {
  const { session, batch } = (await client.space(ref)).create({ owner, batchID: batchID(0) });
  batch.begin("m", { role: "assistant" });
  batch.put("part/m/p", { type: "text", text: "" });
  let last = batch.appendText("part/m/p", 0, piece(0));
  await batch.commit();
  for (let i = 1; i <= batches; i++) {
    const b = session.batch(batchID(i));
    b.put(`message/${i}`, jsonText(`{"n":  ${i}}`));
    b.put("session", { at: i });
    last = b.appendText("part/m/p", last.field("length"), piece(i));
    await b.commit();
  }
}

async function sender(t: TestContext): Promise<Client> {
  const c = await open({
    home: await folder(t, "home"), reconnect: { initial: 2, max: 20 }, outbox: { backoff: { initial: 2, max: 20 }, window: { batches: 8 } }, quiet: 500,
  });
  t.after(() => c.close());
  return c;
}

const most = full(20, 50);
for (const how of ["cut", "swallow"] as const) {
  test(how === "cut" ? `the link is cut ${most} times` : `the answers are swallowed ${most} times, with the link cut after`, async (t) => {
    const random = seeded(t);
    const server = await TestServer.start(t), proxy = await Proxy.start(t, server), c = await sender(t);
    const owner = proxy.ref(server.ref).for("ses_01M81J7GTG4B7MGJRTM0XSHNN7");
    let cuts = 0, over = false;
    const cutting = (async () => {
      for (; cuts < most && !over; cuts++) await proxy.cutAfter(300 + random() * 3000, how);
    })();
    const batches = full(120, 300);
    await write(c, proxy.ref(server.ref), owner, batches);
    await c.drain();
    // A link that is idle is not cut by what comes back: reading brings the rest.
    const s = await c.session(owner);
    while (cuts < most) await s.events(0, 50);
    over = true;
    await cutting;
    assert.ok(proxy.links >= most, String(proxy.links));
    await check(await reader(t, Ref.parse(owner.text.replace(/127\.0\.0\.1:\d+/, `127.0.0.1:${server.port}`))), batches);
  });
}

test("the server is killed and started again while batches are sent", { timeout: 240_000 }, async (t) => {
  const server = await TestServer.start(t), c = await sender(t), owner = server.ref.for("ses_01M81J7GTG4B7MGJRTM0XSHNN7");
  let over = false;
  const killing = (async () => {
    let n = 0;
    for (; !over; n++) {
      await sleep(60 + 5 * n); // longer and longer: where all is slow, something comes through in the end
      await server.restart();
    }
    return n;
  })();
  const batches = full(150, 300);
  await write(c, server.ref, owner, batches);
  await c.drain();
  over = true;
  assert.ok((await killing) > 0);
  await check(await reader(t, owner), batches);
});

test("a link that is dead without saying so is given up", async (t) => {
  const server = await TestServer.start(t), proxy = await Proxy.start(t, server), c = await sender(t);
  const owner = proxy.ref(server.ref).for("ses_01M81J7GTG4B7MGJRTM0XSHNN7");
  await write(c, proxy.ref(server.ref), owner, 5);
  await c.drain();
  proxy.deafen();
  const s = await c.session(owner);
  (await (await s.put("message/after", {})).wait()).check();
  assert.ok(proxy.links > 1);
});
