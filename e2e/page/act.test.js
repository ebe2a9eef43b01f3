// What can be done on a session's page: revert and fork, by mouse, keyboard and on a phone, and what is refused.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { axe, desktop, launch, phone, Visit } from "../rig/browser.js";
import { Server } from "../rig/mooring.js";
import { until } from "../rig/wait.js";
import { Agent } from "../rig/writer.js";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** A server with a session of three messages, and the link of one who may revert it. */
async function spoken(t, words = ["First.", "Second.", "Third."]) {
  const server = await Server.start(t);
  const agent = await Agent.start(t, server, { title: "A talk" });
  for (const [i, text] of words.entries()) await agent.put({ [`message/msg_${i + 1}`]: { role: i % 2 ? "assistant" : "user" }, [`part/msg_${i + 1}/prt_1`]: { type: "text", text } });
  const ref = await agent.share({ rights: ["read", "append", "revert"], actor: "owner/pilot" });
  return { server, agent, ref, link: agent.link(server.origin, ref) };
}

const dialog = (page) => page.getByRole("dialog");
const texts = async (v) => (await v.texts()).map(([, text]) => text);
const messages = (v, want) => until("the messages", async () => (assert.deepEqual(await texts(v), want), true));
const focus = (page) => page.evaluate(() => document.activeElement.outerHTML.slice(0, 120));

test("a message is reverted to and shown again, with the keyboard alone; others see it", async (t) => {
  const { link, agent, server } = await spoken(t);
  const visit = await Visit.begin(t, browser);
  const other = await Visit.begin(t, browser);
  for (const v of [visit, other]) await v.hurries();
  await visit.open(link);
  await other.open(agent.link(server.origin));
  const { page } = visit;
  await until("the buttons are there", async () => (await page.locator(".act").count()) === 3);
  assert.equal(await other.page.locator(".act").count(), 0, "a reader has no button");

  // Cancelled, it does nothing, and the focus is where it was.
  await page.locator("#m-msg_2 .act").focus();
  await page.keyboard.press("Enter");
  await dialog(page).waitFor();
  assert.match(await dialog(page).textContent(), /Second\..*and the one after it/);
  await page.keyboard.press("Escape");
  await dialog(page).waitFor({ state: "detached" });
  assert.match(await focus(page), /class="act"/);

  await page.keyboard.press("a");
  await page.getByRole("button", { name: "Revert to before this" }).press("Enter");
  await messages(visit, ["First."]);
  await messages(other, ["First."]);
  await page.getByText("Reverted by owner/pilot").waitFor();
  assert.equal(await other.page.getByRole("button", { name: "Show it again" }).count(), 0);

  await page.getByRole("button", { name: "Show it again" }).press("Enter");
  await dialog(page).waitFor();
  await dialog(page).getByRole("button", { name: "Show it again" }).press("Enter");
  await messages(visit, ["First.", "Second.", "Third."]);
  await page.keyboard.press("?");
  await page.getByText("do something from the message in view on").waitFor();
  visit.clean();
  other.clean();
});

test("a refusal is said in the server's words, and the same request is sent again when no answer came", async (t) => {
  const { link, agent } = await spoken(t);
  const visit = await Visit.begin(t, browser);
  await visit.hurries();
  await visit.open(link);
  const { page } = visit;
  await page.locator("#m-msg_2 .act").focus();
  await page.keyboard.press("Enter");
  const sent = [];
  let cut = true;
  await page.route("**/do", async (route) => {
    sent.push(route.request().postData());
    if (!cut) return route.continue();
    cut = false;
    await route.fetch(); // it is done, and the answer is lost
    await route.abort();
  });
  await page.getByRole("button", { name: "Revert to before this" }).click();
  await messages(visit, ["First."]);
  assert.equal(new Set(sent).size, 1);

  // What is there no more, the server refuses with the words that the command prints.
  await page.getByRole("button", { name: "Show it again" }).click();
  await dialog(page).getByRole("button", { name: "Show it again" }).click();
  await messages(visit, ["First.", "Second.", "Third."]);
  await visit.live();
  await page.route("**/do", async (route) => {
    const batch = agent.session.batch();
    batch.remove("part/msg_3/prt_1");
    batch.remove("message/msg_3");
    (await (await batch.commit()).wait()).check();
    await route.continue();
  });
  await page.locator("#m-msg_3 .act").click();
  await page.getByRole("button", { name: "Revert to before this" }).click();
  await page.getByRole("alert").getByText("there is no message/msg_3 with its message: revert to one that is there").waitFor();
  await page.keyboard.press("Escape");
  await dialog(page).waitFor({ state: "detached" });
  visit.clean();
});

