// All content is hostile: every payload of the corpus, in every text of every part type, as first paint and as it comes live.

import assert from "node:assert/strict";
import * as fs from "node:fs/promises";
import { after, before, test } from "node:test";
import { launch, Visit } from "../rig/browser.js";
import { full } from "../rig/full.js";
import { repo, Server } from "../rig/mooring.js";
import { until } from "../rig/wait.js";
import { Agent, Share } from "../rig/writer.js";

let browser;
let payloads;
before(async () => {
  payloads = (await fs.readFile(repo("internal/page/testdata/xss.txt"), "utf8")).split("\n").filter((line) => line !== "" && !line.startsWith("## "));
  assert.ok(payloads.length > 50);
  browser = await launch();
});
after(() => browser.close());

const time = { created: 1795000000000, completed: 1795000001000, start: 1795000000000, end: 1795000001000 };
const cost = 0.1;
const tokens = { input: 1, output: 2, reasoning: 3, cache: { read: 4, write: 5 } };

/** Every type of part and every state of a call, with x in each of its texts. */
function parts(x) {
  const call = (status, state) => ({ type: "tool", tool: x, callID: x, state: { status, input: { [x]: x, filePath: x, command: x, description: x, list: [x], deep: { [x]: [x] } }, title: x, time, ...state } });
  const named = (tool, input, metadata, output = x) => ({ ...call("completed", { input, output, metadata }), tool });
  return [
    { type: "text", text: x },
    { type: "text", text: `# ${x}\n\n**${x}** \`${x}\` [${x}](${x}) ![${x}](${x})\n\n<${x}>\n\n[a]: ${x}\n[b][a]\n\n| ${x} |\n|---|\n| ${x} |\n\n\`\`\`${x}\n${x}\n\`\`\`\n\n- [ ] ${x}\n\n> ${x}`, synthetic: true },
    { type: "reasoning", text: x, time },
    call("pending", { raw: x }),
    call("running", { metadata: { [x]: x, output: x } }),
    call("completed", { output: x, metadata: { output: x, diff: x, preview: x, [x]: x }, attachments: [{ type: "file", mime: x, filename: x, url: x }] }),
    call("error", { error: x, metadata: { error: x } }),
    call(x, { output: x, error: x }),
    named("bash", { command: x, description: x }, { output: x, exit: x }),
    named("read", { filePath: x }, { preview: x, display: { type: x, path: x, text: x } }),
    named("write", { filePath: x, content: x }, { filepath: x, diagnostics: { [x]: [{ message: x }] } }),
    named("edit", { filePath: x, oldString: x, newString: x }, { diff: `--- ${x}\n+++ ${x}\n@@ -1 +1 @@ ${x}\n-${x}\n+${x}\n`, filediff: { file: x, before: x, after: x, patch: x } }),
    named("todowrite", { todos: [{ content: x, status: x, priority: x, id: x }] }, { todos: [{ content: x, status: x, priority: x }] }),
    named("webfetch", { url: x, format: x }, {}),
    named("task", { description: x, prompt: x, subagent_type: x }, { sessionId: x, summary: [{ id: x, tool: x, state: { status: x, title: x } }] }),
    { type: "file", mime: x, filename: x, url: x, source: { type: "file", path: x, text: { value: x, start: 0, end: 1 } } },
    { type: "file", mime: "image/png", filename: x, url: `data:image/png;base64,${x}` },
    { type: "file", mime: "image/svg+xml", filename: x, url: `data:image/svg+xml,${encodeURIComponent(x)}` },
    { type: "file", mime: "text/html", filename: x, url: `data:text/html,${encodeURIComponent(x)}` },
    { type: "patch", hash: x, files: [x] },
    { type: "step-start", snapshot: x },
    { type: "step-finish", reason: x, snapshot: x, cost: x, tokens },
    { type: "snapshot", snapshot: x },
    { type: "agent", name: x, source: { value: x, start: 0, end: 1 } },
    { type: "subtask", prompt: x, description: x, agent: x, command: x, model: { providerID: x, modelID: x } },
    { type: "retry", attempt: x, error: { name: x, data: { message: x, responseBody: x } }, time },
    { type: "compaction", auto: x },
    { type: x, [x]: x, text: x, state: x, tool: x, files: x, time: x },
  ];
}

const fileDiff = (x) => ({ file: x, patch: `--- ${x}\n+++ ${x}\n@@ -1 +1 @@ ${x}\n-${x}\n+${x}\n`, before: x, after: x, additions: x, deletions: 1, status: x });

