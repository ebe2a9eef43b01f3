// Transcripts of the real Claude Code and Codex, imported: their page shows what one of opencode's does.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { axe, launch, Visit } from "../rig/browser.js";
import { Commands, repo, Server } from "../rig/mooring.js";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

for (const [name, failed] of [["claude-2.1.332", "File does not exist"], ["codex-0.169.0", "No such file"]]) {
  test(`the page of ${name}`, async (t) => {
    const server = await Server.start(t);
    const commands = await Commands.with(t);
    const id = await commands.run(["session", "import", repo(`testdata/transcripts/${name}.jsonl`), "--owner", await server.owner()]);
    const { page, ...visit } = await open(t, (await commands.run(["link", id])).split("\n").at(-1));
    assert.equal(await page.locator("h1").first().innerText(), "Please make a.css blue.");
    assert.equal(await page.locator(".part.unknown").count(), 0, "no part is of an unknown shape");
    assert.match(await page.locator(".part.reasoning").first().textContent(), /I should look first\./);
    await page.evaluate(() => document.querySelectorAll("#session details").forEach((d) => (d.open = true)));
    const diff = page.locator(".diff", { has: page.locator(".del", { hasText: "color: red;" }) }).last();
    assert.match(await diff.locator(".add").first().textContent(), /color: blue;/);
    const todos = page.locator(".todos").last();
    assert.deepEqual(await todos.locator("li").evaluateAll((list) => list.map((li) => li.className)), ["done", ""]);
    assert.match(await page.locator(".part.tool", { hasText: "exit 3" }).first().textContent(), /echo half/);
    assert.match(await page.locator(".part.failed").last().textContent(), new RegExp(failed));
    assert.equal(await page.locator(".part.running").count(), 0, "every call has its result");
    assert.equal(await page.locator(".part.text strong", { hasText: "blue" }).count(), 1);
    await page.evaluate(axe);
    const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    assert.deepEqual(found.violations.map((v) => v.id), []);
    assert.deepEqual(visit.troubles, []);
  });
}

async function open(t, url) {
  const visit = await Visit.begin(t, browser);
  await visit.open(url);
  return visit;
}
