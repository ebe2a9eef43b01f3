// For everybody: axe on every page, phone and desktop, both themes, print, keyboard, reduced motion.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { axe, desktop, launch, phone, Visit } from "../rig/browser.js";
import { Server } from "../rig/mooring.js";
import { Agent, Share, shareSample } from "../rig/writer.js";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** A server, and a page of every kind on it: how to get there. */
async function everyPage(t) {
  const server = await Server.start(t);
  const owner = await server.owner();
  const { url } = await shareSample(server);
  const over = await Share.create(server, "ses_over", [{ type: "session", data: { id: "ses_over", title: "Over" } }]);
  await over.remove();
  const agent = await Agent.start(t, server, { title: "Streaming" });
  await agent.put({ "message/msg_1": { role: "user" }, "part/msg_1/prt_1": { type: "text", text: "Go on." } });
  await agent.begin("msg_2", "prt_1", "reasoning");
  await (await agent.append("msg_2", "prt_1", "Still thinking about `this` …"))();
  await agent.put({ "message/msg_3": { role: "assistant", error: { name: "APIError", data: { message: "The model is busy" } } } });
  return {
    "a public share": async (v) => v.open(url),
    "a session by its link": async (v) => v.open(agent.link(server.origin)),
    "a search": async (v) => {
      await v.open(agent.link(server.origin));
      await v.page.keyboard.press("/");
      await v.page.keyboard.type("thinking");
      await v.page.keyboard.press("Enter");
      await v.page.locator("#found mark").waitFor();
    },
    "what a search finds": async (v) => v.page.goto(`${url}?q=burst`),
    "a search for no word": async (v) => v.page.goto(`${url}?q=.`),
    "the list": async (v) => {
      await v.page.goto(`${server.origin}/sessions#${owner}`);
      await v.page.locator("ul.sessions").waitFor();
    },
    "sign-in": async (v) => v.page.goto(`${server.origin}/sessions`),
    "no such share": async (v) => v.page.goto(`${server.origin}/share/nothing-here`),
    "a revoked share": async (v) => v.page.goto(over.url),
    "a link without its secret": async (v) => v.page.goto(agent.link(server.origin).split("#")[0]),
  };
}

/** What axe finds, and what is not as a theme has to be or wider than the window, a line each. */
async function findings(page, theme) {
  // The dark page is the light one in other colours: the other rules would find there what they found before.
  const rules = theme === "dark" ? { runOnly: { type: "rule", values: ["color-contrast", "link-in-text-block"] } } : {};
  const { violations, passes } = await page.evaluate((rules) => globalThis.axe.run(document, { resultTypes: ["violations"], ...rules }), rules);
  assert.ok(passes.length > (theme === "dark" ? 0 : 10), "axe looked at next to nothing");
  const found = violations.flatMap((v) => v.nodes.map((n) => `${v.id} (${v.impact}): ${n.target.join(" ")}: ${n.failureSummary?.split("\n")[1]?.trim() ?? v.help}`));
  const { wide, ground } = await page.evaluate(() => ({
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    ground: getComputedStyle(document.body).backgroundColor,
  }));
  if (wide > 0) found.push(`${wide} px wider than the window`);
  if (isDark(ground) !== (theme === "dark")) found.push(`not ${theme}: ${ground}`);
  return found;
}

const isDark = (colour) => Math.max(...colour.match(/\d+/g).slice(0, 3).map(Number)) < 120;

for (const [device, size] of Object.entries({ desktop, phone })) {
  test(`axe finds nothing on any page in either theme: ${device}`, async (t) => {
    const found = [];
    for (const [name, go] of Object.entries(await everyPage(t))) {
      const visit = await Visit.begin(t, browser, { size, colorScheme: "light", hasTouch: device === "phone" });
      await go(visit);
      // Everything counts, what is folded too.
      await visit.page.evaluate(() => document.querySelectorAll("details").forEach((d) => (d.open = true)));
      await visit.page.evaluate(axe);
      for (const theme of ["light", "dark"]) {
        await visit.page.emulateMedia({ colorScheme: theme });
        found.push(...(await findings(visit.page, theme)).map((f) => `${name}, ${theme}: ${f}`));
      }
      visit.clean();
      await visit.page.context().close();
    }
    assert.deepEqual(found, []);
  });
}

