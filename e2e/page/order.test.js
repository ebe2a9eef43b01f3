// Messages and parts stand in the session's order, whatever their ids are, in a page that is loaded and in one that is open.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, Visit } from "../rig/browser.js";
import { Server } from "../rig/mooring.js";
import { until } from "../rig/wait.js";
import { Agent, Share } from "../rig/writer.js";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const user = { role: "user", time: { created: 1795000000000 } };
const text = (words) => ({ type: "text", text: words });

/** What a page shows: the keys of its log in their order, and the messages that its contents name. */
const shown = ({ page }) =>
  page.evaluate(() => [
    [...document.querySelectorAll("#log [data-key]")].map((el) => el.dataset.key.replace(/^(message|part)\//, "")),
    [...document.querySelectorAll("#turns a")].map((a) => a.hash.slice("#m-".length)),
  ]);

/** Waits until an open page shows keys in this order, and fails if one that is opened now shows another. Headless are
 * messages of which only parts are there. */
async function stands(t, visit, url, want, headless = []) {
  const turns = want.filter((key) => !key.includes("/") && !headless.includes(key));
  await until("the page shows it", async () => {
    assert.deepEqual(await shown(visit), [want, turns]);
    return true;
  });
  const fresh = await Visit.begin(t, browser);
  await fresh.open(url);
  assert.deepEqual(await shown(fresh), [want, turns]);
  await fresh.page.context().close();
}

test("ids of one's own: the order of the log", async (t) => {
  const server = await Server.start(t);
  const agent = await Agent.start(t, server);
  const put = async (...keys) => {
    for (const key of keys) await agent.put({ [key.includes("/") ? `part/${key}` : `message/${key}`]: key.includes("/") ? text(key) : user });
  };
  await put("msg_1", "msg_1/prt_9", "msg_1/prt_10", "msg_2", "msg_3");
  const visit = await Visit.begin(t, browser);
  const url = agent.link(server.origin);
  await visit.open(url);
  await put("msg_10", "msg_10/prt_2", "msg_10/prt_1", "msg_9", "msg_1/prt_11", "gone/prt_1", "msg_11");
  await stands(t, visit, url, ["msg_1", "msg_1/prt_9", "msg_1/prt_10", "msg_1/prt_11", "msg_2", "msg_3", "msg_10", "msg_10/prt_2", "msg_10/prt_1", "msg_9", "gone", "gone/prt_1", "msg_11"], ["gone"]);

  // What is put again after it was taken away stands at the end, what is only put again where it stood; a message that
  // comes after its parts where it was put.
  const batch = agent.session.batch();
  batch.remove("message/msg_2");
  batch.remove("part/msg_1/prt_9");
  batch.put("message/msg_1", { ...user, again: true });
  batch.put("message/msg_2", user);
  batch.put("part/msg_1/prt_9", text("again"));
  batch.put("message/gone", user);
  (await (await batch.commit()).wait()).check();
  await stands(t, visit, url, ["msg_1", "msg_1/prt_10", "msg_1/prt_11", "msg_1/prt_9", "msg_3", "msg_10", "msg_10/prt_2", "msg_10/prt_1", "msg_9", "msg_11", "msg_2", "gone", "gone/prt_1"]);
  visit.clean();
});

test("a ref from a cursor on: a key that was there before is put anew", async (t) => {
  const server = await Server.start(t);
  const agent = await Agent.start(t, server);
  for (const key of ["msg_1", "msg_2", "msg_3"]) await agent.put({ [`message/${key}`]: user, [`part/${key}/prt_1`]: text(key), [`part/${key}/prt_2`]: text(key) });
  const { cursor } = await agent.session.snapshot();
  const url = agent.link(server.origin, await agent.share({ from: Number(cursor) + 1 }));
  const visit = await Visit.begin(t, browser);
  await visit.open(url);
  await agent.put({ "message/msg_4": user });
  await agent.put({ "message/msg_3": { ...user, again: true }, "part/msg_1/prt_2": text("again") });
  await agent.put({ "part/msg_1/prt_1": text("again"), "message/msg_1": { ...user, again: true } });
  await stands(t, visit, url, ["msg_1", "msg_1/prt_1", "msg_1/prt_2", "msg_3", "msg_4"]);
  visit.clean();
});

test("opencode's ids, whose clock begins anew: the order of times", async (t) => {
  const server = await Server.start(t);
  const wrap = 26 * 2 ** 36;
  let n = 0;
  const id = (kind, at) => `${kind}_${((BigInt(wrap + at) * 4096n + BigInt(++n)) % (1n << 48n)).toString(16).padStart(12, "0")}AAAAAAAAAAAAAA`;
  const said = (at) => {
    const message = id("msg", at);
    const part = id("prt", at + 1);
    return [
      { type: "message", data: { id: message, sessionID: "ses_wrap", role: "user", time: { created: wrap + at } } },
      { type: "part", data: { id: part, messageID: message, sessionID: "ses_wrap", ...text(String(at)) } },
    ];
  };
  const all = [-3_600_000, -60_000, -1, 1000, 60_000].map(said);
  const keys = all.flatMap(([m, p]) => [m.data.id, `${m.data.id}/${p.data.id}`]);
  const share = await Share.create(server, "ses_wrap", [...all[3], ...all[0]]);
  const visit = await Visit.begin(t, browser);
  await visit.open(share.url);
  await share.sync([...all[4], ...all[1]]);
  await share.sync(all[2]);
  await stands(t, visit, share.url, keys);
  visit.clean();
});
