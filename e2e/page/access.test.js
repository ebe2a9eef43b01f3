// Who has access: sharing, revoking and replacing refs in a browser, and removing a value.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import jsQR from "jsqr";
import { axe, desktop, launch, phone, Visit } from "../rig/browser.js";
import { Commands, Server } from "../rig/mooring.js";
import { until } from "../rig/wait.js";
import { Agent } from "../rig/writer.js";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** A server with a session, and a visit of its owner. */
async function owned(t, options) {
  const server = await Server.start(t);
  const agent = await Agent.start(t, server, { title: "The boat" });
  await agent.put({ "message/msg_1": { role: "user" }, "part/msg_1/prt_1": { type: "text", text: "The password is tr0ub4dor." }, "env/secrets": { token: "tr0ub4dor" } });
  const visit = await Visit.begin(t, browser, options);
  return { server, agent, visit, link: agent.link(server.origin, agent.session.ref) };
}

// scanned reads the QR code of a picture as large as it is shown.
async function scanned(picture) {
  const { pixels, side } = await picture.evaluate((img) => {
    const side = img.clientWidth;
    const canvas = new OffscreenCanvas(side, side).getContext("2d");
    canvas.drawImage(img, 0, 0, side, side);
    return { pixels: [...canvas.getImageData(0, 0, side, side).data], side };
  });
  return jsQR(Uint8ClampedArray.from(pixels), side, side)?.data;
}

const dialog = (page) => page.getByRole("dialog");
const names = (page) => page.locator(".ref h3").allTextContents();

test("the owner shares, looks, and revokes; what ends is shown before; with the keyboard", async (t) => {
  const { server, visit, link } = await owned(t);
  const { page } = visit;
  await visit.open(link);
  await page.getByRole("link", { name: "Access" }).press("Enter");
  await page.locator(".refs").first().waitFor();
  assert.deepEqual(await names(page), ["The owner's ref", "page"]);
  await page.getByRole("button", { name: "Share…", exact: true }).press("Enter");
  await page.getByLabel(/^revert/).press("Space");
  await page.getByLabel("What it is for").fill('<img src=x onerror="window.pwned=1">');
  await page.getByLabel("It ends after").selectOption("1 day");
  await page.getByText("More limits").press("Enter");
  await page.getByLabel("Opened at most so often").fill("2");
  await page.getByLabel(/^ask /).check();
  await page.getByLabel(/^answer /).check();
  await page.getByLabel("Kinds of requests that it asks").fill("prompt, stop");
  await page.getByLabel("Kinds of requests that it answers").fill("permission");
  await page.getByRole("button", { name: "Make the ref" }).press("Enter");
  const made = await page.getByLabel("The new link").inputValue();
  const secret = made.split("#")[1];
  await until("the QR code is a picture", async () => page.locator(".qr").evaluate((img) => img.naturalWidth > 0));
  assert.equal(await scanned(page.locator(".qr")), made);
  assert.match(await page.getByLabel("The new ref").inputValue(), /^mooring:\/\/127\.0\.0\.1:\d+\/ses_/);
  await page.getByRole("button", { name: "Close" }).press("Enter");
  await until("it is in the tree", async () => (await names(page)).includes('<img src=x onerror="window.pwned=1">'));
  assert.ok(!(await page.content()).includes(secret), "the link is shown once");
  assert.ok(!visit.requests.some((url) => url.includes(secret)) && !server.log.includes(secret), "the secret is in an address or a log");

  const friend = await Visit.begin(t, browser);
  await friend.open(made);
  await friend.shows("tr0ub4dor");
  assert.equal(await friend.page.getByRole("link", { name: "Access" }).count(), 0);
  assert.equal(await friend.page.evaluate(() => document.body.dataset.may), "fork revert ask-prompt ask-stop answer-permission");
  await page.reload();
  await page.getByText("1 of 2 redeemed").waitFor();
  for (const limit of ["asks prompt, stop", "answers permission"]) await page.getByText(limit, { exact: true }).waitFor();
  await page.getByRole("button", { name: /^Revoke <img/ }).press("Enter");
  await dialog(page).getByText("One ref ends").waitFor();
  await page.keyboard.press("Escape");
  await dialog(page).waitFor({ state: "detached" });
  assert.match(await page.evaluate(() => document.activeElement.outerHTML), /data-act="revoke"/);
  await page.keyboard.press("Enter");
  await dialog(page).getByRole("button", { name: "Revoke" }).press("Enter");
  await page.getByText(/Revoked at cut \d+/).waitFor();
  await friend.page.locator("#line[data-state=over]").waitFor();
  await page.getByRole("button", { name: "Close" }).press("Enter");
  await page.getByText("revoked at cut").waitFor();
  await page.locator(".audit").getByText("revoke", { exact: true }).first().waitFor();
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  visit.clean();
});

