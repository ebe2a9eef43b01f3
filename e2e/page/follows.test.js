// An open page shows what a page that is opened now does, whatever has happened since, and nothing that was taken away.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, Visit } from "../rig/browser.js";
import { Server } from "../rig/mooring.js";
import { choices } from "../rig/seed.js";
import { until } from "../rig/wait.js";
import { Agent } from "../rig/writer.js";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** All that a page shows of a session, but for what the reader has done: folds, the place, the zone of times. */
const shown = (page) =>
  page.evaluate(() => {
    const part = (id) => {
      const copy = document.getElementById(id).cloneNode(true);
      for (const el of copy.querySelectorAll("*")) for (const name of ["open", "data-len", "data-says", "aria-current"]) el.removeAttribute(name);
      for (const time of copy.querySelectorAll("time")) time.textContent = time.dateTime;
      return copy.innerHTML.replaceAll("><", ">\n<").split("\n");
    };
    return {
      title: [document.title, document.getElementById("title").textContent],
      session: part("session"),
      turns: part("turns"),
      more: part("more-turns"),
      facts: part("facts"),
      totals: document.getElementById("totals").textContent,
    };
  });

/** Opens a page anew and gives what it shows, and the facts of its first paint, which the server has summed up. */
async function fresh(t, url) {
  const visit = await Visit.begin(t, browser);
  await visit.page.addInitScript(() => {
    const ask = globalThis.fetch;
    globalThis.fetch = async (...args) => {
      const reply = await ask(...args);
      if (reply.headers.get("content-type")?.startsWith("text/html")) {
        const text = reply.clone().text();
        text.then((html) => (globalThis.painted ??= new DOMParser().parseFromString(html, "text/html").getElementById("facts")?.innerHTML));
      }
      return reply;
    };
  });
  await visit.open(url);
  const painted = await (await visit.page.waitForFunction(() => globalThis.painted)).jsonValue();
  await visit.framed();
  const now = await shown(visit.page);
  await visit.page.context().close();
  return { now, painted: painted.replaceAll("><", ">\n<").split("\n") };
}

/** What a random writer does next: a batch of ops, some of which the server refuses. */
class Writer {
  #pick;
  #lengths = new Map();
  #n = 0;

  constructor(pick) {
    this.#pick = pick;
  }

  fill(batch) {
    for (let ops = 1 + this.#pick.below(3); ops > 0; ops--) this.#op(batch);
  }

  #op(batch) {
    const { below, of, chance } = this.#pick;
    const message = `msg_${below(7)}`;
    const key = `part/${message}/prt_${below(4)}`;
    const n = ++this.#n;
    of([
      () => batch.put(`message/${message}`, this.#message(message)),
      () => this.#part(batch, key),
      () => this.#part(batch, key),
      () => this.#part(batch, key),
      () => batch.remove(chance(0.5) ? key : `message/${message}`),
      () => batch.purge(chance(0.5) ? key : `message/${message}`),
      () => {
        batch.begin(message, this.#message(message));
        this.#text(batch, key, chance(0.5) ? `Begun ${n}. ` : "");
      },
      () => this.#grow(batch, key),
      () => this.#grow(batch, key),
      () => batch.finalize(message, of(["completed", "failed", "aborted"])),
      () => batch.put("session", { title: of(["", `Title ${n}`, "<b>Bold</b>"]), directory: `/folder/${n}`, time: { created: 1795000000000 + n } }),
      () => batch.put(of(["model/a/b", "model/c/d"]), { name: `Model ${n}` }),
      () => batch.put("session_diff", { diff: chance(0.3) ? [] : [{ file: `f${n}.go`, before: "a\n", after: `b${n}\n` }] }),
      () => batch[of(["remove", "purge"])](of(["session", "session_diff", "model/a/b", "model/c/d"])),
    ])();
  }

  #message(id) {
    const { below, of, chance } = this.#pick;
    const created = 1795000000000 + below(10_000_000);
    const m = { id, role: of(["user", "user", "assistant", "assistant", "system", undefined]), time: { created } };
    if (chance(0.5)) m.time.completed = created + below(200_000);
    if (chance(0.5)) m.tokens = { input: below(5000), output: below(5000), reasoning: below(100), cache: { read: below(100_000), write: 0 } };
    if (chance(0.5)) m.cost = below(1000) / of([7, 1000, 100_000]);
    if (chance(0.2)) m.error = { name: "APIError", data: { message: `Busy ${this.#n}` } };
    return m;
  }

  #part(batch, key) {
    const { below, of, chance } = this.#pick;
    const n = this.#n;
    of([
      () => this.#text(batch, key, of([`Text ${n}.`, "", `# Heading ${n}\n\nand **more**`, `${"long ".repeat(60)}${n}`])),
      () => batch.put(key, { type: "text", text: `Aside ${n}`, synthetic: true }),
      () => batch.put(key, { type: "reasoning", text: `Thought ${n}`, time: { start: 1795000000000, end: chance(0.5) ? 1795000000000 + below(90_000) : undefined } }),
      () => batch.put(key, { type: "tool", tool: "bash", state: { status: of(["running", "completed", "error"]), input: { command: `echo ${n}` }, output: `out ${n}` } }),
      () => batch.put(key, { type: "compaction", auto: chance(0.5) }),
      () => batch.put(key, { type: "step-finish", reason: "stop", cost: below(10) / 100 }),
      () => batch.put(key, { type: "of a later time", what: n }),
    ])();
  }

