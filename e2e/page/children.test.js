// The sessions below a session, opened from its page by a ref that reaches them.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { axe, desktop, launch, phone, Visit } from "../rig/browser.js";
import { Server } from "../rig/mooring.js";
import { until } from "../rig/wait.js";
import { Agent } from "../rig/writer.js";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** A session that has started another, which has started a third, and a ref that reaches them. */
async function family(t, options) {
  const server = await Server.start(t);
  const agent = await Agent.start(t, server, { title: "The captain" });
  const said = (words) => ({ "message/msg_1": { role: "user" }, "part/msg_1/prt_1": { type: "text", text: words } });
  await agent.put(said("Caulk the seams."));
  const child = await agent.bear({ title: "The mate", part: "part/msg_1/prt_1" });
  await child.put(said("Fetch the oakum."));
  const grand = await child.bear({ title: "The boy", part: "part/msg_1/prt_1" });
  await grand.put(said("Here is the oakum."));
  const ref = await agent.share({ rights: ["read", "append", "share", "revert"], children: ["read", "revert"] });
  const visit = await Visit.begin(t, browser, options);
  return { server, agent, child, grand, ref, visit, link: agent.link(server.origin, ref) };
}

const title = (page) => page.locator("#title").textContent();
const arrives = (page, name) => until(name, async () => (await title(page)) === name);

test("children are opened from the part that started them, and back, with the keyboard; they are live, and end with the ref", async (t) => {
  const { server, agent, child, grand, ref, visit, link } = await family(t);
  const { page } = visit;
  await visit.open(link);
  const at = `${server.origin}/s/${ref.id}`;
  await page.locator("#log").getByRole("link", { name: "a session of its own" }).press("Enter");
  await arrives(page, "The mate");
  await visit.live();
  await visit.shows("Fetch the oakum.");
  assert.equal(page.url(), `${at}/${child.session.id}`);
  await page.locator("#children summary").press("Enter");
  await page.locator("#children").getByRole("link", { name: grand.session.id }).press("Enter");
  await arrives(page, "The boy");
  await visit.live();
  assert.equal(page.url(), `${at}/${grand.session.id}`);

  // Another tab of this browser opens it by its address alone; another browser does not.
  const tab = await visit.tab();
  await tab.open(page.url());
  await tab.shows("Here is the oakum.");
  const other = await Visit.begin(t, browser);
  await other.page.goto(page.url());
  await other.page.getByText("This link has no secret").waitFor();
  assert.ok(!(await other.page.content()).includes("oakum"));

  // The way back leads to what started it.
  await page.getByRole("link", { name: child.session.id }).press("Enter");
  await arrives(page, "The mate");
  await visit.live();
  assert.equal(page.url(), `${at}/${child.session.id}#p-msg_1/prt_1`);
  await child.put({ "part/msg_1/prt_2": { type: "text", text: "And the pitch." } });
  await visit.shows("And the pitch.");

  // Its rights there: no Fork, no Access; a revert is the ref's.
  await page.locator("#m-msg_1 .act").press("Enter");
  await page.getByRole("dialog").getByRole("button", { name: "Revert to before this" }).waitFor();
  assert.equal(await page.getByRole("dialog").getByRole("heading", { name: "Fork" }).count(), 0);
  await page.getByRole("button", { name: "Revert to before this" }).press("Enter");
  await page.locator("#reverted").waitFor();
  assert.equal(await page.getByRole("link", { name: "Access" }).count(), 0);

  const secret = ref.text.split("#")[1];
  for (const v of [visit, tab]) assert.ok(!v.requests.some((url) => url.includes(secret)), "the secret is in an address");
  assert.ok(!(await page.content()).includes(secret) && !server.log.includes(secret), "the secret is in the page or the log");
  assert.deepEqual(await page.context().cookies(), []);

  await agent.session.revoke(ref);
  for (const v of [visit, tab]) await v.page.locator("#line[data-state=over]").waitFor();
  assert.ok(!(await page.content()).includes("pitch"));
  await page.reload();
  await page.getByText("revoked").first().waitFor();
  visit.clean();
  tab.clean();
});

test("what a ref does not reach is refused with the same words as what is not there, and the page above stays open", async (t) => {
  const { server, agent, child, visit } = await family(t);
  const { page } = visit;
  const stranger = await Agent.start(t, server);
  const said = [];
  const ask = async (above, id) => {
    await page.goto(`${above}/${id}`);
    await page.locator("#state").getByText(/./).waitFor();
    await until("the answer", async () => !(await page.locator("#state").textContent()).startsWith("Opening"));
    said.push(await page.locator("#state").textContent());
  };
  const absent = "ses_01M8JZD4N5VGBDXYC0RT5JRAES";
  for (const children of [undefined, ["read"]]) {
    const ref = await agent.share({ rights: ["read"], ...(children && { children }) });
    await visit.open(agent.link(server.origin, ref));
    assert.equal(await page.locator("#children a[href*='/ses_']").count(), children ? 1 : 0);
    const above = `${server.origin}/s/${ref.id}`;
    for (const id of [absent, stranger.session.id, children ? agent.session.id : child.session.id]) await ask(above, id);
    await visit.open(above); // by the token that the tab has kept
  }
  assert.equal(new Set(said.slice(0, 3)).size, 1, said.join("\n"));
  assert.equal(new Set(said.slice(3)).size, 1, said.join("\n"));
  assert.match(said[0], /does not reach/);
  assert.match(said[3], /no such child/);
});

test("signing out on a child's page ends the page above, too", async (t) => {
  const { server, child, ref, visit, link } = await family(t);
  const { page } = visit;
  await visit.open(link);
  const tab = await visit.tab();
  await tab.open(`${server.origin}/s/${ref.id}/${child.session.id}`);
  await tab.page.locator("[data-do=close]").click();
  for (const v of [tab, visit]) {
    await v.page.locator("#gate").waitFor();
    assert.equal(v.page.url(), `${server.origin}/s/${ref.id}`);
  }
  visit.clean();
});

for (const [device, size] of Object.entries({ desktop, phone })) {
  test(`axe finds nothing on a child's page and on the one above: ${device}`, async (t) => {
    const { child, visit, link } = await family(t, { size, hasTouch: device === "phone" });
    const { page } = visit;
    const looks = async (what) => {
      await page.locator("#children summary").click();
      await page.evaluate(axe);
      for (const theme of ["dark", "light"]) {
        await page.emulateMedia({ colorScheme: theme });
        const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
        assert.deepEqual(violations.flatMap((v) => v.nodes.map((n) => `${v.id}: ${n.target.join(" ")}: ${n.failureSummary}`)), [], `${what}, ${theme}`);
      }
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0, what);
      if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/${device}-${what.replaceAll(" ", "-")}.png` });
    };
    await visit.open(link);
    await page.locator("#log").getByRole("link", { name: "a session of its own" }).waitFor();
    await looks("above");
    await page.locator("#children").getByRole("link", { name: child.session.id }).click();
    await arrives(page, "The mate");
    await visit.live();
    await looks("a child");
    visit.clean();
  });
}
