// The list of sessions: signing in, searching, sorting.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, Visit } from "../rig/browser.js";
import { Server } from "../rig/mooring.js";
import { until } from "../rig/wait.js";
import { Agent, Share } from "../rig/writer.js";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const titles = ["Apples", "bananas", "Cherries & <b>cream</b>", "Dates", "elderberries"];

/** A server with a session a title, the last one shared last. */
async function filled(t) {
  const server = await Server.start(t);
  for (const [i, title] of titles.entries()) {
    await Share.create(server, `ses_${i}`, [
      { type: "session", data: { id: `ses_${i}`, title } },
      { type: "message", data: { id: "msg_1", sessionID: `ses_${i}`, role: "user" } },
      { type: "part", data: { id: "prt_1", messageID: "msg_1", sessionID: `ses_${i}`, type: "text", text: `About ${title}.` } },
    ]);
  }
  return server;
}

/** The page's tokens, as a text. */
const tokens = (page) => page.evaluate(() => Object.entries(sessionStorage).filter(([name]) => name.startsWith("mooring-token:")).flat().join(" "));

const listed = (page) => page.locator("ul.sessions li h2").allTextContents();

/** Waits until the page lists these titles: its list comes after the page itself. */
const lists = (page, want, why) => until(why ?? "the list", async () => {
  assert.deepEqual(await listed(page), want);
  return true;
});

test("the holder of the owner's ref signs in, searches, sorts, and opens a session", async (t) => {
  const server = await filled(t);
  const owner = await server.owner();
  const visit = await Visit.begin(t, browser);
  const { page } = visit;
  await page.goto(`${server.origin}/sessions`);
  assert.ok(!(await page.content()).includes("Apples"), "nothing is listed before");
  await page.getByLabel("Ref").fill(`${owner.split("#")[0]}#${"A".repeat(43)}`);
  await page.keyboard.press("Enter");
  await page.locator("#state").getByText(/./).waitFor();
  assert.equal(await tokens(page), "");
  await page.getByLabel("Ref").fill(owner);
  await page.keyboard.press("Enter");
  await page.locator("ul.sessions").waitFor();
  await lists(page, titles.toReversed(), "the last changed comes first");
  assert.deepEqual(await page.context().cookies(), []);

  await page.getByLabel("Order").selectOption("oldest");
  await page.getByRole("button", { name: "Show" }).click();
  await page.waitForURL(/order=oldest/);
  await lists(page, titles);
  await page.getByLabel("Search").fill("ERR");
  await page.keyboard.press("Enter");
  await page.waitForURL(/q=ERR/);
  await lists(page, ["Cherries & <b>cream</b>", "elderberries"]);
  await page.getByLabel("Search").fill("ses_3");
  await page.keyboard.press("Enter");
  await page.waitForURL(/q=ses_3/);
  await page.getByRole("link", { name: "Dates" }).click();
  await visit.live();
  await visit.shows("About Dates.");
  visit.clean();
});

test("a ref in the fragment signs in too, and is gone from the address", async (t) => {
  const server = await filled(t);
  const owner = await server.owner();
  const visit = await Visit.begin(t, browser);
  await visit.page.goto(`${server.origin}/sessions#${owner}`);
  await visit.page.locator("ul.sessions").waitFor();
  assert.equal(visit.page.url(), `${server.origin}/sessions`);
  const past = await visit.page.evaluate(() => navigation.entries().map((e) => e.url));
  assert.ok(!past.join().includes(owner.split("#")[1]), "the secret stands in the history");
  assert.ok(!server.log.includes(owner.split("#")[1]), "the secret stands in the log");
  visit.clean();
});

test("a ref of one session opens no list", async (t) => {
  const server = await Server.start(t);
  const agent = await Agent.start(t, server);
  const { page } = await Visit.begin(t, browser);
  await page.goto(`${server.origin}/sessions#${agent.reader.text}`);
  await page.locator("#state").getByText(/session/i).waitFor();
  assert.equal(await page.locator("ul.sessions").count(), 0);
  assert.equal(await tokens(page), "");
});

test("another ref's link, opened while the page is still coming, is answered once that is there", async (t) => {
  const server = await filled(t);
  const owner = await server.owner();
  const { page } = await Visit.begin(t, browser);
  await page.addInitScript(() => { // all of the page comes, and its end when the test says so
    const real = window.fetch;
    window.fetch = async (...args) => {
      const reply = await real(...args);
      if (!args[1]?.redirect || args[1].method || !reply.ok) return reply;
      const whole = new Uint8Array(await reply.arrayBuffer());
      const body = new ReadableStream({
        start(to) {
          to.enqueue(whole);
          window.end = () => to.close();
        },
      });
      return new Response(body, { status: reply.status, headers: reply.headers });
    };
  });
  const link = (ref) => `${server.origin}/sessions#${ref.split("/").at(-1)}`;
  await page.goto(link(owner));
  await page.locator("ul.sessions").waitFor();
  await page.goto(link(`${owner.split("#")[0]}#${"A".repeat(43)}`));
  await page.evaluate(() => window.end());
  await page.getByRole("alert").getByText("This is the list from before").waitFor();
  assert.equal(page.url(), `${server.origin}/sessions`, "the secret is gone from the address");
});

test("another ref's link, opened while signed in, takes the list's place, or says why not", async (t) => {
  const server = await filled(t);
  const owner = await server.owner();
  const visit = await Visit.begin(t, browser);
  const { page } = visit;
  const link = (ref) => `${server.origin}/sessions#${ref.split("/").at(-1)}`;
  await page.goto(link(owner));
  await page.locator("ul.sessions").waitFor();
  const before = await tokens(page);
  assert.notEqual(before, "");
  await page.goto(link(`${owner.split("#")[0]}#${"A".repeat(43)}`)); // of the same page: it is not loaded anew
  await page.getByRole("alert").getByText("This is the list from before").waitFor();
  assert.equal(page.url(), `${server.origin}/sessions`, "the secret is gone from the address");
  await lists(page, titles.toReversed());
  assert.equal(await tokens(page), before);
  const loaded = page.waitForEvent("load"); // by the page itself, once it has the token
  await page.goto(link(owner));
  await loaded;
  await page.locator("ul.sessions").waitFor();
  assert.equal(page.url(), `${server.origin}/sessions`);
});
