// What only a public share has: an agent that may fall silent, a first sync of any size, and a new beginning.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, Visit } from "../rig/browser.js";
import { full } from "../rig/full.js";
import { Server } from "../rig/mooring.js";
import { until } from "../rig/wait.js";
import { Share } from "../rig/writer.js";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const info = (id, title) => ({ type: "session", data: { id, title } });
const message = (id, data = {}) => ({ type: "message", data: { id, role: "assistant", time: { created: 1795000000000, completed: 1795000001000 }, ...data } });
const part = (messageID, id, data) => ({ type: "part", data: { id, messageID, ...data } });
const tool = (status) => part("msg_1", "prt_1", { type: "tool", tool: "bash", callID: "c", state: { status, input: { command: "sleep 1000" }, time: { start: 1 } } });

test("a share that falls silent while a tool runs says since when, until it comes back", async (t) => {
  const server = await Server.start(t, ["--turn-lease", "1s"]);
  const share = await Share.create(server, "ses_silent", [info("ses_silent", "Silent"), message("msg_1", { time: { created: 1795000000000 } }), tool("running")]);
  const note = (visit) => visit.page.locator("#silent");
  const visit = await Visit.begin(t, browser);
  await visit.open(share.url);
  await note(visit).waitFor({ state: "visible" });
  assert.match(await note(visit).innerText(), /^No change since .*\d.*; what ran may have ended\.$/);

  const late = await Visit.begin(t, browser, { javaScriptEnabled: false }); // who comes by now sees it as well
  await late.page.goto(share.url);
  assert.ok(await note(late).isVisible());

  await share.sync([part("msg_1", "prt_2", { type: "text", text: "back" })]);
  await note(visit).waitFor({ state: "hidden" });
  await note(visit).waitFor({ state: "visible" }); // and silent again
  await share.sync([tool("completed"), message("msg_1")]);
  await note(visit).waitFor({ state: "hidden" });
  const painted = await until("it is silent again", async () => {
    const [, silence, hidden] = /id="silent"[^>]*data-silence="(\d+)"[^>]*?( hidden)?>/.exec(await (await fetch(share.url)).text());
    return Number(silence) > 1500 && { hidden };
  });
  assert.ok(painted.hidden, "all has ended, and it says that nothing comes");
  assert.ok(await note(visit).isHidden(), "all has ended, and it still says that nothing comes");
  visit.clean();
});

const vast = full(120, 400); // parts of 104 kB: 12 or 41 MB
test(`a first sync of ${vast} large parts is on the page, whole and soon`, async (t) => {
  const server = await Server.start(t);
  const line = "It says a little, as parts do, and goes on with that for a while. ";
  const text = line.repeat(Math.ceil(104_000 / line.length));
  const items = [info("ses_vast", "Vast")];
  for (let i = 0; i < vast; i++) items.push(message(`msg_${1000 + i}`), part(`msg_${1000 + i}`, `prt_${1000 + i}`, { type: "text", text: `${text} The end of ${i}.` }));
  const share = await Share.create(server, "ses_vast", items);

  const visit = await Visit.begin(t, browser);
  const { page } = visit;
  const from = performance.now();
  await page.goto(`${share.url}?all`, { waitUntil: "commit" });
  await page.locator("[data-key='message/msg_1000']").waitFor();
  const first = performance.now() - from;
  await visit.live();
  t.diagnostic(`first message after ${first.toFixed(0)} ms, all after ${(performance.now() - from).toFixed(0)} ms`);
  assert.ok(first < 10_000, `the first message took ${first} ms`);
  const { messages, ends } = await page.evaluate(() => ({
    messages: document.querySelectorAll("#log > .msg").length,
    ends: [...document.querySelectorAll("#log .part")].filter((p, i) => p.textContent.includes(`The end of ${i}.`)).length,
  }));
  assert.deepEqual({ messages, ends }, { messages: vast, ends: vast });
  assert.equal(await page.locator("#lacks").count(), 0);
  visit.clean();
});

test("what was taken away is not in a share made anew, and what a share lacks is said", async (t) => {
  const server = await Server.start(t);
  const old = await Share.create(server, "ses_again", [info("ses_again", "OLDTITLE"), message("msg_1"), part("msg_1", "prt_1", { type: "text", text: "OLDTEXT" })]);
  await old.remove();
  const share = await Share.create(server, "ses_again", [message("msg_2"), part("msg_2", "prt_2", { type: "text", text: "New text" })]);
  assert.notEqual(share.id, old.id);
  const large = part("msg_2", "prt_3", { type: "text", text: "x".repeat(5 << 20) });
  await assert.rejects(share.sync([large, part("msg_2", "prt_4", { type: "text", text: "Behind it" })]), /413/);

  const visit = await Visit.begin(t, browser);
  await visit.open(share.url);
  const html = await visit.page.content();
  assert.ok(html.includes("New text") && html.includes("Behind it"), "what was synced is not there");
  assert.ok(!html.includes("OLDT"), "what was taken away is there again");
  assert.match(await visit.page.locator("#lacks").innerText(), /incomplete[^]*part\/msg_2\/prt_3: it has \d+ bytes/);
  const data = await (await fetch(`${server.origin}/api/share/${share.id}/data`)).text();
  assert.ok(!data.includes("OLDT"));
  assert.equal((await fetch(old.url)).status, 403);
  visit.clean();
});
