// How long a long session's page takes, beside a short one's: node bench.js [ROUNDS [PARTS-A-MESSAGE]]. From the navigation until what is in
// view is laid out, the page follows the session, and nothing has been loaded or run for a while.

import { desktop, launch, Visit } from "./rig/browser.js";
import { long } from "./rig/long.js";
import { Server } from "./rig/mooring.js";
import { Agent, Share } from "./rig/writer.js";

const rounds = Number(process.argv[2] ?? 7);
const each = Number(process.argv[3] ?? 20);
const quiet = 300; // ms without a load, a change or a long task, after which a page has settled

const cleanup = [];
const t = { after: (f) => cleanup.unshift(f) };

/** Loads an address and gives when it had settled, the bytes that were transferred and the elements that it has. */
async function load(browser, url) {
  const after = [];
  const visit = await Visit.begin({ after: (f) => after.push(f) }, browser, { size: desktop });
  const { page } = visit;
  await page.addInitScript((quiet) => {
    let last = 0;
    const now = () => (last = Math.max(last, performance.now()));
    for (const type of ["longtask", "resource", "paint", "largest-contentful-paint", "layout-shift"])
      new PerformanceObserver((list) => list.getEntries().forEach((e) => (last = Math.max(last, (e.responseEnd || e.startTime) + (e.entryType === "longtask" ? e.duration : 0))))).observe({ type, buffered: true });
    new MutationObserver(now).observe(document, { subtree: true, childList: true, attributes: true });
    window.settled = new Promise((resolve) => {
      const look = () => (document.querySelector("#line[data-state=live]") && document.readyState === "complete" && performance.now() - last > quiet ? resolve(last) : setTimeout(look, 20));
      look();
    });
  }, quiet);
  await page.goto(url, { waitUntil: "commit" });
  const settled = await page.evaluate(() => window.settled);
  const { bytes, elements } = await page.evaluate(() => ({
    bytes: [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")].reduce((sum, e) => sum + e.transferSize, 0),
    elements: document.querySelectorAll("*").length,
  }));
  for (const f of after) await f();
  return { settled, bytes, elements };
}

const median = (all) => all.sort((a, b) => a - b)[all.length >> 1];

try {
  const server = await Server.start(t);
  const browser = await launch();
  t.after(() => browser.close());
  const urls = {};
  for (const parts of [1_000, 10_000]) {
    const items = [...long(`ses_${parts}`, parts, each)];
    const share = await Share.create(server, `ses_${parts}`);
    for (let i = 0; i < items.length; i += 1000) await share.sync(items.slice(i, i + 1000));
    urls[parts] = share.url;
  }
  const taken = { 1_000: [], 10_000: [] };
  for (const parts of [1_000, 10_000]) await load(browser, urls[parts]);
  for (let i = 0; i < rounds; i++) for (const parts of [1_000, 10_000]) taken[parts].push(await load(browser, urls[parts]));
  const of = (parts, what) => median(taken[parts].map((x) => x[what]));
  console.log("| parts | settled after | transferred | elements |\n|---:|---:|---:|---:|");
  for (const parts of [1_000, 10_000]) console.log(`| ${parts} | ${of(parts, "settled").toFixed(0)} ms | ${(of(parts, "bytes") / 1000).toFixed(0)} KB | ${of(parts, "elements")} |`);
  console.log(`\nratio ${(of(10_000, "settled") / of(1_000, "settled")).toFixed(2)}`);
} finally {
  for (const f of cleanup) await f();
}
