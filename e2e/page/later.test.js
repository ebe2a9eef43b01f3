// What a long session's page has at first, and that the rest comes when it is wanted.

import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { after, before, test } from "node:test";
import { axe, launch, Visit } from "../rig/browser.js";
import { behind, lost } from "../rig/front.js";
import { full } from "../rig/full.js";
import { long } from "../rig/long.js";
import { Server } from "../rig/mooring.js";
import { until } from "../rig/wait.js";
import { Agent, Share } from "../rig/writer.js";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** A share of so many parts, of so many to a message. */
async function shared(t, parts, each) {
  const server = await Server.start(t);
  const share = await Share.create(server, "ses_1");
  const items = [...long("ses_1", parts, each)];
  for (let i = 0; i < items.length; i += 1000) await share.sync(items.slice(i, i + 1000));
  return { server, share };
}

const count = (visit, selector) => visit.page.evaluate((s) => document.querySelectorAll(s).length, selector);

/** What a page shows of its session, as HTML by key, with the contents and the totals. */
const whole = (page) =>
  page.evaluate(() => ({
    blocks: [...document.querySelectorAll("#log [data-key]")].map((e) => [e.dataset.key, e.matches(".part") ? e.textContent : e.querySelector(":scope > .head").textContent]),
    turns: [...document.querySelectorAll("#turns a")].map((a) => [a.hash, a.textContent]),
    facts: document.getElementById("facts").textContent,
  }));

/** Scrolls down as a reader does, until nothing is left out and the page has summed up what is there, with its next frame. */
async function readOn(visit) {
  await until("everything is loaded", () =>
    visit.page.evaluate(() => {
      const next = document.querySelector("#log .later");
      next?.scrollIntoView({ block: "start" });
      return next === null;
    }), 120_000);
  await visit.framed();
}

const most = full(4_000, 10_000);

test(`a page of ${most} parts begins with hardly more than one of 1,000`, async (t) => {
  const sizes = [];
  for (const parts of [1_000, most]) {
    const { share } = await shared(t, parts);
    const visit = await Visit.begin(t, browser);
    await visit.open(share.url);
    await visit.page.waitForLoadState("load");
    const bytes = await visit.page.evaluate(() => ["navigation", "resource"].flatMap((type) => performance.getEntriesByType(type)).reduce((sum, e) => sum + e.transferSize, 0));
    sizes.push({ elements: await count(visit, "*"), shown: await count(visit, "#log .part"), bytes });
    assert.equal(visit.requests.filter((url) => url.includes("/more")).length, 0, "what is not near was asked for");
    visit.clean();
  }
  t.diagnostic(JSON.stringify(sizes));
  const [short, long] = sizes;
  assert.ok(short.shown <= 120 && long.shown <= 120);
  assert.ok(long.elements <= 2 * short.elements, "elements");
  assert.ok(long.bytes <= 2 * short.bytes, "bytes");
});

test("what is left out comes where a reader scrolls, and then all is as in a page with everything", async (t) => {
  const { share } = await shared(t, 1_400);
  const visit = await Visit.begin(t, browser);
  await visit.open(share.url);
  assert.ok((await count(visit, "#log .later")) > 50);
  assert.match(await visit.page.locator("#facts").textContent(), /of what is loaded/);
  const turns = await visit.page.locator("#turns a").allTextContents();
  await readOn(visit);
  assert.equal(await visit.page.locator("#all").count(), 0);
  const all = await Visit.begin(t, browser);
  await all.page.goto(share.url);
  await all.page.getByRole("link", { name: "Load everything" }).click();
  await all.live();
  assert.equal(await count(all, "#log .later"), 0);
  assert.deepEqual(await whole(visit.page), await whole(all.page));
  assert.deepEqual(await all.page.locator("#turns a").allTextContents(), turns, "the contents name every turn from the start");
  visit.clean();
  all.clean();
});

test("links, keys and the contents lead to what is left out", async (t) => {
  const { share } = await shared(t, 2_000);
  const seen = async (visit, id) => {
    await until(`${id} is at the top`, () => visit.page.evaluate((id) => {
      const top = document.getElementById(id)?.getBoundingClientRect().top;
      return top > 0 && top < 120 && document.getElementById(id).matches(":not(.later)");
    }, id));
  };
  const visit = await Visit.begin(t, browser);
  await visit.open(`${share.url}#p-msg_000070/prt_000070_000011`);
  await seen(visit, "p-msg_000070/prt_000070_000011");
  assert.equal(await visit.page.evaluate(() => document.querySelector(":target")?.id), "p-msg_000070/prt_000070_000011");
  await visit.page.evaluate(() => (location.hash = "m-msg_000033"));
  await seen(visit, "m-msg_000033");
  await visit.page.locator("#turns a").nth(5).click();
  await seen(visit, "m-msg_000050");
  await visit.page.keyboard.press("j");
  await seen(visit, "m-msg_000060");
  assert.equal(await visit.page.evaluate(() => document.activeElement.closest(".msg")?.id), "m-msg_000060");
  await visit.page.keyboard.press("G");
  await visit.page.locator("#log > :last-child .part").last().waitFor();
  await visit.page.keyboard.press("/");
  await visit.page.keyboard.type('"part 21.5"');
  await visit.page.keyboard.press("Enter");
  await visit.page.locator("#found a").first().click();
  await visit.page.getByText("Part 21.5 of the session").first().waitFor();
  visit.clean();
  await visit.page.evaluate(axe);
  const { violations } = await visit.page.evaluate(() => globalThis.axe.run({ resultTypes: ["violations"] }));
  assert.deepEqual(violations.map((v) => v.id), []);
});

