// Requests against a real server: who asks, who works on what is asked, and how it ends.

import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { type Client, jsonText, open, type OpenOptions, type Request } from "../src/index.js";
import { folder, TestServer } from "./rig.js";

async function client(t: TestContext, options: Partial<OpenOptions> = {}): Promise<Client> {
  const c = await open({ home: await folder(t, "home"), reconnect: { initial: 10, max: 100 }, outbox: { backoff: { initial: 10, max: 100 } }, ...options });
  t.after(() => c.close());
  return c;
}

test("one asks, another answers, and a ticket of a later process ends with the answer", { timeout: 30_000 }, async (t) => {
  const server = await TestServer.start(t), home = await folder(t, "asks"), asks = await client(t, { home }), { session, batch } = (await asks.space(server.ref)).create();
  const { ref } = batch.share({ rights: ["read", "answer"], answer: ["question"], actor: "owner/phone" });
  (await (await batch.commit()).wait()).check();
  const payload = jsonText('{"text" : "why?"}'), ticket = await session.ask("question", payload, { choices: [{ id: "a", label: "A" }, { id: "b" }], expires: 60_000 });
  await asks.close();
  const later = await client(t, { home }), waits = (await later.session(session.ref)).requestTicket(ticket.id, ticket.batch).wait();

  const phone = await (await client(t)).session(ref);
  assert.deepEqual((await phone.describe()).grant.answer, ["question"]);
  for await (const r of phone.requests(["question"])) {
    assert.deepEqual([r.id, r.state, r.payload, r.choices, r.asked.actor], [ticket.id, "open", '{"text" : "why?"}', [{ id: "a", label: "A" }, { id: "b" }], "owner"]);
    const b = phone.batch();
    b.answer(r.id, { choice: "a", payload: jsonText('{"n" : null}'), shown: r.digest });
    b.answer(r.id, { choice: "b" });
    b.ask("prompt", "no");
    const { outcomes } = await (await b.commit()).wait();
    assert.deepEqual(outcomes.map((o) => o.reason), ["none", "conflict", "missing_right"]);
    assert.equal(outcomes[1]!.cursor, outcomes[0]!.cursor);
    break;
  }
  const ended = await waits;
  assert.deepEqual([ended.state, ended.choice, ended.answer, ended.by?.actor], ["answered", "a", '{"n" : null}', "owner/phone"]);
  assert.deepEqual(await phone.listRequests(), []);
  assert.deepEqual((await phone.listRequests({ ended: true })).map((r) => r.state), ["answered"]);
});

test("what is claimed is another's until it is given back, and each change is followed", { timeout: 30_000 }, async (t) => {
  const server = await TestServer.start(t), c = await client(t), { session, batch } = (await c.space(server.ref)).create();
  const { ref } = batch.share({ rights: ["read", "ask", "answer"] });
  const { id } = batch.ask("prompt", { text: "go" });
  (await (await batch.commit()).wait()).check();
  const other = await (await client(t)).session(ref), seen: string[] = [];
  const follows = (async () => {
    for await (const r of session.followRequests()) {
      seen.push(`${r.state} ${r.claim?.worker ?? ""}${r.reason}`);
      if (seen.length === 5) break;
    }
  })();
  const act = async (does: (b: ReturnType<typeof session.batch>) => void, by = other): Promise<string[]> => {
    const b = by.batch();
    does(b);
    return (await (await b.commit()).wait()).outcomes.map((o) => o.reason);
  };
  while (seen.length < 1) await new Promise((r) => setTimeout(r, 5));
  const b = other.batch(), claim = b.claimRequest(id, 60_000, "w");
  (await (await b.commit()).wait()).check();
  assert.deepEqual(await act((b) => b.claimRequest(id, 1000), session), ["conflict"]);
  assert.deepEqual(await act((b) => b.answer(id)), ["conflict"]); // without its claim
  const given: Request[] = [];
  for await (const r of other.requests()) { // its own, as after a restart
    given.push(r);
    break;
  }
  assert.deepEqual(given.map((r) => [r.id, r.state, r.claim?.worker]), [[id, "claimed", "w"]]);
  assert.deepEqual(await act((b) => b.releaseRequest(id, claim)), ["none"]);
  const again = other.batch(), second = again.claimRequest(id, 60_000);
  again.endUnknown(id, second, "the agent died");
  (await (await again.commit()).wait()).check();
  assert.deepEqual(await act((b) => b.withdraw(id, "late"), session), ["request_ended"]);
  await follows;
  assert.deepEqual(seen, ["open ", "claimed w", "open ", "claimed ", "unknown the agent died"]);
});