  #text(batch, key, text) {
    this.#lengths.set(key, text.length);
    batch.put(key, { type: "text", text });
  }

  #grow(batch, key) {
    const length = this.#lengths.get(key) ?? 0;
    const text = this.#pick.of([`more ${this.#n} `, `${"and on ".repeat(20)}`, `end ${this.#n}.\n\nNext `]);
    batch.appendText(key, length, text);
    this.#lengths.set(key, length + text.length);
  }
}

test("after any ops an open page shows what one that is opened then does", async (t) => {
  const pick = choices(t);
  const server = await Server.start(t);
  const agent = await Agent.start(t, server, { title: "Followed" });
  const writer = new Writer(pick);
  const visit = await Visit.begin(t, browser);
  await visit.open(agent.link(server.origin));
  await visit.page.evaluate(() => (globalThis.sameDocument = true));
  for (let round = 0; round < 5; round++) {
    let last;
    for (let i = 0; i < 24; i++) {
      const batch = agent.session.batch();
      writer.fill(batch);
      last = await batch.commit();
    }
    await last.wait(); // whatever became of it
    const { now, painted } = await fresh(t, agent.link(server.origin));
    assert.deepEqual(painted, now.facts, "the script sums up what the server does");
    await until(`in round ${round} the open page shows what a new one does`, async () => {
      assert.deepEqual(await shown(visit.page), now);
      return true;
    }, 20_000);
  }
  assert.ok(await visit.page.evaluate(() => globalThis.sameDocument), "the page was loaded anew");
  visit.clean();
});

/** Fails if a text is still anywhere in a page's document: shown, folded, or in an attribute. */
async function without(visit, text) {
  await until(`${text} is gone from the page`, async () => {
    const html = await visit.page.evaluate(() => document.documentElement.outerHTML);
    const at = html.indexOf(text);
    assert.ok(at < 0, `…${html.slice(Math.max(0, at - 100), at + 100)}…`);
    return true;
  }, 20_000);
}

/** A session with a secret in each of its places, and its page. */
async function secrets(t) {
  const server = await Server.start(t);
  const agent = await Agent.start(t, server, { title: "TITLE-SECRET" });
  await agent.put({
    session: { title: "TITLE-SECRET", directory: "/FOLDER-SECRET" },
    "message/msg_1": { role: "user" },
    "part/msg_1/prt_1": { type: "text", text: "ASKED-SECRET" },
    "part/msg_1/prt_2": { type: "text", text: "What else was asked" },
    "message/msg_2": { role: "assistant", error: { name: "Error", data: { message: "ERROR-SECRET" } } },
    "part/msg_2/prt_1": { type: "tool", tool: "bash", state: { status: "completed", input: { command: "cat" }, output: "FOLDED-SECRET" } },
    "part/msg_2/prt_2": { type: "text", text: "What is left" },
    session_diff: { diff: [{ file: "DIFF-SECRET.go", before: "a\n", after: "b\n" }] },
  });
  const visit = await Visit.begin(t, browser);
  await visit.open(agent.link(server.origin));
  const html = await visit.page.content();
  for (const text of ["TITLE-SECRET", "FOLDER-SECRET", "ASKED-SECRET", "ERROR-SECRET", "FOLDED-SECRET", "DIFF-SECRET"]) assert.ok(html.includes(text), text);
  return { server, agent, visit };
}

