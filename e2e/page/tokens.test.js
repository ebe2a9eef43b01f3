// The token of a page: where it is and where it is not, tabs, signing out, its ends.

import assert from "node:assert/strict";
import { once } from "node:events";
import * as http from "node:http";
import { PassThrough } from "node:stream";
import { after, before, test } from "node:test";
import { launch, Visit } from "../rig/browser.js";
import { behind, lost } from "../rig/front.js";
import { certificate, Commands, Server } from "../rig/mooring.js";
import { until } from "../rig/wait.js";
import { Agent } from "../rig/writer.js";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const whole = /open the whole link/;

/** A server with a session that says something. */
async function spoken(t, text, flags = []) {
  const server = await Server.start(t, flags);
  const agent = await Agent.start(t, server, { title: text });
  await agent.put({ "message/msg_1": { role: "user" }, "part/msg_1/prt_1": { type: "text", text } });
  const link = agent.link(server.origin);
  return { server, agent, link, address: link.split("#")[0] };
}

/** A server of somebody else's, of one page, that notes what it is asked. */
async function elsewhere(t, html) {
  const asked = [];
  const server = http.createServer((req, res) => {
    asked.push({ url: req.url, headers: req.headers });
    res.setHeader("Content-Type", "text/html").end(html);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return { port: server.address().port, asked };
}

/** Opens the list of sessions by the owner's ref. */
async function list(page, server) {
  await page.goto(`${server.origin}/sessions#${await server.owner()}`);
  await page.locator("ul.sessions").waitFor();
}

const gate = (page) => page.locator("#gate").getByText(whole);

test("another port of the host is sent nothing, keeps nothing, and reads nothing", async (t) => {
  const { server, agent, link, address } = await spoken(t, "Between us.");
  const other = await elsewhere(t, "<!doctype html><title>Another server of this machine</title>");
  const visit = await Visit.begin(t, browser);
  const { page } = visit;
  await list(page, server);
  await visit.open(link);
  const secrets = [(await server.owner()).split("#")[1], agent.reader.text.split("#")[1]];
  const kept = await page.evaluate(() => JSON.stringify([document.cookie, { ...localStorage }, { ...sessionStorage }]));
  for (const secret of secrets) assert.ok(!kept.includes(secret), "a ref's secret is kept");
  const tokens = Object.entries(await page.evaluate(() => ({ ...sessionStorage }))).filter(([name]) => name.startsWith("mooring-token:"));
  assert.equal(tokens.length, 2);
  assert.deepEqual(await page.context().cookies(), []);

  // In a tab beside it, and in the same one: the other port asks for the same paths, for the tokens, and for the pages.
  const { hostname, pathname } = new URL(address);
  for (const { page: there } of [await visit.tab(), visit]) {
    await there.goto(`http://${hostname}:${other.port}/sessions`);
    const found = await there.evaluate(
      async ([origin, pathname, names]) => {
        const heard = [];
        const tabs = new BroadcastChannel("mooring-pages");
        tabs.onmessage = ({ data }) => heard.push(data);
        for (const name of names) tabs.postMessage({ ask: name });
        await Promise.all([fetch("/sessions", { credentials: "include" }), fetch(pathname, { credentials: "include" })]);
        const read = await Promise.allSettled(
          ["/sessions", pathname].flatMap((path) => [
            fetch(origin + path, { credentials: "include", headers: { "Mooring-Token": "x" } }),
            fetch(origin + path, { credentials: "include" }).then((reply) => reply.text()),
          ]),
        );
        const socket = new WebSocket(`${origin.replace("http", "ws")}${pathname}/live?after=0`);
        const opened = await new Promise((resolve) => {
          socket.onopen = () => resolve(true);
          socket.onclose = () => resolve(false);
        });
        return { heard, kept: Object.keys(sessionStorage), read: read.map(({ status }) => status), opened };
      },
      [server.origin, pathname, tokens.map(([name]) => name)],
    );
    assert.deepEqual(found, { heard: [], kept: [], read: Array(4).fill("rejected"), opened: false });
  }
  const said = JSON.stringify(other.asked);
  for (const secret of [...secrets, ...tokens.map(([, token]) => token.split(".").at(-1))]) assert.ok(!said.includes(secret), "the other port was sent a secret");
  assert.ok(other.asked.length >= 6 && other.asked.every(({ headers }) => headers.cookie === undefined && headers.authorization === undefined && headers["mooring-token"] === undefined));
  assert.deepEqual(visit.troubles, []);
});

test("cookies of the version before are taken back, and open nothing", async (t) => {
  const { server, agent, address } = await spoken(t, "Between us.");
  const visit = await Visit.begin(t, browser);
  const { page } = visit;
  const [id, secret] = [agent.reader.id, agent.reader.text.split("#")[1]];
  const old = (path, value) => ({ name: "mooring", value, domain: "127.0.0.1", path, httpOnly: true, sameSite: "Strict" });
  const [root, key] = (await server.owner()).split("/").at(-1).split("#");
  await page.context().addCookies([old(`/s/${id}`, `1.${secret}.AAAAAAAAAAAAAAAAAAAAAA.${id}`), old("/sessions", `1.${key}.AAAAAAAAAAAAAAAAAAAAAA.${root}`)]);
  await page.goto(address);
  await gate(page).waitFor();
  await page.goto(`${server.origin}/sessions`);
  await page.getByLabel("Ref").waitFor();
  assert.equal(await page.locator("ul.sessions").count(), 0);
  assert.deepEqual(await page.context().cookies(), []);
  visit.clean();
});

test("reload, back, and a place in the page: the tab has its token", async (t) => {
  const { server, agent, link, address } = await spoken(t, "Still here.");
  await agent.put(Object.fromEntries(Array.from({ length: 60 }, (_, i) => [`message/msg_2${i}`, { role: "user" }]).concat(Array.from({ length: 60 }, (_, i) => [`part/msg_2${i}/prt_1`, { type: "text", text: `Line ${i}.` }]))));
  const visit = await Visit.begin(t, browser);
  const { page } = visit;
  await visit.open(link);
  await visit.shows("Still here.");
  assert.equal(page.url(), address, "the secret stands in the address");
  for (const load of [() => page.reload(), () => page.goto("about:blank").then(() => page.goBack()), () => page.goto("about:blank").then(() => page.goto(address))]) {
    await load();
    await visit.live();
    await visit.shows("Still here.");
  }
  await page.goto("about:blank");
  await page.goto(`${address}#m-msg_259`);
  await visit.live();
  await until("the place is in view", () => page.evaluate(() => document.querySelector("#m-msg_259:target")?.getBoundingClientRect().top < innerHeight));
  assert.equal(page.url(), `${address}#m-msg_259`);
  await list(page, server);
  await page.goto(`${server.origin}/sessions?q=Still&order=newest`);
  for (const load of [() => page.reload(), () => page.goto("about:blank").then(() => page.goBack())]) {
    await load();
    await page.locator("ul.sessions").getByText("Still here.").waitFor();
    assert.equal(await page.getByLabel("Search").inputValue(), "Still");
  }
  visit.clean();
});

test("a second tab is let in by the first one, or by the whole link; another browser is told what to do", async (t) => {
  const { server, link, address } = await spoken(t, "In two tabs.");
  const visit = await Visit.begin(t, browser);
  await visit.open(link);
  const second = await visit.tab();
  await second.open(address);
  await second.shows("In two tabs.");
  await visit.page.close();
  await second.page.reload();
  await second.live();
  await list(second.page, server);
  const third = await second.tab();
  await third.page.goto(`${server.origin}/sessions`);
  await third.page.locator("ul.sessions").waitFor();
  await third.open(address); // the tab that had it open shows the list now, and has its token still
  const stranger = await Visit.begin(t, browser);
  await stranger.page.goto(address);
  await gate(stranger.page).waitFor();
  assert.ok(!(await stranger.page.content()).includes("In two tabs."));
  await stranger.page.goto(link); // of the same page: it is not loaded anew
  await stranger.live();
  await stranger.shows("In two tabs.");
  for (const v of [second, third, stranger]) v.clean();
});

test("a link that is opened while the server is away, or stands still, opens when it is back, as one use of its ref", async (t) => {
  const { server, agent } = await spoken(t, "Back again.");
  for (const [leaves, returns] of [[() => server.kill(), () => server.start()], [() => server.halt(), () => server.resume()]]) {
    const [address, secret] = agent.link(server.origin, await agent.share({ redemptions: 1 })).split("#");
    const visit = await Visit.begin(t, browser);
    const { page } = visit;
    await page.clock.install();
    await page.goto(address);
    await gate(page).waitFor();
    await leaves();
    await page.evaluate((secret) => (location.hash = secret), secret);
    await page.getByText(/Opening|The server does not answer/).waitFor();
    await page.clock.fastForward(30_000);
    await page.getByText(/The server does not answer.*Trying again in \d+ s/).waitFor();
    await page.getByRole("button", { name: "Try again" }).waitFor();
    await returns();
    await visit.live();
    await visit.shows("Back again.");
    visit.clean();
  }
});

test("an answer that gets lost while a page opens is asked for again, and is no second use of its ref where the browser stores nothing", async (t) => {
  const { server, agent } = await spoken(t, "Once only.");
  let answers = 0;
  const origin = await behind(t, server, { through: ({ method }) => (method === "POST" && ++answers === 1 ? lost() : new PassThrough()) });
  const [address, secret] = agent.link(origin, await agent.share({ redemptions: 1 })).split("#");
  const visit = await Visit.begin(t, browser);
  const { page } = visit;
  await page.clock.install();
  await page.addInitScript(() => {
    const denied = { get: () => { throw new DOMException("Access is denied for this document.", "SecurityError"); } };
    for (const store of ["localStorage", "sessionStorage"]) Object.defineProperty(window, store, denied);
  });
  await page.goto(address);
  await gate(page).waitFor();
  await page.evaluate((secret) => (location.hash = secret), secret);
  await until("it is answered", () => answers === 1);
  await page.clock.fastForward(30_000);
  await visit.live();
  await visit.shows("Once only.");
  assert.equal(answers, 2);
});

test("a ref for one use counts a browser once, however many tabs open its link", async (t) => {
  const { server, agent } = await spoken(t, "For one.");
  const link = agent.link(server.origin, await agent.share({ redemptions: 1 }));
  const visit = await Visit.begin(t, browser);
  await visit.open(link);
  const second = await visit.tab();
  await second.open(link);
  await second.shows("For one.");
  const stranger = await Visit.begin(t, browser);
  await stranger.page.goto(link);
  await stranger.page.locator("#gate[data-state=failed]").waitFor();
  assert.match(await stranger.page.locator("#state").textContent(), /redeem|used/i);
  for (const v of [visit, second, stranger]) v.clean();
});

test("forgetting a session: it is forgotten in all tabs, and the page asks for its link", async (t) => {
  const { server, link, address } = await spoken(t, "Between us.");
  const visit = await Visit.begin(t, browser);
  const { page } = visit;
  await list(page, server);
  await visit.open(link);
  const second = await visit.tab();
  await second.open(address);
  await page.getByRole("button", { name: "Forget this session here" }).click();
  for (const { page } of [visit, second]) {
    await gate(page).waitFor();
    assert.equal(page.url(), address);
  }
  for (const load of [() => page.reload(), () => page.goto(address)]) {
    await load();
    await gate(page).waitFor();
    assert.ok(!(await page.content()).includes("Between us."));
  }
  await page.goto(`${server.origin}/sessions`);
  await page.locator("ul.sessions").waitFor(); // that stays
  await visit.open(link);
  await visit.shows("Between us.");
  visit.clean();
  second.clean();
});

test("signing out of the list: the page asks for a ref, also on the way back", async (t) => {
  const { server, link, address } = await spoken(t, "Listed.");
  const visit = await Visit.begin(t, browser);
  const { page } = visit;
  await visit.open(link);
  await list(page, server);
  await page.goto(`${server.origin}/sessions?q=List&order=newest`);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Ref").waitFor();
  for (const load of [() => page.reload(), () => page.goBack()]) {
    await load();
    await page.getByLabel("Ref").waitFor();
    await page.locator("#gate").waitFor();
    assert.equal(await page.locator("ul.sessions").count(), 0);
  }
  await visit.open(address); // that of the session stays
  visit.clean();
});

test("a link on another site's page shows the session and the list to who has them open", async (t) => {
  const { server, link, address } = await spoken(t, "From elsewhere.");
  const other = await elsewhere(t, `<!doctype html><title>Elsewhere</title><a href="${address}">The session</a> <a href="${server.origin}/sessions">The list</a>`);
  const at = `http://localhost:${other.port}/`; // another site than 127.0.0.1
  const visit = await Visit.begin(t, browser);
  const { page } = visit;
  await list(page, server);
  await visit.open(link);
  await page.goto(at);
  await page.getByRole("link", { name: "The session" }).click();
  await visit.live();
  await visit.shows("From elsewhere.");
  assert.equal(page.url(), address);
  await page.goBack();
  await page.getByRole("link", { name: "The list" }).click();
  await page.locator("ul.sessions").getByText("From elsewhere.").waitFor();

  // Who has not is told what is missing.
  const stranger = await Visit.begin(t, browser);
  await stranger.page.goto(at);
  await stranger.page.getByRole("link", { name: "The session" }).click();
  await gate(stranger.page).waitFor();
  assert.deepEqual([...visit.troubles, ...stranger.troubles], []);
});

test("the revoke, and another process of the server: the token is the database's", async (t) => {
  const { server, agent, link } = await spoken(t, "For now.");
  const visit = await Visit.begin(t, browser);
  await visit.open(link);
  await server.restart();
  await visit.page.reload();
  await visit.live();
  await visit.shows("For now.");
  await agent.revoke();
  await visit.page.locator("#line[data-state=over]").waitFor();
  for (let n = 0; n < 2; n++) {
    await visit.page.reload();
    await visit.page.locator("#gate[data-state=failed]").waitFor();
    assert.match(await visit.page.locator("#state").textContent(), n === 0 ? /revoked/i : whole);
    assert.ok(!(await visit.page.content()).includes("For now."));
  }
  visit.clean();
});

test("when its time is over, the page ends and asks for the whole link", async (t) => {
  const { server, link, address } = await spoken(t, "For a while.", ["--page-life", "12s"]);
  const visit = await Visit.begin(t, browser);
  const { page } = visit;
  await visit.open(link);
  await visit.shows("For a while.");
  await page.locator("#line[data-state=over]").waitFor();
  assert.match(await visit.state.textContent(), /whole link/);
  assert.ok(!(await page.content()).includes("For a while."));
  await page.goto(address);
  await gate(page).waitFor();
  await visit.open(link);
  await visit.shows("For a while.");
  await server.kill();
  visit.clean();
});

test("over TLS: the page is live, beside requests that share one connection", async (t) => {
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
  assert.deepEqual(await page.context().cookies(), []);

  await agent.put({ "message/msg_2": { role: "user" }, "part/msg_2/prt_1": { type: "text", text: "As it comes." } });
  await visit.shows("As it comes.");
  const answer = await page.reload();
  assert.equal(await page.evaluate(() => performance.getEntriesByType("navigation")[0].nextHopProtocol), "h2");
  assert.match(answer.headers()["strict-transport-security"], /^max-age=\d{7,}/);
  await visit.live();
  await visit.shows("As it comes.");
  await list(page, server);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Ref").waitFor();
  visit.clean();
});
