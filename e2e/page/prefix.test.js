// A server below a path: it is told the path itself, or a proxy takes it off.

import assert from "node:assert/strict";
import { PassThrough, Transform } from "node:stream";
import { after, before, test } from "node:test";
import { launch, Visit } from "../rig/browser.js";
import { front } from "../rig/front.js";
import { Commands, Server } from "../rig/mooring.js";
import { Agent, said, Share } from "../rig/writer.js";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const prefix = "tools/mooring";

/** Starts a server that is reached below the prefix, at a host and port that are found out when it runs. */
async function below(t, reached) {
  const server = await Server.start(t);
  const at = await reached(server);
  await server.restart(["--advertise", `mooring://${at}/${prefix}`]);
  return { server, origin: `http://${at}`, base: `/${prefix}` };
}

const ways = {
  "the server itself": (t) => below(t, (server) => `127.0.0.1:${server.port}`),
  "a proxy that takes the path off": (t) => below(t, async (server) => `localhost:${await front(t, server, prefix)}`),
};

for (const [name, begin] of Object.entries(ways)) {
  test(`every page below a path: ${name}`, async (t) => {
    const { server, origin, base } = await begin(t);
    const share = await Share.create({ origin: origin + base }, "ses_1", [{ type: "session", data: { id: "ses_1", title: "Public" } }, ...said("ses_1", "msg_1", "Seen by all.")]);
    assert.equal(share.url, `${origin}${base}/share/${share.id}`);
    const agent = await Agent.start(t, server, { title: "Secret" });
    await agent.put({ "message/msg_1": { role: "user" }, "part/msg_1/prt_1": { type: "text", text: "Seen by few." } });
    const visit = await Visit.begin(t, browser);
    const { page } = visit;

    await visit.open(share.url);
    await visit.shows("Seen by all.");
    await share.sync(said("ses_1", "msg_2", "As it comes."));
    await visit.shows("As it comes.");
    assert.notEqual(await page.evaluate(() => getComputedStyle(document.querySelector(".bar")).position), "static", "the style is there");

    const link = await (await Commands.with(t)).run(["link", agent.reader.text]);
    assert.equal(link.split("#")[0], `${origin}${base}/s/${agent.reader.id}`);
    await visit.open(link);
    await visit.shows("Seen by few.");
    assert.equal(page.url(), link.split("#")[0]);
    await agent.begin("msg_2", "prt_1");
    await (await agent.append("msg_2", "prt_1", "As it is written."))();
    await visit.shows("As it is written.");
    await page.reload();
    await visit.live();
    await visit.shows("As it is written.");

    await page.goto(`${origin}${base}/sessions#${await server.owner()}`);
    await page.locator("ul.sessions").waitFor();
    assert.equal(page.url(), `${origin}${base}/sessions`);
    await page.getByLabel("Search").fill("Public");
    await page.keyboard.press("Enter");
    await page.waitForURL(/q=Public/);
    assert.equal(new URL(page.url()).pathname, `${base}/sessions`);
    await page.getByRole("link", { name: "public share" }).click();
    await visit.live();
    await visit.shows("As it comes.");
    assert.equal(page.url(), share.url);

    await page.goto(`${origin}${base}/sessions`);
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByLabel("Ref").waitFor();
    await visit.open(link.split("#")[0]);
    await page.getByRole("button", { name: "Forget this session here" }).click();
    await page.locator("#gate").getByText(/open the whole link/).waitFor();
    assert.deepEqual(await page.context().cookies(), []);

    // Nothing was asked for elsewhere, or was not there.
    const outside = visit.requests.filter((url) => !url.startsWith(`${origin}${base}/`));
    assert.deepEqual(outside, []);
    assert.deepEqual(visit.errors, []);
    visit.clean();
  });
}

test("who goes past the proxy sees the same session, below the path and without it", async (t) => {
  const { server } = await ways["a proxy that takes the path off"](t);
  const agent = await Agent.start(t, server, { title: "Secret" });
  await agent.put({ "message/msg_1": { role: "user" }, "part/msg_1/prt_1": { type: "text", text: "Seen by few." } });
  for (const base of ["", `/${prefix}`]) {
    const visit = await Visit.begin(t, browser);
    await visit.open(`${server.origin}${base}/s/${agent.reader.id}#${agent.reader.text.split("#")[1]}`);
    await visit.shows("Seen by few.");
    assert.deepEqual(await visit.page.context().cookies(), []);
    assert.deepEqual(visit.requests.filter((url) => !url.startsWith(`${server.origin}${base}/`)), []);
    assert.deepEqual(visit.errors, []);
    visit.clean();
  }
});

test("who signs out while the page still arrives is signed out", async (t) => {
  // The page comes up to its button, and the rest does not.
  const upToTheButton = () => {
    let seen = "";
    return new Transform({
      transform(piece, _, done) {
        seen += piece;
        const end = seen.indexOf("Sign out</button>");
        if (end < 0) return done(null, piece);
        this.push(piece.subarray(0, piece.length - (seen.length - end - "Sign out</button>".length)));
      },
    });
  };
  const server = await Server.start(t);
  const at = `localhost:${await front(t, server, prefix, { through: ({ url, headers }) => (url === `/${prefix}/sessions` && headers["mooring-token"] ? upToTheButton() : new PassThrough()) })}`;
  await server.restart(["--advertise", `mooring://${at}/${prefix}`]);
  const visit = await Visit.begin(t, browser);
  const { page } = visit;
  await page.goto(`http://${at}/${prefix}/sessions#${await server.owner()}`);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Ref").waitFor();
  visit.clean();
});
