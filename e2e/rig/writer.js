// Who fills sessions: an agent with the JavaScript client, and what opencode's client does, in a few lines.

import assert from "node:assert/strict";
import * as fs from "node:fs/promises";
import { open } from "../../clients/js/dist/src/index.js";
import { folder, repo } from "./mooring.js";

const bytes = (text) => Buffer.byteLength(text);

/** An agent that writes a session of its own. */
export class Agent {
  /** The session, as its owner holds it. */
  session;
  /** A ref that reads it. */
  reader;
  #space;
  #lengths = new Map();

  /** Makes a session on a server and waits until it is there. */
  static async start(t, server, { title = "An agent's session", external } = {}) {
    const client = await open({ home: await folder(t, "agent"), reconnect: { initial: 20, max: 200 }, outbox: { backoff: { initial: 20, max: 200 } } });
    t.after(() => client.close());
    return Agent.#make(await client.space(await server.owner()), { title, external });
  }

  /** Makes a child of the session, started by the part with this key, and gives who writes it. */
  bear({ title, part }) {
    return Agent.#make(this.#space, { title, parent: this.session, part });
  }

  static async #make(space, { title, external, ...options }) {
    const a = new Agent();
    a.#space = space;
    const { session, batch } = space.create({ external, ...options });
    a.session = session;
    batch.put("session", { id: external ?? session.id, title, time: { created: 1795000000000, updated: 1795000000000 } });
    a.reader = batch.share({ rights: ["read"], label: "page" }).ref;
    await a.#applied(batch);
    return a;
  }

  /** Makes another ref that reads the session. */
  async share(limits) {
    const batch = this.session.batch();
    const { ref } = batch.share({ rights: ["read"], label: "page", ...limits });
    await this.#applied(batch);
    return ref;
  }

  /** The link for people, below an origin: the secret is behind the #. */
  link(origin, ref = this.reader) {
    const { pathname, hash } = new URL(ref.text.replace(/^moorings?:/, "http:"));
    return `${origin}/s${pathname}${hash}`;
  }

  /** Puts values by their keys and waits until they are there. */
  async put(values) {
    const batch = this.session.batch();
    for (const [key, value] of Object.entries(values)) batch.put(key, value);
    await this.#applied(batch);
  }

  /** Begins an assistant's turn with a part whose text is to grow. */
  async begin(message, part, type = "text") {
    const batch = this.session.batch();
    batch.begin(message, { id: message, role: "assistant", time: { created: 1795000001000 } });
    batch.put(`part/${message}/${part}`, { id: part, messageID: message, type, text: "" });
    await this.#applied(batch);
  }

  /** Appends to a part's text, durably, and gives what waits for the server's answer. */
  async append(message, part, text) {
    const key = `part/${message}/${part}`;
    const length = this.#lengths.get(key) ?? 0;
    this.#lengths.set(key, length + bytes(text));
    const batch = this.session.batch();
    batch.appendText(key, length, text);
    const ticket = await batch.commit();
    return async () => (await ticket.wait()).check();
  }

  /** Ends a turn. */
  async finalize(message, status = "completed") {
    const batch = this.session.batch();
    batch.finalize(message, status);
    await this.#applied(batch);
  }

  async revoke() {
    await this.session.revoke(this.reader);
  }

  /** The session's parts in their order, as the server holds them: [key, text] each. */
  async texts() {
    const { entries } = await this.session.snapshot();
    const keys = [...entries.keys()];
    const place = new Map(keys.map((key, i) => [key, i]));
    const message = (part) => place.get(`message/${part.split("/")[1]}`);
    const parts = keys.filter((key) => key.startsWith("part/")).sort((a, b) => message(a) - message(b) || place.get(a) - place.get(b));
    return parts.map((key) => [key, JSON.parse(entries.get(key).payload).text]);
  }

  async #applied(batch) {
    (await (await batch.commit()).wait()).check();
  }
}

/** What opencode syncs of a message with one text part. */
export function said(session, message, text) {
  return [
    { type: "message", data: { id: message, sessionID: session, role: "user" } },
    { type: "part", data: { id: "prt_1", messageID: message, sessionID: session, type: "text", text } },
  ];
}

/** A share as opencode makes it: created, then synced. */
export class Share {
  id;
  url;
  #secret;
  #api;

  static async create(server, sessionID, items) {
    const s = new Share();
    s.#api = `${server.origin}/api/share`;
    const { id, url, secret } = await (await s.#send("POST", "", { sessionID })).json();
    [s.id, s.url, s.#secret] = [id, url, secret];
    if (items) await s.sync(items);
    return s;
  }

  async sync(items) {
    await this.#send("POST", `/${this.id}/sync`, { secret: this.#secret, data: items });
  }

  /** What opencode's unshare does: it revokes. */
  async remove() {
    await this.#send("DELETE", `/${this.id}`, { secret: this.#secret });
  }

  async #send(method, where, body) {
    const res = await fetch(this.#api + where, { method, headers: { "content-type": "application/json", "user-agent": "opencode/1.18.33" }, body: JSON.stringify(body) });
    assert.ok(res.ok, `${method} /api/share${where.replace(/\/[^/]+/, "/…")}: ${res.status} ${await res.clone().text()}`);
    return res;
  }
}

/** Shares a session that the real opencode made with a scripted model: all that a page has to show well. */
export async function shareSample(server) {
  const items = JSON.parse(await fs.readFile(repo("e2e/sample.json"), "utf8"));
  const share = await Share.create(server, items.find((item) => item.type === "session").data.id, items);
  return { items, share, url: share.url };
}
