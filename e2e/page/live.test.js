// A session seen live: streaming, a cut link, a killed server, the revoke.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, Visit } from "../rig/browser.js";
import { Server } from "../rig/mooring.js";
import { Proxy } from "../rig/proxy.js";
import { until } from "../rig/wait.js";
import { Agent, Share } from "../rig/writer.js";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** Notes every state of a part's text that the page is seen in, from now on. */
async function note(page, key) {
  await page.evaluate((k) => {
    globalThis.seen = [];
    const look = () => {
      const el = document.querySelector(`[data-key='${k}'] .md`);
      const text = (el?.textContent ?? "").replace(/\s+/g, " ").trim();
      if (globalThis.seen.at(-1) !== text) globalThis.seen.push(text);
    };
    new MutationObserver(look).observe(document.getElementById("log"), { subtree: true, childList: true, characterData: true });
  }, key);
}

/** Fails if a state that was noted is not a beginning of the whole. */
async function grewTo(page, whole) {
  const seen = await page.evaluate(() => globalThis.seen);
  for (const [i, text] of seen.entries()) {
    assert.ok(whole.startsWith(text), `state ${i} of ${seen.length} is no beginning of the text: …${text.slice(-60)}`);
    assert.ok(text.length >= (seen[i - 1]?.length ?? 0), `state ${i} is shorter than the one before`);
  }
  assert.equal(seen.at(-1), whole);
  return seen.length;
}

/** Fails if the page does not hold what the session does: every part in its place, once, with its text. */
async function same(visit, agent) {
  const held = (await agent.texts()).map(([key, text]) => [key, text.replace(/\s+/g, " ").trim()]);
  await until("the page holds what the session does", async () => {
    assert.deepEqual(await visit.texts(), held);
    return true;
  });
}

const words = (from, to) => Array.from({ length: to - from }, (_, i) => `word${from + i}${(from + i) % 25 === 24 ? ".\n\n" : " "}`);

/** Starts a turn and streams words into it; gives the whole text. `meanwhile` is called with how many are on their way. */
async function stream(agent, message, count, meanwhile = async () => {}) {
  await agent.begin(message, "prt_1");
  const all = words(0, count);
  let done = async () => {};
  for (const [i, word] of all.entries()) {
    done = await agent.append(message, "prt_1", word);
    await meanwhile(i, done);
  }
  await done();
  return all.join("").replace(/\s+/g, " ").trim();
}

test("what is written appears as it is written: in order, once, without a reload", async (t) => {
  const server = await Server.start(t);
  const agent = await Agent.start(t, server, { title: "Streaming" });
  await agent.put({ "message/msg_1": { id: "msg_1", role: "user", time: { created: 1795000000500 } }, "part/msg_1/prt_1": { id: "prt_1", messageID: "msg_1", type: "text", text: "Write, please." } });
  const visit = await Visit.begin(t, browser);
  const other = await Visit.begin(t, browser);
  await Promise.all([visit, other].map((v) => v.open(agent.link(server.origin))));
  await visit.page.evaluate(() => (globalThis.sameDocument = true));
  await note(visit.page, "part/msg_2/prt_1");

  const whole = await stream(agent, "msg_2", 300, async (i, done) => {
    if (i !== 100) return;
    await done();
    await visit.shows("word100");
    assert.match(await visit.page.locator("[data-key='message/msg_2']").textContent(), /writing|streaming/i);
  });
  await Promise.all([visit, other].map((v) => v.shows("word299")));
  assert.ok((await grewTo(visit.page, whole)) > 3, "the text came in pieces");
  await agent.finalize("msg_2");
  await visit.page.locator("[data-key='message/msg_2'] .state.streaming").waitFor({ state: "detached" });

  // What comes later stands behind, whatever its id; what is replaced stays in its place, what is removed goes.
  await agent.put({ "message/msg_0": { id: "msg_0", role: "user" }, "part/msg_0/prt_1": { type: "text", text: "Later." }, "part/msg_1/prt_1": { type: "text", text: "Write **more**, please." } });
  const removal = agent.session.batch();
  removal.remove("part/msg_0/prt_1");
  removal.put("part/msg_0/prt_2", { type: "text", text: "Later still." });
  await (await removal.commit()).wait();
  await visit.shows("Later still.");
  await until("both pages hold what the session does", async () => {
    const [one, two] = await Promise.all([visit.texts(), other.texts()]);
    assert.deepEqual(one, [["part/msg_1/prt_1", "Write more, please."], ["part/msg_2/prt_1", whole], ["part/msg_0/prt_2", "Later still."]]);
    assert.deepEqual(two, one);
    return true;
  });
  assert.ok(await visit.page.evaluate(() => globalThis.sameDocument), "the page was reloaded");
  visit.clean();
});