/** The items of a session in which every text is hostile; each text in one of so many kinds of parts. */
function hostile(session, all, of = 1) {
  const items = [
    { type: "session", data: { id: session, title: all.join(" "), slug: all[0], directory: all[1], version: all[2], path: all[3], agent: all[4], model: { id: all[5], providerID: all[6] }, share: { url: all[7] }, revert: { messageID: all[8], diff: all[9] }, summary: { diffs: [fileDiff(all[10])] }, time } },
    { type: "session_diff", data: all.slice(0, 40).map(fileDiff) },
    ...all.slice(0, 40).map((x) => ({ type: "model", data: [{ id: x, name: x, providerID: x, family: x, status: x, api: { url: x, npm: x }, cost: { input: x }, limit: { context: x } }] })),
  ];
  for (const [m, x] of all.entries()) {
    const messageID = `msg_${String(m).padStart(4, "0")}`;
    const role = m % 3 === 0 ? "user" : m % 3 === 1 ? "assistant" : x;
    items.push({ type: "message", data: { id: messageID, sessionID: session, role, agent: x, mode: x, modelID: x, providerID: x, parentID: x, model: { providerID: x, modelID: x }, path: { cwd: x, root: x }, finish: x, system: x, variant: x, summary: { title: x, body: x, diffs: [fileDiff(x)] }, error: { name: x, data: { message: x } }, time, cost, tokens } });
    for (const [p, part] of parts(x).entries()) if ((m + p) % of === 0) items.push({ type: "part", data: { ...part, id: `prt_${String(p).padStart(4, "0")}`, messageID, sessionID: session } });
  }
  return items;
}

/** A page in which nothing may run: what does is noted. */
async function armed(t, options = {}) {
  const visit = await Visit.begin(t, browser, options);
  const { page } = visit;
  const ran = [];
  await page.exposeFunction("__xss", (what) => void ran.push(String(what)));
  await page.addInitScript(() => {
    for (const name of ["alert", "confirm", "prompt", "print", "open"]) globalThis[name] = () => globalThis.__xss(`${name} was called`);
  });
  page.on("dialog", (d) => { ran.push(`dialog: ${d.message()}`); void d.dismiss(); });
  page.on("popup", () => ran.push("a window opened"));
  page.on("download", () => ran.push("a download began"));
  page.on("framenavigated", (f) => { if (f !== page.mainFrame()) ran.push(`a frame went to ${f.url()}`); });
  return { visit, ran };
}

/** Looks for what could run or lead away, provokes it, and fails if anything did. */
async function harmless({ visit, ran }, url) {
  const { page } = visit;
  const found = await page.evaluate(() => {
    const bad = [];
    const own = (src) => new URL(src, location.href).origin === location.origin && new URL(src, location.href).pathname.startsWith("/assets/");
    const allowed = /^(https?|mailto):|^#|^\//i;
    for (const el of document.querySelectorAll("*")) {
      const tag = el.localName;
      const told = () => el.cloneNode(false).outerHTML.slice(0, 200);
      if (/^(iframe|frame|object|embed|applet|base|template|portal|marquee|math|foreignobject|animate|set|use)$/.test(tag) || (tag === "meta" && el.httpEquiv) || tag === "style") bad.push(`element: ${told()}`);
      if (tag === "script" && !(el.src && own(el.src))) bad.push(`script: ${told()}`);
      if (tag === "link" && !own(el.href)) bad.push(`link: ${told()}`);
      if (tag === "form" && (el.getAttribute("action") ?? "") !== "" && new URL(el.action).origin !== location.origin) bad.push(`form: ${told()}`);
      for (const { name, value } of el.attributes) {
        if (/^on/i.test(name)) bad.push(`handler: ${told()}`);
        if (/^(style|srcdoc|ping|formaction|background|poster|srcset)$/i.test(name)) bad.push(`attribute: ${told()}`);
        if (/^(href|xlink:href|action)$/i.test(name) && !allowed.test(value.trim()) && !own(value)) bad.push(`leads to: ${told()}`);
        if (name === "src" && !own(value) && !/^data:image\/(png|jpeg|gif|webp)[;,]/i.test(value)) bad.push(`source: ${told()}`);
        if (/^(id|name)$/i.test(name) && value in HTMLDocument.prototype && el.closest("#log, #contents, ul")) bad.push(`clobbers: ${told()}`);
      }
      if (tag === "a" && el.target === "_blank" && !/noopener/.test(el.rel)) bad.push(`opener: ${told()}`);
    }
    // What waits for somebody to do something.
    document.querySelectorAll("details").forEach((d) => (d.open = true));
    for (const el of document.querySelectorAll("#log *")) for (const type of ["mouseover", "focus", "toggle", "error"]) el.dispatchEvent(new Event(type));
    return bad;
  });
  assert.deepEqual(found.slice(0, 20), [], `${found.length} elements or attributes that must not be there`);
  await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve))));
  assert.deepEqual(ran, [], "something ran");
  assert.equal(page.url().split("#")[0], url, "the page was led away");
  visit.clean();
  const { origin } = new URL(url);
  const odd = visit.requests.filter((u) => !u.startsWith("data:") && !/^\/(share|s|assets|sessions)(\/|$)/.test(new URL(u).pathname) && u !== `${origin}/favicon.ico`);
  assert.deepEqual(odd, [], "requests that content made");
}