test("a fork from a message, under the space that is open in another tab; its link is shown once", async (t) => {
  const { server, agent } = await spoken(t);
  const visit = await Visit.begin(t, browser);
  await visit.page.goto(`${server.origin}/sessions#${await server.owner()}`);
  await visit.page.locator("ul.sessions").waitFor();
  const tab = await visit.tab();
  await tab.open(agent.link(server.origin));
  const { page } = tab;
  await page.locator("#m-msg_2 .act").click();
  await page.getByLabel("What it is for").fill('<img src=x onerror="window.pwned=1">');
  await page.getByRole("button", { name: "Fork from here" }).click();
  const made = await page.getByLabel("The new link").inputValue();
  assert.match(made, /\/s\/ses_[^#]+#[\w-]{43}$/);
  assert.ok(!server.log.includes(made.split("#")[1]), "the secret stands in the log");
  assert.ok(!tab.requests.some((url) => url.includes(made.split("#")[1])), "the secret is in an address");
  await page.getByRole("button", { name: "Close" }).click();
  await dialog(page).waitFor({ state: "detached" });
  await until("it is shown once", async () => !(await page.content()).includes(made.split("#")[1]));
  const fork = await Visit.begin(t, browser);
  await fork.open(made);
  await messages(fork, ["First.", "Second."]);
  assert.equal(await fork.page.evaluate(() => window.pwned), undefined);
  for (const v of [visit, tab, fork]) v.clean();
});

test("hostile words in a dialog are words", async (t) => {
  const evil = `</strong><img src=x onerror="window.pwned=1"><script>window.pwned=1</script>`;
  const { link } = await spoken(t, [evil, evil]);
  const visit = await Visit.begin(t, browser);
  await visit.open(link);
  await visit.page.locator("#m-msg_1 .act").click();
  await dialog(visit.page).waitFor();
  assert.ok((await dialog(visit.page).textContent()).includes("<img src=x"));
  assert.equal(await dialog(visit.page).locator("img, script").count(), 0);
  assert.equal(await visit.page.evaluate(() => window.pwned), undefined);
  visit.clean();
});

test("no page may be put into a frame, where a click could be led", async (t) => {
  const { link, server } = await spoken(t);
  const visit = await Visit.begin(t, browser);
  await visit.page.goto(`${server.origin}/assets/none`);
  await visit.page.setContent(`<iframe src="${link}"></iframe>`);
  await until("the frame is refused", async () => visit.page.frames().at(-1).url().startsWith("chrome-error:"));
});

for (const [device, size] of Object.entries({ desktop, phone })) {
  test(`axe finds nothing in a dialog, and nothing is wider than the window: ${device}`, async (t) => {
    const { server, agent } = await spoken(t);
    const visit = await Visit.begin(t, browser, { size, hasTouch: device === "phone" });
    await visit.page.goto(`${server.origin}/sessions#${await server.owner()}`);
    await visit.page.locator("ul.sessions").waitFor();
    await visit.open(`${server.origin}/sessions/${agent.session.id}`);
    const { page } = visit;
    await page.evaluate(axe);
    const looks = async (what) => {
      for (const theme of ["light", "dark"]) {
        await page.emulateMedia({ colorScheme: theme });
        const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
        assert.deepEqual(violations.flatMap((v) => v.nodes.map((n) => `${v.id}: ${n.target.join(" ")}: ${n.failureSummary}`)), [], `${what}, ${theme}`);
      }
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0, what);
      if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/${device}-${what.replaceAll(" ", "-")}.png` });
    };
    await page.locator("#m-msg_2 .act").click();
    await looks("the dialog");
    await page.getByRole("button", { name: "Fork from here" }).click();
    await page.getByLabel("The new link").waitFor();
    await looks("the link");
    await page.getByRole("button", { name: "Close" }).click();
    await page.locator("#m-msg_2 .act").click();
    await page.getByRole("button", { name: "Revert to before this" }).click();
    await page.getByRole("button", { name: "Show it again" }).waitFor();
    await page.evaluate(axe);
    await looks("reverted");
    await agent.revoke(); // nothing of it shows on this page
    visit.clean();
  });
}
