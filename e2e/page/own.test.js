// Values of kinds of the session's users, and who works on them: there when a page is opened, and as they change.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, Visit } from "../rig/browser.js";
import { Commands, Server } from "../rig/mooring.js";
import { until } from "../rig/wait.js";
import { Agent } from "../rig/writer.js";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

test("a page shows own keys, who changed them, and what patches make of them", async (t) => {
  const server = await Server.start(t);
  const agent = await Agent.start(t, server);
  await agent.put({ "message/msg_1": { role: "user" }, "part/msg_1/prt_1": { type: "text", text: "A plan, please." } });
  const ref = await agent.share({ rights: ["read", "append"], actor: "owner/helper" });
  const commands = await Commands.with(t);
  const append = (...ops) => commands.run(["session", "append", ref.text, "-", "--wait"], ops.map((op) => `${JSON.stringify(op)}\n`).join(""));
  await append({ method: "put", key: "todo/1", payload: { title: "paint the boat", state: "open" } }, { method: "put", key: "count", payload: 7 });

  const visit = await Visit.begin(t, browser);
  await visit.open(agent.link(server.origin, ref));
  const own = () => visit.page.evaluate(() => [...document.querySelectorAll("#rest [data-key]")].map((el) => [el.dataset.key, el.textContent.replace(/\s+/g, " ")]));
  const shows = (...want) =>
    until("the page shows the own keys", async () => {
      const got = await own();
      assert.deepEqual(got.map(([key]) => key), want.map(([key]) => key));
      for (const [i, [, text]] of want.entries()) assert.ok(got[i][1].includes(text), `${got[i]} shows no ${text}`);
      return true;
    });
  await shows(["count", "7"], ["todo/1", "stateopen"]);
  await append({ method: "patch", key: "todo/1", patch: { state: "done" } }, { method: "add", key: "todo/1", member: "tries", by: 3 });
  await shows(["count", "7"], ["todo/1", "statedone"]);
  await shows(["count", "7"], ["todo/1", "tries3"]);
  await append({ method: "remove", key: "count" }, { method: "put", key: "a", payload: null });
  await shows(["a", "null"], ["todo/1", "statedone"]);
  await shows(["a", "owner/helper"], ["todo/1", "owner/helper"]);

  await append({ method: "put", key: "todo/2", payload: [{ step: "sand", hours: 1 }, { hours: 2, step: "paint" }] });
  await shows(["a", "null"], ["todo/1", "statedone"], ["todo/2", "stephourssand1paint2"]);

  // Who works on a key, until it is given back; a put does not end that.
  const todo = async () => (await own()).find(([key]) => key === "todo/2")[1];
  await append({ method: "claim", key: "todo/2", lease: 600_000, worker: "w7" });
  await until("the claim is shown", async () => /Claimed by owner\/helper w7 until \S/.test(await todo()));
  const claim = JSON.parse(await commands.run(["session", "get", ref.text, "todo/2", "--json"])).claim.cursor;
  await append({ method: "put", key: "todo/2", payload: [{ step: "sand", hours: 1 }, { hours: 3, step: "paint" }], claim });
  await until("the put and the claim are shown", async () => /Claimed by owner\/helper w7 until \S.*paint3/.test(await todo()));
  await append({ method: "release", key: "todo/2", claim });
  await until("the claim is gone", async () => !/Claimed/.test(await todo()));
  await append({ method: "put", key: "todo/2", payload: [{ step: "sand", hours: 1 }, { hours: 2, step: "paint" }] });
  await visit.page.reload();
  await shows(["a", "owner/helper"], ["todo/1", "statedone"], ["todo/2", "stephourssand1paint2"]);
  await shows(["a", "owner/helper"], ["todo/1", "owner/helper"], ["todo/2", "owner/helper"]);
});