// Without the policy there is only the sanitiser between content and what it wants.
const unprotected = { bypassCSP: true };

test("the alarm works", async (t) => {
  const server = await Server.start(t);
  const { visit, ran } = await armed(t, unprotected);
  await visit.page.goto(`${server.origin}/sessions`);
  await visit.page.evaluate(() => document.body.insertAdjacentHTML("beforeend", "<img src='x:' onerror='alert(1)'>"));
  await until("the alarm", () => ran.includes("alert was called"));
});

test("hostile content does nothing in the first paint", async (t) => {
  const server = await Server.start(t);
  const share = await Share.create(server, "ses_hostile");
  const items = hostile("ses_hostile", payloads);
  for (let i = 0; i < items.length; i += 500) await share.sync(items.slice(i, i + 500));
  const place = await armed(t, unprotected);
  await place.visit.open(`${share.url}?all`);
  assert.equal(await place.visit.page.locator("#log [data-key^='part/']").count(), payloads.length * parts("").length);
  await harmless(place, `${share.url}?all`);
});

test("hostile content does nothing when it comes live", async (t) => {
  const server = await Server.start(t);
  const share = await Share.create(server, "ses_hostile", [{ type: "session", data: { id: "ses_hostile", title: "calm" } }]);
  const place = await armed(t);
  await place.visit.open(share.url);
  // Each text in each kind of part is in the first paint above, written by the same code; here each text is in some kinds, and each kind has some texts.
  const items = hostile("ses_hostile", payloads, full(4, 1));
  for (let i = 0; i < items.length; i += 500) await share.sync(items.slice(i, i + 500));
  const count = items.filter((i) => i.type === "part").length;
  await until("all of it is in the page", async () => (await place.visit.page.locator("#log [data-key^='part/']").count()) === count);
  await harmless(place, share.url);
});

test("hostile text does nothing while it is streamed", async (t) => {
  const server = await Server.start(t);
  const agent = await Agent.start(t, server);
  const place = await armed(t, unprotected);
  await place.visit.open(agent.link(server.origin));
  for (const type of ["text", "reasoning"]) {
    await agent.begin(`msg_${type}`, "prt_1", type);
    let done;
    for (const payload of payloads) {
      const half = payload.length >> 1; // not within a tag's name alone
      await agent.append(`msg_${type}`, "prt_1", payload.slice(0, half));
      done = await agent.append(`msg_${type}`, "prt_1", `${payload.slice(half)}\n\n`);
    }
    await (await agent.append(`msg_${type}`, "prt_1", `end of ${type}`))();
    await done();
    await place.visit.shows(`end of ${type}`);
    await agent.finalize(`msg_${type}`);
  }
  await harmless(place, agent.link(server.origin).split("#")[0]);
});

test("hostile titles do nothing in the list", async (t) => {
  const server = await Server.start(t);
  for (const [i, title] of payloads.slice(0, 40).entries()) await Share.create(server, `ses_${i}`, [{ type: "session", data: { id: `ses_${i}`, title } }]);
  const place = await armed(t);
  await place.visit.page.goto(`${server.origin}/sessions#${await server.owner()}`);
  await place.visit.page.locator("ul.sessions").waitFor();
  await harmless(place, `${server.origin}/sessions`);
  const q = `"><img src=x onerror=__xss(1)>`;
  await place.visit.page.goto(`${server.origin}/sessions?q=${encodeURIComponent(q)}`);
  assert.equal(await place.visit.page.getByLabel("Search").inputValue(), q);
  assert.deepEqual(place.ran, []);
});
