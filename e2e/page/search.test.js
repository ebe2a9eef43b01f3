// The search of a session's page: what it finds, where its results lead, and what is gone from it.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, phone, Visit } from "../rig/browser.js";
import { Server } from "../rig/mooring.js";
import { until } from "../rig/wait.js";
import { Agent, said, Share } from "../rig/writer.js";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** Searches on a page that is open, with the keyboard. */
async function search(page, words) {
  await page.locator("#title").click(); // no field has the focus
  await page.keyboard.press("/");
  await page.keyboard.type(words);
  await page.keyboard.press("Enter");
}

/** The results that are listed: [key, text, marked text] each. */
const results = (page) =>
  page.evaluate(() =>
    [...document.querySelectorAll("#found > li")].map((li) => [li.dataset.key, li.textContent.replace(/\s+/g, " ").trim(), [...li.querySelectorAll("mark")].map((m) => m.textContent).join(" ")]),
  );

/** Waits until the results are of these keys. */
const finds = (page, ...keys) =>
  until(`${keys.join(", ") || "nothing"} is found`, async () => {
    assert.deepEqual((await results(page)).map(([key]) => key), keys);
    return true;
  });

/** Waits until the search says something. */
const says = (page, text) =>
  until(`the search says ${text}`, async () => {
    const said = await page.locator("#find-state").textContent();
    assert.ok(said === text || (text && said.includes(text)), said);
    return true;
  });

/** Waits until an element is in sight, below the bar. */
const inSight = (page, id) =>
  until(`${id} is in sight`, async () => {
    const place = await page.evaluate((to) => document.getElementById(to)?.getBoundingClientRect().toJSON(), id);
    assert.ok(place && place.top > -5 && place.top < page.viewportSize().height - 20, JSON.stringify(place));
    return true;
  });

const lorem = "Nothing to see here, only many words that fill the page. ".repeat(40);

/** An agent with a long session: message n says what number it has. */
async function long(t, server, n = 60) {
  const agent = await Agent.start(t, server, { title: "The Lighthouse" });
  const values = {};
  for (let i = 0; i < n; i++) {
    values[`message/msg_${i}`] = { role: i % 2 === 0 ? "user" : "assistant" };
    values[`part/msg_${i}/prt_1`] = { type: "text", text: `number${i} ${lorem}` };
  }
  await agent.put(values);
  return agent;
}

test("a search lists what it finds, with the keyboard and with the mouse, and its results lead there", async (t) => {
  const server = await Server.start(t);
  const agent = await long(t, server);
  await agent.put({
    "part/msg_7/prt_2": { type: "tool", tool: "bash", state: { status: "completed", input: { command: "ls" }, output: "a LighthouseKeeper <b>&amp;" } },
    "todo/1": { title: "paint the lighthouse", state: "open" },
  });
  const visit = await Visit.begin(t, browser);
  const { page } = visit;
  await visit.open(agent.link(server.origin));
  const address = page.url();
  await search(page, "lighthouse");
  await finds(page, "todo/1", "part/msg_7/prt_2", "session");
  await says(page, "3 results");
  const [todo, tool, title] = await results(page);
  assert.ok(todo[1].startsWith("todo/1 /title · owner") && todo[2] === "lighthouse", `${todo}`);
  assert.ok(tool[1].startsWith("Assistant") && tool[1].endsWith("a LighthouseKeeper <b>&amp;") && tool[2] === "Lighthouse", `${tool}`);
  assert.ok(title[1].startsWith("Session") && title[1].endsWith("The Lighthouse") && title[2] === "Lighthouse", `${title}`);
  assert.equal(page.url(), address, "the words are in no address");
  assert.ok(await page.locator("#find").evaluate((el) => el.checkVisibility({ visibilityProperty: true })));
  assert.ok(!(await page.locator("#contents").evaluate((el) => el.checkVisibility({ visibilityProperty: true }))), "it stands where the contents were");

  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter"); // the second one
  await inSight(page, "p-msg_7/prt_2");
  assert.ok(await page.locator('[id="p-msg_7/prt_2"] details').first().evaluate((d) => d.open), "it is unfolded");
  await page.locator("#found li").first().click();
  await inSight(page, "k-todo/1");
  await page.locator("#found li").last().click();
  await page.waitForFunction(() => scrollY === 0);
  await search(page, "number59");
  await finds(page, "part/msg_59/prt_1");
  await page.locator("#found li").click();
  await inSight(page, "p-msg_59/prt_1");

  await search(page, "nowhere");
  await says(page, "Nothing is found");
  await finds(page);
  await search(page, "… !");
  await says(page, "the query has no word");
  await search(page, "number3");
  await finds(page, "part/msg_3/prt_1");
  await page.keyboard.press("Escape");
  assert.ok(!(await page.locator("#find").evaluate((el) => el.checkVisibility({ visibilityProperty: true }))));
  assert.ok(await page.locator("#contents").evaluate((el) => el.checkVisibility({ visibilityProperty: true })));
  assert.ok(await page.evaluate(() => document.activeElement.matches(".to-find")));
  await page.keyboard.press("/");
  await finds(page, "part/msg_3/prt_1"); // as they were
  await page.locator("#find input").fill("");
  await finds(page);
  await says(page, "");
  visit.clean();
});

