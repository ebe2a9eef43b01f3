// Live capabilities that allow less than a ref: used here, passed on, and gone with what they came from.

import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { newMessagePortRpcSession, RpcTarget } from "capnweb";
import { type AttenuateOptions, type Client, newSealKey, open, type OpenOptions, type Session } from "../src/index.js";
import { folder, Proxy, TestServer } from "./rig.js";

async function client(t: TestContext, options: Partial<OpenOptions> = {}): Promise<Client> {
  const c = await open({ home: await folder(t, "home"), reconnect: { initial: 10, max: 100 }, outbox: { backoff: { initial: 10, max: 100 } }, ...options });
  t.after(() => c.close());
  return c;
}

async function made(t: TestContext): Promise<{ server: TestServer; c: Client; session: Session }> {
  const server = await TestServer.start(t), c = await client(t), { session, batch } = (await c.space(server.ref)).create();
  batch.put("todo/1", { n: 1 });
  batch.put("note/1", { secret: true });
  (await (await batch.commit()).wait()).check();
  return { server, c, session };
}

test("a live capability allows what it was narrowed to, and no more", async (t) => {
  const { c, session } = await made(t);
  using live = await session.attenuate({ rights: ["read", "share"], readKeys: ["todo/"], label: "narrow", actor: "owner/helper", lifetime: 60_000 });
  const { session: info, grant, now } = await live.describe();
  assert.deepEqual([info!.id, grant.owner, grant.rights, grant.readKeys, grant.label, grant.actor], [session.id, false, ["read", "share"], ["todo/"], "narrow", "owner/helper"]);
  assert.ok(grant.expires > now && grant.expires <= now + 60_000);
  assert.deepEqual([...(await live.snapshot()).entries.keys()], ["todo/1"]);
  const { events, cursor } = await live.events(1);
  assert.deepEqual([events.filter((e) => !e.hidden).map((e) => e.key), cursor], [["todo/1"], 3]);

  using still = await live.attenuate({ rights: ["read"], from: 3 });
  assert.deepEqual([(await still.describe()).grant.rights, (await still.describe()).grant.from], [["read"], 3]);
  await assert.rejects(still.attenuate({ rights: ["append"] }), { codeName: "widening" });
  await assert.rejects(still.share({ rights: ["read"] }), { codeName: "missing_right" });
  await assert.rejects(session.attenuate({ actor: "somebody" }), { codeName: "widening" });

  // A ref that was minted from it has its limits, and dies with the ref it was made from.
  const reader = await live.share({ rights: ["read"], label: "lasting" }), theirs = await (await client(t)).session(reader);
  assert.deepEqual([...(await theirs.snapshot()).entries.keys()], ["todo/1"]);
  live.release();
  await assert.rejects(live.describe());
  assert.equal((await theirs.snapshot()).entries.size, 1);
  const { ref, ticket } = await session.share({ rights: ["read", "append"] });
  (await ticket.wait()).check();
  using below = await (await c.session(ref)).attenuate({ methods: ["put"] });
  assert.deepEqual((await below.describe()).grant.methods, ["put"]);
  await session.revoke(ref);
  await assert.rejects(below.events(), { codeName: "revoked" });
});

test("limits that can never be right are refused before anything is sent", async (t) => {
  const c = await client(t), session = await c.session("mooring://127.0.0.1:9/ses_01JABCDEFGHJKMNPQRSTVWXYZ0.s01JABCDEFGHJKMNPQRSTVWXYZ0#" + "A".repeat(43));
  const wrong: AttenuateOptions[] = [
    { rights: [] }, { rights: ["write" as "read"] }, { methods: [] }, { methods: ["purge"] }, { from: -1 }, { from: 1.5 }, { readKeys: [] }, { writeKeys: ["a b"] }, { label: "\n" },
    { lifetime: 0 }, { lifetime: 1, expires: 5 }, { expires: NaN }, { message: 5 as unknown as string }, { actor: "x".repeat(257) },
  ];
  for (const o of wrong) {
    await assert.rejects(session.attenuate(o), (err: { codeName?: string }) => err.codeName === "bad_argument" || err.codeName === "too_large", JSON.stringify(o));
  }
});

test("a live capability ends with its connection, and the next one does not", async (t) => {
  const { server, session } = await made(t), proxy = await Proxy.start(t, server), c = await client(t), theirs = await c.session(proxy.ref(session.ref));
  const live = await theirs.attenuate({ rights: ["read"] });
  assert.equal((await live.events()).cursor, 3);
  proxy.cut();
  while ((await live.events().catch((err: { codeName: string }) => err.codeName)) !== "disconnected");
  await assert.rejects(live.describe(), { codeName: "disconnected" });
  using again = await theirs.attenuate({ rights: ["read"] });
  assert.equal((await again.events()).cursor, 3);
});

test("a live capability is passed on in a call, to who has no ref", async (t) => {
  const { session } = await made(t), { port1, port2 } = new MessageChannel();
  t.after(() => { port1.close(); port2.close(); });
  class Helper extends RpcTarget {
    async work(cap: { events(options: object): Promise<{ events: { key: string }[] }>; attenuate(limits: object): Promise<object> }): Promise<string[]> {
      const { events } = await cap.events({ from: 0, understands: ["keys"] });
      return events.map((e) => e.key).concat(await cap.attenuate({ rights: ["append"] }).then(() => "wider", (err: Error) => err.message.split(":")[0]!));
    }
  }
  newMessagePortRpcSession(port1 as never, new Helper());
  const helper = newMessagePortRpcSession<Helper>(port2 as never);
  using live = await session.attenuate({ rights: ["read"], readKeys: ["message/"] });
  assert.deepEqual(await (helper as any).work(live.stub), ["", "widening"]);
});

test("a space is narrowed, too", async (t) => {
  const server = await TestServer.start(t), c = await client(t), space = await c.space(server.ref);
  using live = await space.attenuate({ rights: ["create", "list", "share"], label: "guests" });
  const { session, grant } = await live.describe();
  assert.deepEqual([session, grant.target, grant.rights, grant.label], [undefined, space.id, ["share", "create", "list"], "guests"]);
  const guest = await (await client(t)).space(await live.share({ rights: ["create"] }));
  const { session: theirs, batch } = guest.create();
  (await (await batch.commit()).wait()).check();
  assert.equal((await theirs.describe()).grant.owner, true);
  await assert.rejects(guest.attenuate({ rights: ["list"] }), { codeName: "widening" });
});

test("a space's ref and one that a live capability mints are sealed, too", async (t) => {
  const { server, c, session } = await made(t), key = await newSealKey(), space = await c.space(server.ref);
  using live = await session.attenuate({});
  const sealed = [await space.share({ rights: ["create"], seal: key.publicText }), await live.share({ rights: ["read"], seal: key.publicText })] as const;
  const holder = await client(t, { sealKey: key.privateKey }), other = await client(t);
  await assert.rejects((await other.space(sealed[0])).describe(), { codeName: "sealed" });
  await assert.rejects((await other.session(sealed[1])).describe(), { codeName: "sealed" });
  const { batch } = (await holder.space(sealed[0])).create();
  (await (await batch.commit()).wait()).check();
  assert.deepEqual((await (await holder.session(sealed[1])).describe()).grant.rights, ["read"]);
});
