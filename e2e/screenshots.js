// Makes the README's pictures, in docs/images: a real session of opencode on the real server, in Chromium.

import assert from "node:assert/strict";
import * as fs from "node:fs/promises";
import { test } from "node:test";
import { desktop, launch, phone, Visit } from "./rig/browser.js";
import { repo, Server } from "./rig/mooring.js";
import { Agent, shareSample } from "./rig/writer.js";

const folder = repo("docs/images");
const limit = 200_000;

/** Takes a picture of what is in the window, small enough for a README. */
async function take(page, name) {
  await page.evaluate(() => document.fonts.ready);
  const file = `${folder}/${name}.png`;
  const picture = await page.screenshot({ animations: "disabled", caret: "hide" });
  assert.ok(picture.length <= limit, `${name}.png has ${picture.length} bytes, more than ${limit}`);
  await fs.writeFile(file, picture);
  console.log(`docs/images/${name}.png: ${picture.length} bytes`);
}

test("the README's pictures", async (t) => {
  await fs.mkdir(folder, { recursive: true });
  const browser = await launch();
  t.after(() => browser.close());
  const server = await Server.start(t);
  // The page tells where it is in the session and nothing of the server: pictures of one session are alike.
  const { url } = await shareSample(server);
  for (const [device, size] of Object.entries({ desktop: { ...desktop, height: 900 }, phone })) {
    for (const theme of ["light", "dark"]) {
      const visit = await Visit.begin(t, browser, { size, colorScheme: theme, timezoneId: "UTC", locale: "en-GB", deviceScaleFactor: device === "phone" ? 1.5 : 1, hasTouch: device === "phone" });
      await visit.open(url);
      await take(visit.page, `session-${device}-${theme}`);
      if (device === "desktop") {
        // The call that failed, the fix as a diff, and the answer.
        await visit.page.locator("#log details", { hasText: "limit.go" }).filter({ hasText: "b.burst" }).last().evaluate(async (el) => {
          el.open = true;
          // What comes into sight takes its real height only then: until nothing moves any more.
          const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
          for (let still = 0, last = NaN; still < 10; await frame()) {
            const { top } = el.getBoundingClientRect();
            still = top === last ? still + 1 : 0;
            last = top;
            if (Math.abs(top - 180) > 1) scrollBy({ top: top - 180, behavior: "instant" });
          }
        });
        await take(visit.page, `fix-${device}-${theme}`);
      }
      visit.clean();
    }
  }
});

test("the README's picture of a phone that answers", async (t) => {
  await fs.mkdir(folder, { recursive: true });
  const browser = await launch();
  t.after(() => browser.close());
  const server = await Server.start(t);
  const agent = await Agent.start(t, server, { title: "Fix the flaky limiter test" });
  await agent.put({ "message/msg_1": { role: "user" }, "part/msg_1/prt_1": { type: "text", text: "The limiter's test fails one run in ten. Find out why and fix it." } });
  const batch = agent.session.batch();
  batch.begin("msg_2", { role: "assistant" });
  batch.put("part/msg_2/prt_1", { type: "text", text: "The test reads the clock twice. I have given it one clock; now I would like to run it a hundred times." });
  batch.ask("permission", { command: "go test -race -count=100 -run TestBurst ./internal/limit" }, {
    id: "per_1", message: "msg_2", choices: [{ id: "once", label: "Allow once" }, { id: "always", label: "Always allow" }, { id: "reject", label: "Reject" }],
  });
  const { ref } = batch.share({ rights: ["read", "ask", "answer"], actor: "owner/phone", label: "phone" });
  (await (await batch.commit()).wait()).check();
  for (const theme of ["light", "dark"]) {
    const visit = await Visit.begin(t, browser, { size: phone, colorScheme: theme, timezoneId: "UTC", locale: "en-GB", deviceScaleFactor: 1.5, hasTouch: true });
    await visit.open(agent.link(server.origin, ref));
    await visit.page.getByRole("button", { name: "Allow once" }).scrollIntoViewIfNeeded();
    await visit.page.evaluate(() => scrollTo({ top: document.body.scrollHeight, behavior: "instant" }));
    await take(visit.page, `answer-phone-${theme}`);
    visit.clean();
  }
});