for (const verb of ["purge", "remove"]) {
  test(`what was ${verb}d is nowhere in an open page`, async (t) => {
    const { agent, visit } = await secrets(t);
    const gone = async (key) => {
      const batch = agent.session.batch();
      batch[verb](key);
      (await (await batch.commit()).wait()).check();
    };
    for (const [key, text] of [["part/msg_1/prt_1", "ASKED-SECRET"], ["message/msg_2", "ERROR-SECRET"], ["part/msg_2/prt_1", "FOLDED-SECRET"], ["session_diff", "DIFF-SECRET"], ["session", "FOLDER-SECRET"]]) {
      await gone(key);
      await without(visit, text);
    }
    await without(visit, "TITLE-SECRET");
    await until("the contents name the turn by what is left", async () => (await visit.page.locator("#turns a").allTextContents()).join() === "What else was asked");
    await visit.shows("What is left");
    await gone("part/msg_2/prt_2");
    await until("a message that has neither head nor parts is gone", async () => (await visit.page.locator("#m-msg_2").count()) === 0);
    visit.clean();
  });
}

for (const [verb, end] of Object.entries({
  revoke: (agent) => agent.revoke(),
  delete: async (agent) => {
    const batch = agent.session.batch();
    batch.delete();
    (await (await batch.commit()).wait()).check();
  },
})) {
  test(`after the ${verb} an open page shows the reason and nothing of the session`, async (t) => {
    const { agent, visit } = await secrets(t);
    await agent.begin("msg_3", "prt_1");
    await visit.page.locator(".state.streaming").waitFor();
    await end(agent);
    await visit.page.locator("#line[data-state=over]").waitFor();
    for (const text of ["TITLE-SECRET", "FOLDER-SECRET", "ASKED-SECRET", "ERROR-SECRET", "FOLDED-SECRET", "DIFF-SECRET", "What is left"]) await without(visit, text);
    assert.equal(await visit.page.locator(".state.streaming").count(), 0, "somebody is shown writing");
    assert.match(await visit.page.locator("main").textContent(), verb === "revoke" ? /^Revoked/ : /^Deleted/);
    assert.match(await visit.page.title(), verb === "revoke" ? /^Revoked/ : /^Deleted/);
    for (const key of ["j", "k", "t", "f", "c", "G", "?"]) await visit.page.keyboard.press(key);
    visit.clean();
  });
}

test("a page that is left and shown again is loaded anew, and has nothing to see until then", async (t) => {
  const { server, agent, visit } = await secrets(t);
  await visit.page.goto(`${server.origin}/share/nothing-here`);
  const batch = agent.session.batch();
  batch.purge("part/msg_1/prt_1");
  (await (await batch.commit()).wait()).check();
  await visit.page.goBack({ waitUntil: "commit" });
  await visit.live();
  await without(visit, "ASKED-SECRET");

  // As browsers do that keep pages whole, which this one does not with these.
  const leaves = (name) => visit.page.evaluate((n) => dispatchEvent(new PageTransitionEvent(n, { persisted: true })), name);
  await leaves("pagehide");
  assert.equal(await visit.page.locator("body").isVisible(), false);
  const again = visit.page.waitForEvent("domcontentloaded");
  await leaves("pageshow");
  await again;
  await visit.live();
  await visit.shows("What is left");
  visit.clean();
});

test("a session of parts alone opens at its beginning, and its parts say which they are", async (t) => {
  const server = await Server.start(t);
  const agent = await Agent.start(t, server, { title: "Parts alone" });
  const parts = Array.from({ length: 40 }, (_, i) => [`part/msg_1/prt_${String(i).padStart(2, "0")}`, i === 7 ? { name: "The seventh" } : { note: i }]);
  await agent.put(Object.fromEntries(parts));
  const visit = await Visit.begin(t, browser);
  await visit.open(agent.link(server.origin));
  const said = await visit.page.locator("#log summary .what").allTextContents();
  assert.deepEqual(said, parts.map(([key], i) => (i === 7 ? "The seventh" : key)));
  await visit.page.evaluate(() => new Promise((done) => {
    let frames = 0;
    const step = () => (++frames < 60 ? requestAnimationFrame(step) : done());
    step();
  }));
  assert.equal(await visit.page.evaluate(() => scrollY), 0, "the page has gone to its end");
  visit.clean();
});