test("a cut link: the page says so, comes back, and nothing is missing or doubled", async (t) => {
  const server = await Server.start(t);
  const proxy = await Proxy.start(t, server);
  const agent = await Agent.start(t, server, { title: "A bad link" });
  const visit = await Visit.begin(t, browser);
  await visit.open(agent.link(proxy.origin));
  const whole = await stream(agent, "msg_1", 240, async (i, done) => {
    if (i % 80 === 40) {
      await done();
      await visit.shows(`word${i}`);
      proxy.refusing = true;
      proxy.cut();
      await visit.page.locator("#line[data-state=reconnecting]").waitFor();
      assert.match(await visit.state.textContent(), /reconnecting/i);
    }
    if (i % 80 === 60) {
      await done(); // written while nobody could see it
      proxy.refusing = false;
    }
    if (i % 80 === 70) proxy.cut(); // again, in the middle of catching up
  });
  await visit.shows("word239");
  await visit.live();
  assert.match(await visit.state.textContent(), /caught up/i);
  await same(visit, agent);
  assert.deepEqual(await visit.texts(), [["part/msg_1/prt_1", whole]]);
  visit.clean();
});

test("a killed server: the page goes on with the next one, from where it was", async (t) => {
  const server = await Server.start(t);
  const agent = await Agent.start(t, server, { title: "A killed server" });
  const visit = await Visit.begin(t, browser);
  await visit.open(agent.link(server.origin));
  await visit.page.evaluate(() => (globalThis.sameDocument = true));
  await stream(agent, "msg_1", 200, async (i, done) => {
    if (i % 90 !== 50) return;
    await done();
    await visit.shows(`word${i}`);
    await server.kill();
    await visit.page.locator("#line[data-state=reconnecting]").waitFor();
    await server.start();
  });
  await visit.shows("word199");
  await visit.live();
  await same(visit, agent);
  assert.ok(await visit.page.evaluate(() => globalThis.sameDocument), "the page was reloaded");
  visit.clean();
});

for (const kind of ["a link with a secret", "a public share"]) {
  test(`the revoke ends ${kind} at once, with the reason`, async (t) => {
    const server = await Server.start(t);
    let url, revoke;
    if (kind === "a public share") {
      const share = await Share.create(server, "ses_public", [
        { type: "session", data: { id: "ses_public", title: "Public" } },
        { type: "message", data: { id: "msg_1", sessionID: "ses_public", role: "user" } },
        { type: "part", data: { id: "prt_1", messageID: "msg_1", sessionID: "ses_public", type: "text", text: "Seen by all." } },
      ]);
      [url, revoke] = [share.url, () => share.remove()];
    } else {
      const agent = await Agent.start(t, server, { title: "Secret" });
      await agent.put({ "message/msg_1": { role: "user" }, "part/msg_1/prt_1": { type: "text", text: "Seen by few." } });
      [url, revoke] = [agent.link(server.origin), () => agent.revoke()];
    }
    const visit = await Visit.begin(t, browser);
    await visit.page.clock.install(); // so that minutes can pass at once
    await visit.open(url);
    await visit.shows(/Seen by/);
    await revoke();
    await visit.page.locator("#line[data-state=over]").waitFor();
    assert.match(await visit.state.textContent(), /revoked/i);
    const asked = visit.requests.length;
    await visit.page.clock.fastForward("05:00");
    assert.deepEqual(visit.requests.slice(asked), [], "the page asks again for what is over");
    await visit.page.goto(url.split("#")[0]);
    await visit.page.locator("main").getByText(/revoked/i).first().waitFor();
    assert.ok(!(await visit.page.content()).includes("Seen by"));
    visit.clean();
  });
}