test("what changes is loaded, and changed: also while it is being loaded", async (t) => {
  const server = await Server.start(t);
  const agent = await Agent.start(t, server, { title: "Live" });
  for (let m = 0; m < 40; m++) {
    const id = `msg_${String(m).padStart(3, "0")}`;
    const values = { [`message/${id}`]: { role: "user" } };
    for (let p = 0; p < 8; p++) values[`part/${id}/prt_${p}`] = { type: "text", text: `Said ${m}.${p}.` };
    await agent.put(values);
  }
  const many = Object.fromEntries(Array.from({ length: 260 }, (_, i) => [`part/msg_long/prt_${String(i).padStart(3, "0")}`, { type: "text", text: `Of many ${i}.` }]));
  await agent.put({ "message/msg_long": { role: "assistant" }, ...many });
  const visit = await Visit.begin(t, browser);
  const link = agent.link(server.origin);
  await visit.open(link);
  assert.ok((await count(visit, "#log .msg.later")) > 10);
  assert.equal(await count(visit, "#m-msg_long > .parts > .later"), 1);

  // Every answer to what is asked for is older than the changes that follow it.
  const answers = [];
  let holding = true;
  await visit.page.route("**/more?*", async (route) => {
    const response = await route.fetch();
    if (holding) await new Promise((go) => answers.push(go));
    await route.fulfill({ response });
  });
  const put = (key, text) => agent.put({ [key]: { type: "text", text } });
  await put("part/msg_020/prt_1", "Changed once.");
  await until("it is asked for", () => answers.length > 0);
  await put("part/msg_020/prt_1", "Changed twice.");
  await agent.put({ "part/msg_020/prt_9": { type: "text", text: "Added." } });
  const batch = agent.session.batch();
  batch.purge("part/msg_020/prt_0");
  batch.remove("part/msg_020/prt_2");
  (await (await batch.commit()).wait()).check();
  await visit.page.locator("#cursor", { hasText: /at cursor/ }).waitFor();
  holding = false;
  for (const go of answers) go();
  await visit.shows("Added.");
  await visit.shows("Changed twice.");

  // Of a long message: what is left out, and what comes at its end.
  await put("part/msg_long/prt_150", "Changed among many.");
  await put("part/msg_long/prt_999", "At the end of many.");
  await visit.shows("At the end of many.");
  await put("part/msg_025/prt_0", "Another name.");
  await until("the contents name it", async () => (await visit.page.locator("#turns a").allTextContents())[25] === "Another name.");

  const fresh = await Visit.begin(t, browser);
  await fresh.page.goto(`${link.split("#")[0]}?all#${link.split("#")[1]}`);
  await fresh.live();
  assert.equal(await count(fresh, "#log .later"), 0);
  await readOn(visit);
  assert.deepEqual(await whole(visit.page), await whole(fresh.page));
  assert.ok(!(await visit.page.content()).includes("Said 20.0"), "what was purged is there");

  await agent.revoke();
  await visit.page.locator("#line[data-state=over]").waitFor();
  assert.equal(await count(visit, "#log .part"), 0);
  visit.clean();
});

test("what is loaded later is asked for again if no answer comes: messages that are left out, and a block that has changed", async (t) => {
  const server = await Server.start(t);
  const agent = await Agent.start(t, server, { title: "Lost answers" });
  await agent.put(Object.fromEntries(Array.from({ length: 200 }, (_, i) => [`message/msg_${String(i).padStart(3, "0")}`, { role: "user" }])));
  await agent.put({ "part/msg_100/prt_1": { type: "text", text: "In the middle." }, "todo/1": { text: "Tests" } });
  const answers = { more: 0, block: 0 };
  const origin = await behind(t, server, {
    through: ({ url }) => {
      const [, name] = /\/(more|block)\?/.exec(url) ?? [];
      return name && ++answers[name] === 1 ? lost() : new PassThrough();
    },
  });
  const visit = await Visit.begin(t, browser);
  await visit.page.clock.install();
  await visit.open(agent.link(origin));
  const inTime = async (name, shown) => {
    await until(`the ${name} is answered`, () => answers[name] === 1);
    await visit.page.clock.fastForward(30_000);
    await shown.waitFor();
    assert.ok(answers[name] > 1);
  };
  await visit.page.evaluate(() => (location.hash = "m-msg_100"));
  await inTime("more", visit.page.locator("#m-msg_100 .part"));
  const batch = agent.session.batch();
  batch.claim("todo/1", 600_000);
  (await (await batch.commit()).wait()).check();
  await inTime("block", visit.page.locator('[data-key="todo/1"] .claim'));
  visit.clean();
});

test("a message of one part that is left out says so", async (t) => {
  const { share } = await shared(t, 300, 1);
  const visit = await Visit.begin(t, browser);
  await visit.open(share.url);
  const says = (selector) => visit.page.evaluate((s) => getComputedStyle(document.querySelector(s), "::after").content, selector);
  assert.equal(await says("#log .msg.later"), '"A part, which loads when it is near"');
  const more = await Visit.begin(t, browser);
  await more.open((await shared(t, 1_000)).share.url);
  assert.match(await more.page.evaluate(() => getComputedStyle(document.querySelector("#log .msg.later"), "::after").content), /20.* parts, which load when they are near/);
});

test("without JavaScript a page has a link to all of it", async (t) => {
  const { share } = await shared(t, 400);
  const visit = await Visit.begin(t, browser, { javaScriptEnabled: false });
  await visit.page.goto(share.url);
  assert.equal(await visit.page.locator("#log .later").first().isVisible(), false);
  await visit.page.getByRole("link", { name: "Load everything" }).click();
  await until("all of it is there", async () => (await visit.page.locator("#log .part").count()) === 400);
  visit.clean();
});
