// A session, as the text of its ref says it: mooring://HOST/SESSION.REF#SECRET.

export class Session {
  constructor(text) {
    const [, host, id] = /^mooring:\/\/([^/,]+)[^/]*\/(?:.*\/)?(ses_[^.#]+)/.exec(text) ?? [];
    if (id === undefined) throw new Error("Open this page with a ref behind a #: mooring share SESSION --rights read,ask --ask prompt,stop");
    this.id = id;
    this.server = `${new URLSearchParams(location.search).get("tls") === null ? "http" : "https"}://${host}`;
    this.api = `${this.server}/api/ai/chat`;
    this.headers = { Authorization: `Bearer ${text}` };
  }

  /** The messages so far, with their texts. */
  async history() {
    const answer = await fetch(`${this.server}/api/v1/sessions/${this.id}/snapshot?keys=message/,part/`, { headers: this.headers });
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    const { entries } = await answer.json();
    entries.sort((a, b) => a.ord[0] - b.ord[0] || a.ord[1] - b.ord[1]);
    const messages = new Map();
    for (const { key, payload } of entries) {
      const [kind, id] = key.split("/");
      if (kind === "message") messages.set(id, { id, role: payload.role, parts: [] });
      else if (payload.type === "text") messages.get(id)?.parts.push({ type: "text", text: payload.text });
    }
    return [...messages.values()];
  }

  /** Asks the agent to end its turn. Who stops reading stops nothing. */
  stop() {
    return fetch(`${this.api}/${this.id}/stop`, { method: "POST", headers: this.headers });
  }
}