test("more results come a page at a time", async (t) => {
  const server = await Server.start(t);
  const agent = await long(t, server, 45);
  const visit = await Visit.begin(t, browser);
  const { page } = visit;
  await visit.open(agent.link(server.origin));
  await search(page, "words");
  const keys = Array.from({ length: 45 }, (_, i) => `part/msg_${44 - i}/prt_1`);
  await finds(page, ...keys.slice(0, 20));
  await says(page, "20 results, and there may be others");
  await page.locator("#found-more").click();
  await finds(page, ...keys.slice(0, 40));
  assert.ok(await page.evaluate(() => document.activeElement === document.querySelectorAll("#found a")[20]), "the first new one has the focus");
  await page.locator("#found-more").click();
  await finds(page, ...keys);
  await page.locator("#found-more").waitFor({ state: "hidden" });
  // What changes is searched again, for as many.
  await agent.put({ "part/msg_44/prt_1": { type: "text", text: "other" } });
  await finds(page, ...keys.slice(1));
  visit.clean();
});

test("a result leads to what the page has not got yet", async (t) => {
  const server = await Server.start(t);
  const agent = await long(t, server);
  const visit = await Visit.begin(t, browser);
  const { page } = visit;
  let holds = false;
  await page.routeWebSocket(/\/live/, (near) => {
    const far = near.connectToServer();
    far.onMessage((m) => holds || near.send(m));
  });
  await visit.open(agent.link(server.origin));
  holds = true;
  await agent.put({ "message/msg_new": { role: "user" }, "part/msg_new/prt_1": { type: "text", text: `a lantern ${lorem}` }, "lamp/1": "another lantern" });
  await search(page, "lantern");
  await finds(page, "lamp/1", "part/msg_new/prt_1");
  assert.equal(await page.locator('[id="p-msg_new/prt_1"], [id="k-lamp/1"]').count(), 0, "they are not there yet");
  await page.locator("#found li").last().click();
  await inSight(page, "p-msg_new/prt_1");
  await page.locator("#found li").first().click();
  await inSight(page, "k-lamp/1");
  visit.clean();
});

