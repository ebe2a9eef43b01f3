// A model that plays a script, over Anthropic's messages API, streamed.

import { once } from "node:events";
import * as http from "node:http";

/** A step of a reply: `{text}`, `{think}` (reasoning), `{call, input}` (a tool call), or `{until}` (a promise: the stream stands still until it is fulfilled). */
export class Model {
  /** The texts of the prompts that it was asked, in their order. */
  prompts = [];
  /** What it was shown of the conversation with each of them: messages of the API. */
  shown = [];
  #server;
  #replies = [];
  #made = 0;

  /** Starts one on the loopback that ends with the test. */
  static async start(t) {
    const m = new Model();
    m.#server = http.createServer((req, res) => {
      m.#answer(req, res).catch((err) => res.destroy(err));
    });
    m.#server.listen(0, "127.0.0.1");
    await once(m.#server, "listening");
    t.after(() => {
      m.#server.close();
      m.#server.closeAllConnections();
    });
    return m;
  }

  get url() {
    return `http://127.0.0.1:${this.#server.address().port}`;
  }

  /** Adds replies to the script. A reply that ends in a call is followed by another. */
  script(...replies) {
    this.#replies.push(...replies);
  }

  async #answer(req, res) {
    let body = "";
    for await (const chunk of req.setEncoding("utf8")) body += chunk;
    const asked = JSON.parse(body || "{}");
    // Beside the conversation, which has tools, it asks small models for titles and the like.
    const reply = asked.tools?.some(({ name }) => name === "Bash") ? this.#next(asked) : [{ text: "A title" }];
    const made = (kind) => `${kind}_${++this.#made}`;
    const message = { id: made("msg"), type: "message", role: "assistant", model: asked.model, content: [], stop_reason: null, stop_sequence: null, usage: { input_tokens: 1200, output_tokens: 1 } };
    const stop_reason = reply.at(-1).call ? "tool_use" : "end_turn";
    if (!asked.stream) {
      res.writeHead(200, { "content-type": "application/json" });
      return res.end(JSON.stringify({ ...message, content: reply.map(({ text }) => ({ type: "text", text })), stop_reason, input_tokens: 1200 }));
    }
    res.writeHead(200, { "content-type": "text/event-stream" });
    const send = (type, rest) => res.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...rest })}\n\n`);
    send("message_start", { message });
    let index = -1;
    for (const step of reply) {
      if (step.until) {
        await step.until;
        continue;
      }
      index++;
      const [content_block, ...deltas] = step.call
        ? [{ type: "tool_use", id: made("toolu"), name: step.call, input: {} }, { type: "input_json_delta", partial_json: JSON.stringify(step.input) }]
        : step.think
          ? [{ type: "thinking", thinking: "", signature: "" }, { type: "thinking_delta", thinking: step.think }, { type: "signature_delta", signature: "c2lnbmVk" }]
          : [{ type: "text", text: "" }, { type: "text_delta", text: step.text }];
      send("content_block_start", { index, content_block });
      for (const delta of deltas) send("content_block_delta", { index, delta });
      send("content_block_stop", { index });
    }
    send("message_delta", { delta: { stop_reason, stop_sequence: null }, usage: { output_tokens: 34 } });
    send("message_stop", {});
    res.end();
  }

  #next({ messages }) {
    const last = messages.at(-1).content; // results of tools, reminders of Claude Code's own, and what was said
    const said = (typeof last === "string" ? [last] : last.filter(({ type }) => type === "text").map(({ text }) => text)).filter((text) => !text.startsWith("<system-reminder>")).at(-1);
    if (said !== undefined) {
      this.prompts.push(said);
      this.shown.push(messages);
    }
    return this.#replies.shift() ?? [{ text: `The script has no answer to: ${said}` }];
  }
}
