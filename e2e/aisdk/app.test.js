// examples/ai-chat, and what docs/ai-sdk.md shows, built with Vite, in Chromium: from another origin than the server's.

import assert from "node:assert/strict";
import { once } from "node:events";
import * as fs from "node:fs/promises";
import * as http from "node:http";
import * as path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Visit, launch } from "../rig/browser.js";
import { folder, output, repo } from "../rig/mooring.js";
import { Proxy } from "../rig/proxy.js";
import { until } from "../rig/wait.js";
import { Chats } from "./rig.js";

const modules = fileURLToPath(new URL("node_modules", import.meta.url));
let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** Builds the example, or another main module in its place, with the packages that are installed here, and serves it; gives its origin. */
async function built(t, main) {
  const dir = await folder(t, "app");
  await fs.cp(repo("examples/ai-chat"), dir, { recursive: true, filter: (file) => !/node_modules|dist/.test(path.relative(repo("examples/ai-chat"), file)) });
  const wants = JSON.parse(await fs.readFile(path.join(dir, "package.json"), "utf8"));
  const has = JSON.parse(await fs.readFile(new URL("package.json", import.meta.url), "utf8")).devDependencies;
  assert.deepEqual({ ...has, ...wants.dependencies, ...wants.devDependencies }, has, "the example has the versions that are tested");
  if (main !== undefined) await fs.writeFile(path.join(dir, "src/main.jsx"), main);
  await fs.symlink(modules, path.join(dir, "node_modules"));
  await output(process.execPath, ["node_modules/vite/bin/vite.js", "build", "--logLevel", "error"], { cwd: dir });
  const types = { ".html": "text/html", ".js": "text/javascript" };
  const server = http.createServer(async (request, answer) => {
    const file = path.join(dir, "dist", request.url === "/" ? "index.html" : path.normalize(request.url));
    const body = await fs.readFile(file).catch(() => undefined);
    answer.writeHead(body === undefined ? 404 : 200, { "content-type": types[path.extname(file)] ?? "application/octet-stream" }).end(body);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  return `http://127.0.0.1:${server.address().port}`;
}

test("a prompt is typed, its answer streams, goes on over a reload and a cut link, and is stopped", async (t) => {
  const origin = await built(t);
  const c = await Chats.start(t, ["--allow-origin", new URL(origin).host]);
  const proxy = await Proxy.start(t, c.server);
  const ref = c.ref.replace(/^mooring:\/\/[^/]+/, `mooring://${new URL(proxy.origin).host}`);
  const visit = await Visit.begin(t, browser);
  const { page } = visit;
  await page.goto(`${origin}/#${encodeURIComponent(ref)}`);
  const send = async (text) => {
    await page.getByPlaceholder("Ask the agent").fill(text);
    await page.getByRole("button", { name: "Send" }).click();
  };
  const answers = () => page.locator("article.assistant").evaluateAll((list) => list.map((a) => [...a.querySelectorAll(".text")].map((p) => p.textContent).join("|")));
  const shows = (...texts) => until(`it shows ${texts}`, async () => JSON.stringify(await answers()) === JSON.stringify(texts));
  const ready = () => page.locator("[data-status=ready]").waitFor({ state: "attached" });

  await send("think:Hm say:Hello_there. gate:one say:_More. gate:two tool:ls say:End.");
  await shows("Hello there.");
  assert.equal(await page.locator(".reasoning").textContent(), "Hm");
  await c.open("one");
  await shows("Hello there. More.");
  await page.reload();
  await shows("Hello there. More.");
  await page.locator("[data-status=streaming]").waitFor({ state: "attached" });
  await c.open("two");
  await shows("Hello there. More.|End.");
  await ready();
  await page.getByText("ls: output-available").waitFor();
  assert.equal(await page.locator("article.user").count(), 1);

  await send("say:Again. gate:three say:_Gone_on.");
  await shows("Hello there. More.|End.", "Again.");
  proxy.cut();
  await c.open("three");
  await shows("Hello there. More.|End.", "Again. Gone on.");
  await ready();

  await send("say:Working. wait");
  await shows("Hello there. More.|End.", "Again. Gone on.", "Working.");
  await page.getByRole("button", { name: "Stop" }).click();
  await ready();
  await page.reload();
  await shows("Hello there. More.|End.", "Again. Gone on.", "Working.");
  await ready();
  assert.deepEqual(visit.troubles, []);
  assert.equal((await c.prompted()).length, 3, "no prompt twice");
});

test("the lines of docs/ai-sdk.md send, resume after a reload, send again after a cut, and stop", async (t) => {
  const doc = await fs.readFile(repo("docs/ai-sdk.md"), "utf8"), [, lines] = /^```jsx\n([^]*?)^```$/m.exec(doc), [, serving, share] = /of mooring serve (--.*)\n.*of mooring (share .*)$/m.exec(lines);
  const origin = await built(t, `
    import { useChat } from "@ai-sdk/react";
    import { DefaultChatTransport } from "ai";
    import { createRoot } from "react-dom/client";
    const { server, session, ref } = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    function Page() {
      ${lines}
      globalThis.page = { chat, stop, again };
      return chat.messages.map((m) => <article key={m.id} className={m.role}>{m.parts.map((p) => p.text).join("")}</article>);
    }
    createRoot(document.getElementById("root")).render(<Page />);
  `);
  assert.equal(serving, "--ai-sdk", "which the server has");
  const c = await Chats.start(t, ["--allow-origin", new URL(origin).host]);
  const proxy = await Proxy.start(t, c.server);
  const file = path.join(await folder(t, "ref"), "chat.ref");
  await c.commands.run(share.replace("SESSION", c.session).split(" ").map((word) => (word === "chat.ref" ? file : word)));
  const visit = await Visit.begin(t, browser);
  const { page } = visit;
  await page.goto(`${origin}/#${encodeURIComponent(JSON.stringify({ server: proxy.origin, session: c.session, ref: (await fs.readFile(file, "utf8")).trim() }))}`);
  const send = (text) => page.evaluate((text) => void globalThis.page.chat.sendMessage({ text }), text);
  const shows = (...texts) => until(`it shows ${texts}`, async () => JSON.stringify(await page.locator("article.assistant").allTextContents()) === JSON.stringify(texts));
  const status = (...any) => until(`it is ${any}`, async () => any.includes(await page.evaluate(() => globalThis.page.chat.status)));

  await page.waitForFunction(() => globalThis.page?.chat.status === "ready");
  await send("say:Hello gate:one say:_there.");
  await shows("Hello");
  await page.reload();
  await shows("Hello");
  await status("streaming");
  await c.open("one");
  await shows("Hello there.");
  await status("ready");

  await send("say:Again gate:two say:_and_on.");
  await shows("Hello there.", "Again");
  proxy.cut();
  await status("error");
  await page.evaluate(() => void globalThis.page.again(globalThis.page.chat.messages.findLast((m) => m.role === "user")));
  await status("streaming");
  await c.open("two");
  await shows("Hello there.", "Again and on.");
  await status("ready");

  await send("say:Working. wait");
  await shows("Hello there.", "Again and on.", "Working.");
  assert.equal(await page.evaluate(async () => (await globalThis.page.stop()).status), 200);
  await status("ready");
  assert.deepEqual(visit.troubles, []);
  assert.deepEqual(await c.prompted(), ["say:Hello gate:one say:_there.", "say:Again gate:two say:_and_on.", "say:Working. wait"], "no prompt twice");
});