test("with the keyboard alone: skip link, turns, folding, help", async (t) => {
  const server = await Server.start(t);
  const { url } = await shareSample(server);
  const visit = await Visit.begin(t, browser);
  const { page } = visit;
  await visit.open(url);
  const focused = (what) => page.evaluate(what);

  await page.keyboard.press("Tab");
  assert.ok(await focused(() => document.activeElement.matches("a.skip")), "the first stop is the skip link");
  assert.ok(await focused(() => document.activeElement.getBoundingClientRect().top >= 0), "which is seen then");
  await page.keyboard.press("Enter");
  assert.equal(await focused(() => document.activeElement.id), "session");
  assert.equal(await page.evaluate(() => [...document.querySelectorAll("[tabindex]")].filter((el) => el.tabIndex > 0).length), 0, "stops are in the document's order");
  // Every stop is seen, and shows that it has the focus.
  for (let i = 0; i < 12; i++) {
    await page.keyboard.press("Tab");
    const stop = await focused(() => {
      const el = document.activeElement;
      const style = getComputedStyle(el);
      return { name: el.outerHTML.slice(0, 100), seen: el.checkVisibility(), marked: style.outlineStyle !== "none" || style.boxShadow !== "none" };
    });
    assert.ok(stop.seen && stop.marked, `no sign of the focus at ${stop.name}`);
  }

  const turns = await page.locator("#turns a").evaluateAll((all) => all.map((a) => decodeURIComponent(a.getAttribute("href").slice(1))));
  await page.keyboard.press("g");
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await page.waitForFunction((id) => { const { top } = document.getElementById(id).getBoundingClientRect(); return top >= -5 && top < innerHeight / 2; }, turns.at(-1));
  await page.keyboard.press("k");
  await page.waitForFunction((id) => { const { top } = document.getElementById(id).getBoundingClientRect(); return top >= -5 && top < innerHeight / 2; }, turns[0]);

  await page.keyboard.press("f");
  await page.waitForFunction(() => [...document.querySelectorAll("#log details")].every((d) => d.open));
  await page.keyboard.press("f");
  await page.waitForFunction(() => [...document.querySelectorAll("#log details.card")].every((d) => !d.open));
  await page.keyboard.press("?");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "hidden" });
  visit.clean();
});

test("a link to a message leads to it", async (t) => {
  const server = await Server.start(t);
  const { url } = await shareSample(server);
  const visit = await Visit.begin(t, browser);
  await visit.open(url);
  const last = visit.page.locator("#log article").last();
  const id = await last.getAttribute("id");
  assert.equal(await last.locator("a.link").first().getAttribute("href"), `#${id}`);
  const other = await Visit.begin(t, browser);
  await other.open(`${url}#${id}`);
  await other.page.waitForFunction((to) => { const { top } = document.getElementById(to).getBoundingClientRect(); return top < innerHeight && document.getElementById(to).matches(":target"); }, id);
});

test("nothing moves for those who want it so", async (t) => {
  const server = await Server.start(t);
  const agent = await Agent.start(t, server);
  await agent.begin("msg_1", "prt_1");
  await (await agent.append("msg_1", "prt_1", "Being written."))();
  const visit = await Visit.begin(t, browser, { reducedMotion: "reduce" });
  await visit.open(agent.link(server.origin));
  await visit.shows("Being written.");
  assert.deepEqual(
    await visit.page.evaluate(() => document.getAnimations().filter((a) => a.effect.getComputedTiming().activeDuration > 20).map((a) => a.animationName ?? a.transitionProperty)),
    [],
  );
  assert.equal(await visit.page.evaluate(() => getComputedStyle(document.documentElement).scrollBehavior), "auto");
});

test("on paper all is unfolded, dark on light, without buttons", async (t) => {
  const server = await Server.start(t);
  const { url } = await shareSample(server);
  const visit = await Visit.begin(t, browser, { colorScheme: "dark" });
  await visit.open(url);
  const before = await visit.page.locator("details[open]").count();
  await visit.page.emulateMedia({ media: "print" });
  await visit.page.evaluate(() => dispatchEvent(new Event("beforeprint")));
  const paper = await visit.page.evaluate(() => ({
    folded: [...document.querySelectorAll("#log details > :not(summary)")].filter((el) => !el.checkVisibility()).length,
    buttons: [...document.querySelectorAll("button, nav a, input")].filter((el) => el.checkVisibility()).map((el) => el.outerHTML.slice(0, 80)),
    skipped: [...document.querySelectorAll("#log [data-key]")].filter((el) => !el.checkVisibility({ contentVisibilityAuto: true }) && el.checkVisibility() && el.textContent.trim() !== "").length,
    ink: getComputedStyle(document.querySelector("#log .md")).color,
    ground: getComputedStyle(document.body).backgroundColor,
  }));
  assert.equal(paper.folded, 0, "folded on paper");
  assert.deepEqual(paper.buttons, []);
  assert.equal(paper.skipped, 0, "left out on paper, for it is not in sight");
  assert.ok(isDark(paper.ink) && !isDark(paper.ground), `${paper.ink} on ${paper.ground}`);
  await visit.page.evaluate(() => dispatchEvent(new Event("afterprint")));
  await visit.page.emulateMedia({ media: "screen" });
  assert.equal(await visit.page.locator("details[open]").count(), before, "and as it was afterwards");
});

test("the theme can be chosen, and stays chosen", async (t) => {
  const server = await Server.start(t);
  const { url } = await shareSample(server);
  const visit = await Visit.begin(t, browser, { colorScheme: "light" });
  await visit.open(url);
  const dark = async () => isDark(await visit.page.evaluate(() => getComputedStyle(document.body).backgroundColor));
  assert.equal(await dark(), false);
  const button = visit.page.getByRole("button", { name: /theme/i });
  for (let i = 0; i < 3 && !(await dark()); i++) await button.click();
  assert.ok(await dark(), "the button makes it dark");
  await visit.page.reload();
  await visit.live();
  assert.ok(await dark(), "and it stays so");
  visit.clean();
});
