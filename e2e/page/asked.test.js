// Asking and answering on a session's page: the form, the cards, two who answer at once, a link that is down, and who may only read.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { axe, desktop, launch, phone, Visit } from "../rig/browser.js";
import { Server } from "../rig/mooring.js";
import { until } from "../rig/wait.js";
import { Agent } from "../rig/writer.js";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** A server with a session, and the link of one who may ask and answer. */
async function begun(t, limits = {}) {
  const server = await Server.start(t);
  const agent = await Agent.start(t, server, { title: "A talk" });
  await agent.put({ "message/msg_1": { role: "user" }, "part/msg_1/prt_1": { type: "text", text: "First." } });
  const ref = await agent.share({ rights: ["read", "ask", "answer"], actor: "owner/phone", ...limits });
  return { server, agent, session: agent.session, link: agent.link(server.origin, ref) };
}

async function commit(session, fill) {
  const batch = session.batch();
  fill(batch);
  return (await (await batch.commit()).wait()).check();
}

const permission = (batch, id, command = `make ${id}`) => batch.ask("permission", { command }, { id, choices: [{ id: "once", label: "Allow once" }, { id: "no", label: "Reject" }] });
const card = (page, id) => page.locator(`#requests [data-request="${id}"]`);

/** Fails if axe finds something, in either theme, or something is wider than the window. */
async function looks(page) {
  await page.evaluate(axe);
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    assert.deepEqual(violations.flatMap((v) => v.nodes.map((n) => `${v.id}: ${n.target.join(" ")}: ${n.failureSummary}`)), [], colorScheme);
  }
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0);
}

test("a prompt is asked on a phone, the agent answers it, and the card says so", async (t) => {
  const { session, link } = await begun(t);
  const visit = await Visit.begin(t, browser, { size: phone });
  await visit.open(link);
  const { page } = visit;
  await page.getByLabel("Prompt").fill("run <b>the</b> tests");
  await page.getByLabel("Prompt").press("Control+Enter");
  const worked = (async () => {
    for await (const r of session.requests(["prompt"])) {
      assert.equal(JSON.parse(r.payload).text, "run <b>the</b> tests");
      assert.equal(r.asked.actor, "owner/phone");
      await commit(session, (b) => b.answer(r.id, { claim: b.claimRequest(r.id, 60_000), payload: { text: "All pass." } }));
      return r.id;
    }
  })();
  await page.getByText("run <b>the</b> tests", { exact: true }).waitFor(); // and not what says that it is being sent
  const id = await worked;
  await card(page, id).getByText("Answered by owner").waitFor();
  await card(page, id).getByText("All pass.").waitFor();
  await looks(page);
  visit.clean();
});

test("what was asked here can be taken back while nobody works on it, and what others ask cannot", async (t) => {
  const { session, link } = await begun(t);
  const visit = await Visit.begin(t, browser, { size: phone });
  await visit.open(link);
  const { page } = visit;
  await commit(session, (b) => b.ask("prompt", { text: "another's" }, { id: "other" }));
  await page.getByLabel("Prompt").fill("never mind");
  await page.getByRole("button", { name: "Send" }).click();
  await page.getByRole("button", { name: "Withdraw" }).waitFor();
  await card(page, "other").waitFor();
  assert.equal(await page.getByRole("button", { name: "Withdraw" }).count(), 1);
  await looks(page);
  await page.getByRole("button", { name: "Withdraw" }).click();
  await page.getByText("Withdrawn by owner/phone").waitFor();
  assert.equal(await page.getByRole("button", { name: "Withdraw" }).count(), 0);
  assert.deepEqual((await session.listRequests()).map((r) => r.id), ["other"]);
  await page.getByLabel("Prompt").fill("begun");
  await page.getByRole("button", { name: "Send" }).click();
  await page.getByRole("button", { name: "Withdraw" }).waitFor();
  const [id] = (await session.listRequests()).map((r) => r.id).filter((id) => id !== "other");
  await commit(session, (b) => b.claimRequest(id, 60_000));
  await card(page, id).getByText("Being worked on").waitFor();
  assert.equal(await card(page, id).getByRole("button").count(), 0);
  visit.clean();
});

test("a permission is answered with the keyboard, bound to what is shown; who may only read has no button", async (t) => {
  const { server, agent, session, link } = await begun(t, { ask: ["stop"], answer: ["permission"] });
  const visit = await Visit.begin(t, browser, { size: desktop });
  const reader = await Visit.begin(t, browser);
  await visit.open(link);
  await reader.open(agent.link(server.origin));
  const { page } = visit;
  await commit(session, (b) => permission(b, "per_1", "rm -rf <build>"));
  await commit(session, (b) => b.ask("question", { text: "Which?" }, { id: "que_1" }));
  await card(page, "per_1").getByText("rm -rf <build>").waitFor();
  await card(page, "que_1").getByText("Which?").waitFor();
  assert.equal(await card(page, "que_1").getByRole("button").count(), 0, "of another kind");
  assert.equal(await page.getByLabel("Prompt").count(), 0, "it may not prompt");
  await card(reader.page, "per_1").getByText("Allow once").waitFor();
  assert.equal(await reader.page.locator("#requests button, #composer").count(), 0);
  await looks(page);
  await card(page, "per_1").getByRole("button", { name: "Allow once" }).focus();
  await page.keyboard.press("Enter");
  await card(reader.page, "per_1").getByText("Answered by owner/phone").waitFor();
  await card(page, "per_1").getByText("Answered by owner/phone").waitFor();
  const [answered] = (await session.listRequests({ ended: true })).filter((r) => r.id === "per_1");
  assert.deepEqual([answered.state, answered.choice], ["answered", "once"]);
  visit.clean();
  reader.clean();
});

