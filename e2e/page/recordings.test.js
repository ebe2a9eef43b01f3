// Recordings of the real opencode, played while somebody watches: what was seen live is what a reload shows.

import assert from "node:assert/strict";
import * as fs from "node:fs/promises";
import { after, before, test } from "node:test";
import { launch, Visit } from "../rig/browser.js";
import { repo, Server } from "../rig/mooring.js";
import { until } from "../rig/wait.js";
import { Share } from "../rig/writer.js";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const words = (text) => text.match(/[\p{L}\p{N}]+/gu)?.join(" ") ?? "";

/** The requests of a recording, in their order. */
async function requestsOf(name) {
  const lines = (await fs.readFile(repo(`testdata/opencode/${name}.jsonl`), "utf8")).trim().split("\n");
  return lines.map((line) => JSON.parse(line));
}

/** What its syncs fold to: the session's title, and the parts by their keys. A part that opencode removed stays: that is never sent. */
function folded(requests) {
  const items = requests.flatMap((r) => r.body?.data ?? []);
  return {
    title: items.findLast((i) => i.type === "session").data.title,
    parts: new Map(items.filter((i) => i.type === "part").map(({ data }) => [`part/${data.messageID}/${data.id}`, data])),
  };
}

/** Every block of the page by its key, but for what a reader has folded, and for colours in code: highlighting ends where its time does. */
const blocks = (page) =>
  page.evaluate(() =>
    Object.fromEntries(
      [...document.querySelectorAll("#session [data-key]")].map((el) => {
        const copy = el.cloneNode(true);
        copy.querySelectorAll("[data-key]").forEach((inner) => inner.remove()); // they are looked at by themselves
        copy.querySelectorAll("code span").forEach((token) => token.replaceWith(...token.childNodes));
        copy.querySelectorAll("details").forEach((d) => d.removeAttribute("open"));
        return [el.dataset.key, copy.outerHTML];
      }),
    ),
  );

/** Where two texts part. */
function differ(seen, now) {
  const at = [...now].findIndex((c, i) => seen[i] !== c);
  const around = (text) => text.slice(Math.max(0, at - 60), at + 60);
  return `live: …${around(seen)}…, painted: …${around(now)}…`;
}

for (const name of ["a-edit-1.18.33", "b-long-1.18.33", "d-revert-unshare-1.18.33", "f-streamlong-1.1.65"]) {
  test(`${name}, watched while it happens`, async (t) => {
    const server = await Server.start(t);
    const requests = await requestsOf(name);
    const share = await Share.create(server, requests.find((r) => r.path === "/api/share").body.sessionID);
    const visit = await Visit.begin(t, browser);
    await visit.hurries();
    await visit.open(share.url);
    for (const { path, body } of requests) if (path.endsWith("/sync")) await share.sync(body.data);

    const { title, parts } = folded(requests);
    const reverted = requests.findLast((r) => r.path.endsWith("/sync"))?.body.data.find((i) => i.type === "session")?.data.revert;
    for (const [key, part] of parts) if (reverted && part.messageID >= reverted.messageID) parts.delete(key); // hidden
    await until("the page has every part", async () => {
      const seen = await visit.page.locator("#log [data-key^='part/']").evaluateAll((all) => all.map((el) => el.dataset.key));
      assert.deepEqual(seen, [...parts.keys()].sort());
      return true;
    });
    const said = [...parts].filter(([, p]) => p.type === "text" || p.type === "reasoning");
    await until("every part has its whole text", async () => {
      const texts = new Map(await visit.texts());
      for (const [key, { text }] of said) assert.equal(words(texts.get(key)), words(text), key);
      return true;
    });
    assert.ok(said.length > 0);
    await until("the title", async () => (await visit.page.locator("#title").textContent()) === title);

    const fresh = await Visit.begin(t, browser);
    await fresh.open(`${share.url}?all`);
    await until("both pages are alike", async () => {
      const [seen, now] = await Promise.all([blocks(visit.page), blocks(fresh.page)]);
      assert.deepEqual(Object.keys(seen), Object.keys(now));
      const odd = Object.keys(now).filter((key) => seen[key] !== now[key]);
      assert.deepEqual(odd, [], odd.length > 0 ? differ(seen[odd[0]], now[odd[0]]) : "");
      return true;
    }, 20_000);
    if (requests.some((r) => r.method === "DELETE")) {
      await share.remove();
      await visit.page.locator("#line[data-state=over]").waitFor();
    }
    visit.clean();
  });
}
