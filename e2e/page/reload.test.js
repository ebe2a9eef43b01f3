// A page that cannot go on from where it was loads itself anew, once, and shows everything.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, Visit } from "../rig/browser.js";
import { Server } from "../rig/mooring.js";
import { Proxy } from "../rig/proxy.js";
import { until } from "../rig/wait.js";
import { said, Share } from "../rig/writer.js";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const session = "ses_1";
const begun = [{ type: "session", data: { id: session, title: "Anew" } }, ...said(session, "msg_1", "The first.")];

/** The cursor that the page says it is at. */
const cursorOf = async (page) => Number(/cursor (\d+)/.exec(await page.locator("#cursor").textContent())[1]);

/** Counts the documents that a page loads, from now on. */
function loads(visit) {
  const urls = [];
  visit.page.on("request", (r) => r.isNavigationRequest() && urls.push(r.url()));
  return urls;
}

/** Whether the server has given up the events after a cursor, so that a stream from there begins with "reload". */
async function trimmed(url, cursor) {
  const { body } = await fetch(`${url}/live?after=${cursor}`);
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let begins = "";
  for (let done = false; !done && !/^event: |^id: /m.test(begins); ) {
    const piece = await reader.read();
    done = piece.done;
    begins += decoder.decode(piece.value, { stream: true });
  }
  await reader.cancel();
  return /^event: reload$/m.test(begins);
}

test("a log that was trimmed while the page was away: it loads itself anew, and goes on live", async (t) => {
  const server = await Server.start(t, ["--keep-log", "1s"]);
  const proxy = await Proxy.start(t, server);
  const share = await Share.create(server, session, begun);
  const url = share.url.replace(server.origin, proxy.origin);
  const visit = await Visit.begin(t, browser);
  await visit.open(url);
  await visit.shows("The first.");
  const documents = loads(visit);
  const at = await cursorOf(visit.page);

  proxy.refusing = true;
  proxy.cut();
  await visit.page.locator("#line[data-state=reconnecting], #line[data-state=waiting]").waitFor();
  for (const n of [2, 3, 4]) await share.sync(said(session, `msg_${n}`, `While away: ${n}.`));
  await share.sync(said(session, "msg_1", "The first, rewritten."));
  await until("the log is trimmed", () => trimmed(share.url, at));
  proxy.refusing = false;

  await until("the page shows all there is", async () => {
    const texts = (await visit.texts()).map(([, text]) => text);
    assert.deepEqual(texts, ["The first, rewritten.", "While away: 2.", "While away: 3.", "While away: 4."]);
    return true;
  });
  await visit.live();
  assert.ok((await cursorOf(visit.page)) > at);
  await share.sync(said(session, "msg_5", "Live again."));
  await visit.shows("Live again.");
  assert.deepEqual(documents, [url], "it was loaded anew once");
  visit.clean();
});

test("a server that was restored to an earlier copy: the page loads itself anew, and shows what that has", async (t) => {
  const server = await Server.start(t);
  const share = await Share.create(server, session, begun);
  await server.save();
  const visit = await Visit.begin(t, browser);
  await visit.open(share.url);
  for (const n of [2, 3]) await share.sync(said(session, `msg_${n}`, `Lost: ${n}.`));
  await visit.shows("Lost: 3.");
  const documents = loads(visit);
  const at = await cursorOf(visit.page);

  await server.restore();
  await until("the page shows what the copy has", async () => {
    assert.deepEqual(await visit.texts(), [["part/msg_1/prt_1", "The first."]]);
    return true;
  });
  await visit.live();
  assert.ok((await cursorOf(visit.page)) < at);
  await share.sync(said(session, "msg_4", "After the copy."));
  await visit.shows("After the copy.");
  assert.deepEqual((await visit.texts()).map(([, text]) => text), ["The first.", "After the copy."]);
  assert.deepEqual(documents, [share.url], "it was loaded anew once");
  visit.clean();
});
