// The cookie of a page: signing out, coming from another site, TLS.

import assert from "node:assert/strict";
import { once } from "node:events";
import * as http from "node:http";
import { after, before, test } from "node:test";
import { launch, Visit } from "../rig/browser.js";
import { certificate, Commands, Server } from "../rig/mooring.js";
import { Agent } from "../rig/writer.js";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** A server with a session that says something. */
async function spoken(t, text) {
  const server = await Server.start(t);
  const agent = await Agent.start(t, server, { title: text });
  await agent.put({ "message/msg_1": { role: "user" }, "part/msg_1/prt_1": { type: "text", text } });
  return { server, agent, link: agent.link(server.origin) };
}

/** The paths of the browser's cookies. */
const cookiePaths = async (page) => (await page.context().cookies()).map((c) => c.path).sort();

/** Opens the list of sessions by the owner's ref. */
async function list(page, server) {
  await page.goto(`${server.origin}/sessions#${await server.owner()}`);
  await page.locator("ul.sessions").waitFor();
}

test("forgetting a session: the cookie is gone, and the page asks for its link", async (t) => {
  const { server, link } = await spoken(t, "Between us.");
  const visit = await Visit.begin(t, browser);
  const { page } = visit;
  await list(page, server);
  await visit.open(link);
  await visit.shows("Between us.");
  const address = page.url();
  assert.deepEqual(await cookiePaths(page), [new URL(link).pathname, "/sessions"].sort());
  await page.getByRole("button", { name: "Forget this session here" }).click();
  await page.locator("#gate").getByText(/This link has no secret/).waitFor();
  assert.deepEqual(await cookiePaths(page), ["/sessions"], "that of the list stays");
  assert.equal(page.url(), address);
  for (const load of [() => page.reload(), () => page.goto(address)]) {
    await load();
    await page.locator("#gate").getByText(/This link has no secret/).waitFor();
    assert.ok(!(await page.content()).includes("Between us."));
  }
  await page.goto("about:blank"); // where only the fragment changes, nothing is loaded
  await visit.open(link);
  await visit.shows("Between us.");
  visit.clean();
});

test("signing out of the list: the cookie is gone, and the page asks for a ref", async (t) => {
  const { server, link } = await spoken(t, "Listed.");
  const visit = await Visit.begin(t, browser);
  const { page } = visit;
  await visit.open(link);
  await list(page, server);
  await page.goto(`${server.origin}/sessions?q=List&sort=title`);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Ref").waitFor();
  assert.deepEqual(await cookiePaths(page), [new URL(link).pathname], "that of the session stays");
  for (const load of [() => page.reload(), () => page.goBack()]) {
    await load();
    await page.getByLabel("Ref").waitFor();
    assert.equal(await page.locator("ul.sessions").count(), 0);
  }
  visit.clean();
});

test("a link on another site's page shows the session and the list to who is signed in", async (t) => {
  const { server, link } = await spoken(t, "From elsewhere.");
  const address = link.split("#")[0];
  const other = http.createServer((_, res) => res.end(`<!doctype html><title>Elsewhere</title><a href="${address}">The session</a> <a href="${server.origin}/sessions">The list</a>`));
  other.listen(0, "127.0.0.1");
  await once(other, "listening");
  t.after(() => {
    other.close();
    other.closeAllConnections();
  });
  const elsewhere = `http://localhost:${other.address().port}/`; // another site than 127.0.0.1
  const visit = await Visit.begin(t, browser);
  const { page } = visit;
  await list(page, server);
  await visit.open(link);

  // Again at once, too: having come before is no reason to be turned away.
  for (const time of ["first", "second"]) {
    await page.goto(elsewhere);
    const [first] = await Promise.all([page.waitForRequest(address), page.getByRole("link", { name: "The session" }).click()]);
    assert.equal((await first.allHeaders()).cookie, undefined, `the ${time} time: another site's link brings no cookie`);
    await visit.live();
    await visit.shows("From elsewhere.");
    assert.equal(page.url(), address);
    await page.goBack();
    await page.getByRole("link", { name: "The list" }).click();
    await page.locator("ul.sessions").getByText("From elsewhere.").waitFor();
  }

  // Who is not signed in is told what is missing.
  const stranger = await Visit.begin(t, browser);
  await stranger.page.goto(elsewhere);
  await stranger.page.getByRole("link", { name: "The session" }).click();
  await stranger.page.locator("#gate").getByText(/This link has no secret/).waitFor();
  assert.deepEqual([...visit.troubles, ...stranger.troubles], []);
});

test("over TLS: the cookie is for TLS alone, and the page is live", async (t) => {
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0"; // the agent takes the certificate as the browser does
  t.after(() => delete process.env.NODE_TLS_REJECT_UNAUTHORIZED);
  const server = await Server.start(t, await certificate(t));
  const agent = await Agent.start(t, server, { title: "Over TLS" });
  await agent.put({ "message/msg_1": { role: "user" }, "part/msg_1/prt_1": { type: "text", text: "In confidence." } });
  assert.match(agent.reader.text, /^moorings:/);
  const link = await (await Commands.with(t)).run(["link", agent.reader.text]);
  assert.equal(link, agent.link(server.origin));
  const visit = await Visit.begin(t, browser, { ignoreHTTPSErrors: true });
  const { page } = visit;
  await visit.open(link);
  await visit.shows("In confidence.");
  assert.equal(page.url(), link.split("#")[0]);
  const [{ name, secure, httpOnly, sameSite }, ...more] = await page.context().cookies();
  assert.deepEqual({ name, secure, httpOnly, sameSite }, { name: "__Secure-mooring", secure: true, httpOnly: true, sameSite: "Strict" });
  assert.deepEqual(more, []);

  await agent.put({ "message/msg_2": { role: "user" }, "part/msg_2/prt_1": { type: "text", text: "As it comes." } });
  await visit.shows("As it comes.");
  const answer = await page.reload();
  assert.match(answer.headers()["strict-transport-security"], /^max-age=\d{7,}/);
  await visit.live();
  await visit.shows("As it comes.");
  await list(page, server);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Ref").waitFor();
  assert.deepEqual(await cookiePaths(page), [new URL(link).pathname]);
  visit.clean();
});