test("what is pressed before its script is there is done when it is", async (t) => {
  const { agent, server, visit, link } = await owned(t);
  const { page } = visit;
  let release;
  const held = new Promise((resolve) => (release = resolve));
  await page.route(/\/console-[0-9a-f]+\.js$/, async (route) => {
    await held;
    await route.continue();
  });
  await visit.open(link);
  await page.getByLabel("Prompt").fill("Asked at once.");
  await page.getByRole("button", { name: "Send" }).click();
  const access = await visit.tab();
  await access.page.route(/\/console-[0-9a-f]+\.js$/, async (route) => {
    await held;
    await route.continue();
  });
  await access.open(link);
  await access.page.goto(`${server.origin}/s/${agent.session.ref.id}/access`);
  await access.page.getByRole("button", { name: "Share…", exact: true }).click();
  assert.equal(await dialog(access.page).count(), 0);
  release();
  await dialog(access.page).getByLabel("What it is for").waitFor();
  await page.locator("#requests").getByText("Asked at once.").waitFor();
  visit.clean();
  access.clean();
});

test("a refused share says why in the server's words; every share is revoked; the owner's ref is replaced, and the page goes on under the new one", async (t) => {
  const { agent, server, visit, link } = await owned(t);
  const { page } = visit;
  await visit.open(link);
  const reader = await Visit.begin(t, browser);
  await reader.open(agent.link(server.origin));
  await page.getByRole("link", { name: "Access" }).click();
  await page.getByRole("button", { name: "Share…", exact: true }).click();
  await page.getByText("More limits").click();
  await page.getByLabel("Acts as").fill("somebody/else");
  await page.getByRole("button", { name: "Make the ref" }).click();
  await page.getByRole("alert").getByText("actor").waitFor();
  await page.getByLabel("Acts as").fill("");
  await page.getByLabel("One message alone").fill("msg_1");
  await page.getByRole("button", { name: "Make the ref" }).click();
  await page.getByLabel("The new link").waitFor();
  await page.getByRole("button", { name: "Close" }).click();

  await page.getByText("message msg_1 alone").waitFor();
  await page.getByRole("button", { name: "Revoke every share" }).click();
  await dialog(page).getByText("2 refs end").waitFor();
  await dialog(page).getByRole("button", { name: "Revoke every share" }).click();
  await page.getByText("Epoch 2 begins").waitFor();
  await reader.page.locator("#line[data-state=over]").waitFor();
  await page.getByRole("button", { name: "Close" }).click();
  await page.getByText("revoked with every share").first().waitFor();

  await page.getByRole("button", { name: "Replace the owner's ref" }).click();
  await dialog(page).getByText("One ref ends").waitFor();
  await dialog(page).getByRole("button", { name: "Replace it" }).click();
  const made = await page.getByLabel("The new link").inputValue();
  await page.getByRole("button", { name: "Close" }).click();
  await visit.live();
  assert.equal(page.url(), made.split("#")[0]);

  // The page of the space's owner says the same, however often the ref was replaced.
  await page.goto(`${server.origin}/sessions#${await server.owner()}`);
  await page.locator("ul.sessions").waitFor();
  await page.goto(`${server.origin}/sessions/${agent.session.id}/access`);
  await page.getByRole("button", { name: "Replace the owner's ref" }).click();
  await dialog(page).getByText("One ref ends").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Revoke every share" }).click();
  await dialog(page).getByText("Nothing that lives would end.").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Share…", exact: true }).click();
  await page.getByLabel("What it is for").fill("under the space");
  await page.getByRole("button", { name: "Make the ref" }).click();
  await page.getByRole("button", { name: "Close" }).click();
  await until("it is in the tree", async () => (await names(page)).includes("under the space"));
  await page.getByRole("button", { name: "Revoke every share" }).click();
  await dialog(page).getByText("One ref ends").waitFor();
  visit.clean();
});

