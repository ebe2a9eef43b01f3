// Thousands of parts: loaded, scrolled through, and still live.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, phone, desktop, Visit } from "../rig/browser.js";
import { full } from "../rig/full.js";
import { long } from "../rig/long.js";
import { Server } from "../rig/mooring.js";
import { Share } from "../rig/writer.js";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const pad = (n) => String(n).padStart(6, "0");

/** Scrolls from the top to the end in steps, a frame each, and gives what the frames took and the longest task, in ms. */
function scrollThrough(page, steps) {
  return page.evaluate(async (count) => {
    const tasks = [];
    const observer = new PerformanceObserver((list) => tasks.push(...list.getEntries().map((e) => e.duration)));
    observer.observe({ type: "longtask" });
    const scroller = document.scrollingElement;
    const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
    const frames = [];
    scroller.scrollTop = 0;
    await frame();
    for (let i = 1; i <= count; i++) {
      const from = performance.now();
      scroller.scrollTop = (scroller.scrollHeight * i) / count;
      await frame();
      await frame(); // the one after is painted
      frames.push((performance.now() - from) / 2);
    }
    observer.disconnect();
    return { frames: frames.sort((a, b) => a - b), longest: Math.max(0, ...tasks) };
  }, steps);
}

/** How many parts the browser renders at all, and how many there are. */
function rendered(page) {
  return page.evaluate(() => {
    const parts = [...document.querySelectorAll("#log [data-key^='part/']")];
    return { count: parts.length, shown: parts.filter((el) => el.checkVisibility({ contentVisibilityAuto: true })).length };
  });
}

/** Follows a link to a block, a frame after what was done before. */
function follow(page, key) {
  return page.evaluate(async (key) => {
    await new Promise((resolve) => requestAnimationFrame(resolve));
    location.hash = document.querySelector(`[data-key='${key}']`).id;
  }, key);
}

/** Where a block's top stands in the window when it no longer moves, in px. */
function standing(page, key) {
  return page.evaluate(async (key) => {
    const at = () => document.querySelector(`[data-key='${key}']`).getBoundingClientRect().top;
    let top;
    for (let still = 0, frames = 0; still < 30 && frames < 150; frames++, still = at() === top ? still + 1 : 0) {
      top = at();
      await new Promise((resolve) => requestAnimationFrame(resolve));
    }
    return top;
  }, key);
}

const all = full(3_000, 10_000),
  messages = all / 20; // as long() makes them

test(`${all} parts load, scroll smoothly, and what comes is seen at once`, async (t) => {
  const server = await Server.start(t);
  const share = await Share.create(server, "ses_long");
  const items = [...long("ses_long", all)];
  for (let i = 0; i < items.length; i += 1000) await share.sync(items.slice(i, i + 1000));

  for (const [name, size] of Object.entries({ desktop, phone })) {
    const visit = await Visit.begin(t, browser, { size });
    const { page } = visit;
    const from = performance.now();
    await page.goto(`${share.url}?all`, { waitUntil: "commit" });
    await page.locator("[data-key='message/msg_000000']").waitFor();
    const first = performance.now() - from;
    await visit.live();
    const whole = performance.now() - from;
    const { count, shown } = await rendered(page);
    assert.equal(count, all + (name === "phone" ? 1 : 0));
    assert.ok(shown > 0 && shown < 600, `${shown} parts are rendered, which are not all in sight`);

    const { frames, longest } = await scrollThrough(page, 100);
    const [median, worst] = [frames[50], frames.at(-1)];
    t.diagnostic(`${name}: first message after ${first.toFixed(0)} ms, all after ${whole.toFixed(0)} ms; frames ${median.toFixed(0)} ms at the median, ${worst.toFixed(0)} ms at most; longest task ${longest.toFixed(0)} ms; ${shown} of ${count} parts rendered`);
    assert.ok(median < 250, `the median frame took ${median} ms`);
    assert.ok(longest < 3000, `a task took ${longest} ms`);
    assert.ok((await rendered(page)).shown < 600, "parts stay rendered after they were scrolled past");

    // A link leads there from the end too, where the page keeps to what comes; and what is written now is there soon.
    for (let i = 1; i <= 6; i++) {
      await page.evaluate(() => (document.scrollingElement.scrollTop = document.scrollingElement.scrollHeight));
      const message = `message/msg_${pad(Math.floor((i * messages) / 7))}`;
      await follow(page, message);
      const top = await standing(page, message);
      assert.ok(top > 0 && top < 120, `a link led to ${top} px from its place`);
    }
    const last = `msg_${pad(messages - 1)}`;
    const here = page.locator(`[data-key='part/${last}/prt_999999_000000']`, { hasText: `for the ${name}.` });
    const sent = performance.now();
    await share.sync([{ type: "part", data: { id: "prt_999999_000000", messageID: last, sessionID: "ses_long", type: "text", text: `Fresh for the ${name}.` } }]);
    await here.waitFor({ state: "attached" });
    const took = performance.now() - sent;
    t.diagnostic(`${name}: what was synced was in the page after ${took.toFixed(0)} ms`);
    assert.ok(took < 10_000, `it took ${took} ms`);
    visit.clean();

    // Whoever opens the link elsewhere is led there as well.
    const another = await Visit.begin(t, browser, { size });
    const far = `msg_${pad(messages * 0.8)}`;
    await another.open(`${share.url}#m-${far}`);
    const top = await standing(another.page, `message/${far}`);
    assert.ok(top > 0 && top < 120, `an opened link led to ${top} px from its place`);
    another.clean();
  }
});
