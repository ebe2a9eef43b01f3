// What is there at once: the first paint without JavaScript, how little is loaded for it, and where secrets are not.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, phone, Visit } from "../rig/browser.js";
import { Commands, Server } from "../rig/mooring.js";
import { Agent, shareSample } from "../rig/writer.js";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

test("the first paint reads without JavaScript", async (t) => {
  const server = await Server.start(t);
  const { items, url } = await shareSample(server);
  const visit = await Visit.begin(t, browser, { javaScriptEnabled: false });
  const { page } = visit;
  const answer = await page.goto(url);
  assert.equal(answer.status(), 200);
  assert.match(await page.title(), /Bursts after an idle hour/);
  const keys = items.filter((i) => i.type === "part").map((i) => `part/${i.data.messageID}/${i.data.id}`).sort();
  assert.deepEqual(await page.locator("#log [data-key^='part/']").evaluateAll((all) => all.map((el) => el.dataset.key)), keys, "every part, in its order");
  await page.getByText("After an idle hour our rate limiter lets a huge burst through").first().waitFor();
  await page.locator(".md table").getByText("36,020").first().waitFor();
  assert.ok((await page.locator(".md pre code span").count()) > 3, "code is highlighted");
  await page.getByText("b.tokens = min(b.burst").first().waitFor({ state: "attached" });
  assert.match(await page.locator("#line").textContent(), /cursor \d+/);

  // Folded calls open without a script, and links in the contents lead to their turns.
  const call = page.locator("#log details", { hasText: "go test -v ./..." }).first();
  await call.locator("summary").first().click();
  await call.getByText("--- PASS: TestIdleDoesNotSaveUp").waitFor();
  const turns = page.locator("#turns a");
  assert.equal(await turns.count(), 2);
  for (const href of await turns.evaluateAll((all) => all.map((a) => a.getAttribute("href")))) {
    assert.equal(await page.locator(`[id="${decodeURIComponent(href.slice(1))}"]`).count(), 1, `nothing is at ${href}`);
  }
  visit.clean();
});

test("less than 100 KB are loaded before content, and nothing from outside", async (t) => {
  const server = await Server.start(t);
  const { url } = await shareSample(server);
  for (const size of [undefined, phone]) {
    const visit = await Visit.begin(t, browser, { size });
    const loads = [];
    visit.page.on("requestfinished", (r) => loads.push(r.sizes().then((s) => [r.resourceType(), s.responseBodySize + s.responseHeadersSize])));
    await visit.open(url);
    await visit.page.waitForLoadState("load");
    const sizes = await Promise.all(loads);
    const [page, rest] = [sizes.filter(([kind]) => kind === "document"), sizes.filter(([kind]) => kind !== "document" && kind !== "eventsource")].map((of) => of.reduce((sum, [, n]) => sum + n, 0));
    t.diagnostic(`transferred: ${page} bytes of page with its session, ${rest} bytes of everything else`);
    assert.ok(rest > 0 && rest < 100_000, `${rest} bytes besides the page`);
    assert.ok(page + rest < 150_000, `${page + rest} bytes with the session`);
    visit.clean();
    assert.deepEqual(visit.errors, []);
  }
});

test("a link's secret reaches no address, no log and no history, and is kept nowhere", async (t) => {
  const server = await Server.start(t, ["--verbose"]);
  const agent = await Agent.start(t, server, { title: "For few" });
  await agent.put({ "message/msg_1": { role: "user" }, "part/msg_1/prt_1": { type: "text", text: "Between us." } });
  const link = agent.link(server.origin);
  const secret = link.split("#")[1];
  const visit = await Visit.begin(t, browser);
  const heads = [];
  visit.page.on("request", (r) => heads.push(`${r.url().split("#")[0]} ${JSON.stringify(r.headers())}`));
  await visit.open(link);
  await visit.shows("Between us.");
  assert.equal(visit.page.url(), link.split("#")[0], "the address bar");
  const past = await visit.page.evaluate(() => navigation.entries().map((e) => e.url));
  for (const [where, text] of Object.entries({ heads: heads.join("\n"), history: past.join("\n"), log: server.log })) {
    assert.ok(!text.includes(secret), `the secret stands in the ${where}`);
  }
  assert.equal(await visit.page.evaluate(() => document.cookie + JSON.stringify({ ...localStorage, ...sessionStorage })).then((s) => s.includes(secret)), false);

  assert.deepEqual(await visit.page.context().cookies(), []);
  await visit.page.reload();
  await visit.live();
  await visit.shows("Between us.");
  visit.clean();

  // Without the secret, or with a wrong one, there is nothing to see.
  const stranger = await Visit.begin(t, browser);
  await stranger.page.goto(link.split("#")[0]);
  assert.ok(!(await stranger.page.content()).includes("Between us."));
  await stranger.page.goto("about:blank");
  const wrong = secret.slice(0, 20) + (secret[20] === "A" ? "B" : "A") + secret.slice(21);
  await stranger.page.goto(`${link.split("#")[0]}#${wrong}`);
  await stranger.page.getByText(/the ref does not exist, or its secret is wrong/).first().waitFor();
  assert.equal((await stranger.page.context().cookies()).length, 0);
});

test("mooring link prints the address that works", async (t) => {
  const server = await Server.start(t);
  const agent = await Agent.start(t, server, { title: "Linked" });
  await agent.put({ "message/msg_1": { role: "user" }, "part/msg_1/prt_1": { type: "text", text: "By its link." } });
  const printed = await (await Commands.with(t)).run(["link", agent.reader.text]);
  assert.equal(printed, agent.link(server.origin));
  const visit = await Visit.begin(t, browser);
  await visit.open(printed);
  await visit.shows("By its link.");
});
