// What a browser keeps of a page that was left, in its back-forward cache or on disk, is not shown again after a revoke.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, request } from "node:http";
import { after, before, test } from "node:test";
import { launch, Visit } from "../rig/browser.js";
import { Server } from "../rig/mooring.js";
import { until } from "../rig/wait.js";
import { Agent, said, Share } from "../rig/writer.js";

const gone = /revoked|no such share|has no secret/i;

let browser;
before(async () => (browser = await launch({ keepsPages: true })));
after(() => browser.close());

/** Another site's page, to which a reader goes and comes back from. */
async function elsewhere(t) {
  const server = createServer((_, response) => {
    response.setHeader("Content-Type", "text/html");
    response.end("<title>Elsewhere</title><p>Elsewhere");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  return `http://127.0.0.1:${server.address().port}`;
}

/** A way to a server on which its answers lose what they say of caches: so Chromium keeps the pages, as other browsers do whatever is said. */
async function unsaid(t, server) {
  const front = createServer((asked, response) => {
    const passed = request({ host: "127.0.0.1", port: server.port, method: asked.method, path: asked.url, headers: asked.headers }, (answer) => {
      const { "cache-control": _, ...headers } = answer.headers;
      response.writeHead(answer.statusCode, headers);
      answer.pipe(response);
      response.on("close", () => answer.destroy());
    });
    passed.on("error", () => response.destroy());
    asked.pipe(passed);
  });
  front.listen(0, "127.0.0.1");
  await once(front, "listening");
  t.after(() => front.closeAllConnections());
  t.after(() => front.close());
  return `http://127.0.0.1:${front.address().port}`;
}

/** Notes each time a document is shown: whether it was kept, and what of it can be seen then. Chromium keeps no page with a WebSocket: there is none. */
async function watched(t) {
  const visit = await Visit.begin(t, browser);
  await visit.page.addInitScript(() => {
    delete window.WebSocket;
    addEventListener("pageshow", ({ persisted }) => {
      const shown = JSON.parse(sessionStorage.getItem("shown") ?? "[]");
      sessionStorage.setItem("shown", JSON.stringify([...shown, { persisted, seen: document.body.checkVisibility() ? document.body.innerText : "" }]));
    });
  });
  return visit;
}

/** What was noted, of this site's pages in this tab; told to forget, of those shown from now on. */
const shown = (visit, forget = false) =>
  visit.page.evaluate((forget) => {
    const all = JSON.parse(sessionStorage.getItem("shown") ?? "[]");
    if (forget) sessionStorage.removeItem("shown");
    return all;
  }, forget);

test("Chromium keeps pages here", async (t) => {
  const visit = await watched(t);
  const away = await elsewhere(t);
  await visit.page.goto(`${away}/one`);
  await visit.page.goto(`${away}/two`);
  await visit.page.goBack({ waitUntil: "commit" });
  await until("it is shown again", async () => (await shown(visit)).length === 3);
  assert.deepEqual((await shown(visit)).map(({ persisted }) => persisted), [false, false, true]);
});

for (const kind of ["a public share", "a ref's page", "the access page of a ref"])
  for (const revoked of [true, false])
    test(`${kind} that was left is ${revoked ? "gone after a revoke" : "shown anew"} on the way back`, async (t) => {
      const server = await Server.start(t);
      const away = await elsewhere(t);
      const origin = await unsaid(t, server);
      const visit = await watched(t);
      let url, text, end;
      if (kind === "a public share") {
        const share = await Share.create(server, "ses_1", [{ type: "session", data: { id: "ses_1", title: "Kept" } }, ...said("ses_1", "msg_1", "KEPT WORDS")]);
        [url, text, end] = [share.url.replace(server.origin, origin), "KEPT WORDS", () => share.remove()];
      } else {
        const agent = await Agent.start(t, server, { title: "Kept" });
        await agent.put({ "message/msg_1": { role: "user" }, "part/msg_1/prt_1": { type: "text", text: "KEPT WORDS" } });
        const ref = await agent.share({ rights: ["read", "share", "revoke"], label: "KEPT WORDS" });
        [url, text, end] = [agent.link(origin, ref), "KEPT WORDS", () => agent.session.revoke(ref)];
      }
      await visit.page.goto(url);
      await visit.page.getByText(text).first().waitFor();
      if (kind.startsWith("the access")) {
        await visit.page.getByRole("link", { name: "Access" }).click();
        await visit.page.getByText(text).first().waitFor();
      }
      const path = new URL(visit.page.url()).pathname;
      await shown(visit, true);
      await visit.page.goto(away);
      if (revoked) await end();
      await visit.page.goBack({ waitUntil: "commit" });
      if (revoked) await visit.page.getByText(gone).first().waitFor();
      else await visit.page.getByText(text).first().waitFor();
      assert.equal(new URL(visit.page.url()).pathname, path);
      const [first, ...others] = await shown(visit);
      assert.equal(first.persisted, true, "Chromium did not keep it: this test shows nothing");
      assert.equal(first.seen, "", "something is to be seen of the page that was kept");
      if (!revoked) return;
      for (const { seen } of others) assert.ok(!seen.includes(text));
      // Nor does any cache have it: not that of HTTP, when it is loaded again, nor that of what is gone forward to.
      await visit.page.reload();
      await visit.page.goForward({ waitUntil: "commit" });
      await visit.page.goBack({ waitUntil: "commit" });
      await visit.page.getByText(gone).first().waitFor();
      for (const { seen } of await shown(visit)) assert.ok(!seen.includes(text));
      assert.equal(await visit.page.evaluate(async () => (await caches.keys().catch(() => [])).length + ((await navigator.serviceWorker?.getRegistrations().catch(() => [])) ?? []).length), 0);
    });
