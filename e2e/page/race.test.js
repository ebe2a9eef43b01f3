// Two tabs that race to answer what an agent asks: each permission has one answer, and the agent has that one, once.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import * as fs from "node:fs/promises";
import * as path from "node:path";
import { after, before, test } from "node:test";
import { launch, Visit } from "../rig/browser.js";
import { full } from "../rig/full.js";
import { Commands, folder, mooring, repo, Server } from "../rig/mooring.js";
import { until } from "../rig/wait.js";

const permissions = full(60, 200),
  atOnce = 10;

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const lines = (text) => text.split("\n").filter(Boolean).map((line) => JSON.parse(line));

test(`${permissions} permissions of an agent are answered in two tabs at once`, { timeout: 180_000 }, async (t) => {
  const server = await Server.start(t);
  const dir = await folder(t, "race");
  const commands = await Commands.with(t);
  const phone = path.join(dir, "phone.ref"), decided = path.join(dir, "decided");
  await fs.writeFile(decided, "");
  const run = spawn(mooring(), ["run", "--home", commands.home, "--owner", await server.owner(), "--share-to", phone, "--", process.execPath, repo("e2e/rig/asking-agent.js"), decided, String(atOnce)], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = once(run, "exit");
  t.after(() => run.kill("SIGKILL"));
  const [first] = await once(run.stdout.setEncoding("utf8"), "data");
  const session = first.trim();
  const link = (await commands.run(["link", `@${phone}`])).trim();
  const tabs = [await Visit.begin(t, browser), await Visit.begin(t, browser)];
  for (const tab of tabs) await tab.open(link);

  // Each tab clicks whatever is there, one the one choice and the other the other, until nothing is asked any more.
  for (const [i, choice] of ["once", "no"].entries()) {
    await tabs[i].page.evaluate((choice) => {
      const clicked = new Set();
      const click = () => {
        for (const card of document.querySelectorAll("#requests > .request")) {
          const button = card.querySelector(`.answers [data-choice="${choice}"]`);
          if (!button || clicked.has(card.dataset.request)) continue;
          clicked.add(card.dataset.request);
          button.click();
        }
      };
      click();
      new MutationObserver(click).observe(document.body, { childList: true, subtree: true });
    }, choice);
  }
  const prompt = (await commands.run(["session", "ask", `@${phone}`, "prompt", String(permissions)])).trim();
  const requests = async () => lines(await commands.run(["session", "requests", session, "--all", "--json"]));
  await until("the prompt is answered", async () => lines(await fs.readFile(decided, "utf8")).length >= permissions && (await requests()).find((r) => r.request === prompt).state === "answered");

  const asked = (await requests()).filter((r) => r.kind === "permission");
  assert.equal(asked.length, permissions);
  assert.deepEqual(asked.filter((r) => r.state !== "answered"), []);
  const got = lines(await fs.readFile(decided, "utf8"));
  assert.equal(got.length, permissions, "the agent has one answer each");
  assert.equal(new Set(got.map(({ id }) => id)).size, permissions);
  for (const { id, option } of got) {
    const request = asked.find((r) => r.payload.tool.input.command === `make ${id.slice("call_".length)}`);
    assert.equal(option, request.choice, id);
  }
  for (const option of ["once", "no"]) t.diagnostic(`${got.filter((g) => g.option === option).length} times ${option}`);
  run.kill("SIGTERM");
  await ended;
  assert.equal(run.exitCode, 0);
});