test("a value is purged from its page, and is in the log no more", async (t) => {
  const { agent, visit, link } = await owned(t);
  const { page } = visit;
  await visit.open(link);
  await page.locator("#rest .act").focus();
  await page.keyboard.press("Enter");
  await dialog(page).getByRole("button", { name: "Purge it" }).press("Enter");
  await dialog(page).getByText(/Removed from \d+ event/).waitFor();
  await page.getByRole("button", { name: "Close" }).click();
  await until("it is gone", async () => (await page.locator("#rest [data-key]").count()) === 0);
  await page.locator("#m-msg_1 .act").click();
  await dialog(page).locator("select").selectOption("part/msg_1/prt_1");
  await dialog(page).getByRole("button", { name: "Purge it" }).click();
  await dialog(page).getByText(/Removed from \d+ event/).waitFor();
  const tail = await (await Commands.with(t)).run(["session", "export", agent.session.ref.text]);
  assert.ok(!tail.includes("tr0ub4dor"));
  assert.ok(!(await page.locator("#log").textContent()).includes("tr0ub4dor"));
  visit.clean();
});

for (const [device, size] of Object.entries({ desktop, phone })) {
  test(`axe finds nothing on the page of who has access, nor in its dialogs: ${device}`, async (t) => {
    const { agent, visit, link, server } = await owned(t, { size, hasTouch: device === "phone" });
    const { page } = visit;
    const helper = await agent.share({ rights: ["read", "append", "share"], label: "helper", actor: "owner/helper", expires: Date.now() + 3600_000 });
    const gone = await agent.share({ label: "a former reader" });
    await agent.session.revoke(gone);
    await (await Commands.with(t)).run(["share", helper.text, "--rights", "read", "--label", "made by the helper", "--message", "msg_1", "--redemptions", "3"]);
    await visit.open(link);
    await page.getByRole("link", { name: "Access" }).click();
    await page.locator(".audit").waitFor();
    const looks = async (what) => {
      await page.evaluate(axe);
      for (const theme of ["dark", "light"]) {
        await page.emulateMedia({ colorScheme: theme });
        const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
        assert.deepEqual(violations.flatMap((v) => v.nodes.map((n) => `${v.id}: ${n.target.join(" ")}: ${n.failureSummary}`)), [], `${what}, ${theme}`);
      }
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0, what);
      if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/${device}-${what.replaceAll(" ", "-")}.png`, fullPage: what === "access" });
    };
    await looks("access");
    await page.getByRole("button", { name: "Share…", exact: true }).click();
    await page.getByText("More limits").click();
    await looks("share dialog");
    await page.getByText("More limits").click();
    await page.getByRole("button", { name: "Make the ref" }).click();
    await page.getByLabel("The new link").waitFor();
    await looks("shared");
    await page.getByRole("button", { name: "Close" }).click();
    await page.getByRole("button", { name: "Revoke helper" }).click();
    await dialog(page).getByText("2 refs end").waitFor();
    await looks("revoke dialog");
    await page.keyboard.press("Escape");
    await page.goto(`${server.origin}/sessions#${await server.owner()}`);
    await page.locator("ul.sessions").waitFor();
    await page.goto(`${server.origin}/sessions/access`);
    await page.locator(".audit").waitFor();
    await looks("access to the space");
    visit.clean();
  });
}