test("what is asked while the link is down waits, outlives the tab, and is asked once", async (t) => {
  const { session, link } = await begun(t);
  const visit = await Visit.begin(t, browser);
  await visit.open(link);
  const { page } = visit;
  const cut = (route) => route.abort();
  await page.route("**/do", cut);
  await page.getByLabel("Prompt").fill("later");
  await page.getByRole("button", { name: "Send" }).click();
  await page.getByText("Waiting to be sent: later").waitFor();
  assert.deepEqual(await session.listRequests(), []);
  await page.reload(); // it is cut there, too
  await page.getByText("Waiting to be sent: later").waitFor();
  await page.evaluate(() => {
    const [[place, waiting]] = Object.entries(localStorage).filter(([name]) => name.startsWith("mooring-asked:"));
    localStorage.setItem(place.replace(document.body.dataset.own, "another"), waiting.replace("later", "under another ref"));
  });
  await page.reload();
  await page.getByText("Waiting to be sent: later").waitFor();
  let done = 0;
  await page.unroute("**/do", cut);
  await page.route("**/do", async (route) => {
    if (done++ > 0) return route.continue();
    await route.fetch(); // it is done, and the answer is lost
    await route.abort();
  });
  await page.locator("#requests").getByText("later").waitFor();
  await until("it waits no more", async () => (await page.getByText("Waiting to be sent").count()) === 0);
  const list = await session.listRequests();
  assert.deepEqual(list.map((r) => JSON.parse(r.payload).text), ["later"]);
  assert.ok(done >= 2, "it was sent again");
});

test("a prompt that is refused is there to be sent again, and what only the agent answers has no form", async (t) => {
  const { session, link } = await begun(t, { ask: ["prompt"] });
  const visit = await Visit.begin(t, browser);
  await visit.open(link);
  const { page } = visit;
  const another = (route) => route.continue({ postData: route.request().postData().replace('"kind":"prompt"', '"kind":"own"') }); // which it may not ask
  await page.route("**/do", another);
  await page.getByLabel("Prompt").fill("do it");
  await page.getByRole("button", { name: "Send" }).click();
  await page.locator("#composer .refused", { hasText: /./ }).waitFor();
  assert.equal(await page.getByLabel("Prompt").inputValue(), "do it");
  assert.equal(await page.getByText("Waiting to be sent").count(), 0);
  await page.unroute("**/do", another);
  await page.getByRole("button", { name: "Send" }).click();
  await page.locator("#requests").getByText("do it").waitFor();
  await commit(session, (b) => b.ask("question", { text: "Which?" }, { id: "que" }));
  await card(page, "que").getByRole("button", { name: "Answer" }).waitFor();
  assert.equal(await page.getByRole("button", { name: "Answer" }).count(), 1, "a prompt's card has none");
});

test("a stop names the turn that is open, and is offered as long as it is", async (t) => {
  const { session, link } = await begun(t);
  const visit = await Visit.begin(t, browser);
  await visit.open(link);
  const { page } = visit;
  const stop = page.getByRole("button", { name: "Stop this answer" });
  assert.equal(await stop.count(), 0);
  await commit(session, (b) => b.begin("msg_2", { role: "assistant" }));
  await stop.click();
  for await (const r of session.requests(["stop"])) {
    assert.equal(r.message, "msg_2");
    await commit(session, (b) => {
      b.answer(r.id);
      b.finalize("msg_2", "aborted");
    });
    break;
  }
  await stop.waitFor({ state: "hidden" });
  visit.clean();
});

test("a stop names the answer that is not complete, where there are no turns", async (t) => {
  const { agent, session, link } = await begun(t);
  const visit = await Visit.begin(t, browser);
  await visit.open(link);
  const stop = visit.page.getByRole("button", { name: "Stop this answer" });
  await agent.put({ "message/msg_2": { role: "assistant", time: { created: 1 } } });
  await stop.click();
  await until("it is asked", async () => (await session.listRequests()).some((r) => r.kind === "stop" && r.message === "msg_2"));
  await agent.put({ "message/msg_2": { role: "assistant", time: { created: 1, completed: 2 } } });
  await stop.waitFor({ state: "hidden" });
  visit.clean();
});

test("a page of another origin can ask nothing, nor can one without the page's token", async (t) => {
  const { session, link } = await begun(t);
  const visit = await Visit.begin(t, browser);
  await visit.open(link);
  const at = new URL(link);
  const body = { id: "01K00000000000000000000000", do: "ask", kind: "prompt", text: "from elsewhere" };
  const status = await visit.page.evaluate(async ({ path, body }) => (await fetch(`${path}/do`, { method: "POST", headers: { "Content-Type": "application/json", "X-Mooring": "1" }, body: JSON.stringify(body) })).status, { path: at.pathname, body });
  assert.equal(status, 401);
  const other = await Visit.begin(t, browser);
  await other.page.route("http://evil.test/", (route) => route.fulfill({ contentType: "text/html", body: "<p>hello" }));
  await other.page.goto("http://evil.test/");
  const got = await other.page.evaluate(async ({ url, body }) => {
    const sends = [{ "Content-Type": "application/json", "X-Mooring": "1" }, { "Content-Type": "text/plain" }];
    return Promise.all(sends.map((headers) => fetch(url, { method: "POST", headers, body: JSON.stringify(body), credentials: "include" }).then((r) => r.status, () => "refused")));
  }, { url: `${at.origin}${at.pathname}/do`, body });
  assert.deepEqual(got, ["refused", "refused"]);
  await other.page.setContent(`<iframe src="${link}"></iframe>`);
  await until("it is in no frame", async () => other.page.frames().at(-1).url().startsWith("chrome-error:"));
  assert.deepEqual(await session.listRequests({ ended: true }), []);
});
