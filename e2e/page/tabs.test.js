// Many pages of one server, open at once: browsers open six connections to a server for what is no WebSocket.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, Visit } from "../rig/browser.js";
import { behind } from "../rig/front.js";
import { full } from "../rig/full.js";
import { Server } from "../rig/mooring.js";
import { said, Share } from "../rig/writer.js";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const session = "ses_1";
const begun = [{ type: "session", data: { id: session, title: "Open in many tabs" } }, ...said(session, "msg_1", "The first.")];

const many = full(12, 30);

test(`${many} tabs of one browser: each is loaded, is live, and shows what comes`, async (t) => {
  const server = await Server.start(t);
  const share = await Share.create(server, session, begun);
  const first = await Visit.begin(t, browser);
  const visits = [first];
  while (visits.length < many) visits.push(await first.tab());
  await Promise.all(visits.map((v) => v.open(share.url)));
  await share.sync(said(session, "msg_2", "Seen in all."));
  await Promise.all(visits.map((v) => v.shows("Seen in all.")));
  for (const v of visits) v.clean();
});

/** A public share of a server behind a proxy. */
async function proxied(t, sockets) {
  const server = await Server.start(t);
  await behind(t, server, { sockets });
  return Share.create(server, session, begun);
}

test("a proxy that lets no WebSocket through: the page is live by server-sent events", async (t) => {
  const share = await proxied(t, "refused");
  const visit = await Visit.begin(t, browser);
  await visit.open(share.url);
  await share.sync(said(session, "msg_2", "As it comes."));
  await visit.shows("As it comes.");
  assert.ok(visit.requests.some((url) => url.includes("/live?after=")), "there are no server-sent events");
  visit.clean();
});

test("a proxy that hangs on WebSockets: the page is live by server-sent events", async (t) => {
  const share = await proxied(t, "hung");
  const visit = await Visit.begin(t, browser);
  await visit.page.clock.install(); // so that seconds can pass at once
  await visit.page.goto(share.url);
  await visit.page.locator("#line[data-state=connecting]").waitFor();
  await visit.page.clock.fastForward("00:11");
  await visit.live();
  await share.sync(said(session, "msg_2", "As it comes."));
  await visit.shows("As it comes.");
  visit.clean();
});