test("text that streams is found, and what is purged is gone from the list", async (t) => {
  const server = await Server.start(t);
  const agent = await Agent.start(t, server, { title: "A stream" });
  const visit = await Visit.begin(t, browser);
  const { page } = visit;
  await visit.open(agent.link(server.origin));
  await agent.begin("msg_1", "prt_1");
  for (const word of ["harbour", "lantern"]) {
    await (await agent.append("msg_1", "prt_1", `the ${word} `))();
    await search(page, word);
    await finds(page, "part/msg_1/prt_1");
  }
  await agent.put({ "note/1": "a lantern, too" });
  await search(page, "lantern");
  await finds(page, "note/1", "part/msg_1/prt_1");
  const purge = agent.session.batch();
  purge.purge("part/msg_1/prt_1");
  await purge.commit();
  await finds(page, "note/1");
  assert.ok(!(await page.content()).includes("harbour"));
  // A change of the one that is left.
  await agent.put({ "note/1": "a lantern, and a buoy" });
  await until("it is shown as it is now", async () => (await results(page))[0]?.[1].includes("buoy"));
  await agent.revoke();
  await page.locator("#ended").waitFor();
  assert.ok(!(await page.content()).includes("buoy"));
  assert.equal(await page.locator("#find, .to-find").count(), 0, "nothing is left to search");
  visit.clean();
});

test("a search waits while the index is made, and says in a line why there is none", async (t) => {
  const server = await Server.start(t);
  const agent = await long(t, server, 3);
  const visit = await Visit.begin(t, browser);
  const { page } = visit;
  await visit.open(agent.link(server.origin));
  let times = 0;
  await page.route(/\?q=/, async (route) => {
    const reply = await route.fetch();
    const body = await reply.text();
    const indexing = body.replace('id="found"', 'id="found" data-indexing="true"').replace(/<p class="tally">[^<]*/, '<p class="tally">its index is being made');
    await route.fulfill({ response: reply, body: ++times < 3 ? indexing : body });
  });
  await search(page, "number2");
  await says(page, "its index is being made");
  await finds(page, "part/msg_2/prt_1");
  assert.equal(times, 3);
  await page.unroute(/\?q=/);
  await page.route(/\?q=/, (route) => route.fulfill({ status: 503, contentType: "application/json", body: '{"code":"unsupported","message":"not <now>"}' }));
  await search(page, "number1");
  await says(page, "not <now>");
  await finds(page);
  await page.unroute(/\?q=/);
  await page.route(/\?q=/, (route) => route.abort());
  await search(page, "number1");
  await says(page, "The server does not answer");
});

test("on a phone it lies over the session, and makes way for what it leads to", async (t) => {
  const server = await Server.start(t);
  const agent = await long(t, server);
  const visit = await Visit.begin(t, browser, { size: phone, hasTouch: true });
  const { page } = visit;
  await visit.open(agent.link(server.origin));
  await page.getByRole("link", { name: "Search" }).tap();
  await page.getByRole("search").getByRole("searchbox").fill("number40");
  await page.getByRole("search").getByRole("button").tap();
  await finds(page, "part/msg_40/prt_1");
  await page.locator("#found li").tap();
  await inSight(page, "p-msg_40/prt_1");
  await page.waitForFunction(() => !document.getElementById("find").checkVisibility({ visibilityProperty: true }));
  visit.clean();
});

test("a public share is searched without JavaScript, and its results lead there", async (t) => {
  const server = await Server.start(t);
  const items = [{ type: "session", data: { id: "ses_s", title: "Shared" } }];
  for (let i = 0; i < 30; i++) items.push(...said("ses_s", `msg_${String(i).padStart(2, "0")}`, `number${i} ${lorem}`));
  const share = await Share.create(server, "ses_s", items);
  const visit = await Visit.begin(t, browser, { javaScriptEnabled: false });
  const { page } = visit;
  await page.goto(share.url);
  await page.getByRole("link", { name: "Search" }).click();
  await page.getByRole("searchbox").fill("words page");
  await page.keyboard.press("Enter");
  await page.getByText("20 results").waitFor();
  await page.getByRole("link", { name: "More" }).click();
  await page.getByText("10 results").waitFor();
  await page.locator("li", { hasText: "number5 " }).getByRole("link").click();
  assert.equal(new URL(page.url()).hash, "#p-msg_05/prt_1");
  await inSight(page, "p-msg_05/prt_1");
  await page.goto(`${share.url}?q=nowhere`);
  await page.getByText("Nothing is found").waitFor();
  await page.getByRole("link", { name: "The session" }).click();
  assert.equal(page.url(), share.url);
  visit.clean();
});
