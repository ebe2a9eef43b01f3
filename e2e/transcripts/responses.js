// A model that plays a script, over OpenAI's responses API, streamed.

import { once } from "node:events";
import * as http from "node:http";

/** A step of a reply: `{text}`, `{think}` (reasoning), `{call, input}` (a tool call with arguments), or `{custom, input}` (one with a text). */
export class Responses {
  #server;
  #replies = [];
  #made = 0;

  /** Starts one on the loopback that ends with the test. */
  static async start(t) {
    const m = new Responses();
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
    return `http://127.0.0.1:${this.#server.address().port}/v1`;
  }

  /** Adds replies to the script. A reply that has a call is followed by another. */
  script(...replies) {
    this.#replies.push(...replies);
  }

  async #answer(req, res) {
    for await (const _ of req); // what it asks is not looked at
    if (!req.url.endsWith("/responses")) {
      res.writeHead(404, { "content-type": "application/json" });
      return res.end("{}");
    }
    const id = this.#id("resp");
    res.writeHead(200, { "content-type": "text/event-stream" });
    const send = (type, rest) => res.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...rest })}\n\n`);
    send("response.created", { response: { id } });
    (this.#replies.shift() ?? [{ text: "The script has no answer." }]).forEach((step, output_index) => {
      const item = this.#item(step);
      send("response.output_item.added", { output_index, item: step.text ? { ...item, content: [] } : item });
      if (step.text) send("response.output_text.delta", { item_id: item.id, output_index, content_index: 0, delta: step.text });
      send("response.output_item.done", { output_index, item });
    });
    const usage = { input_tokens: 1200, input_tokens_details: { cached_tokens: 200 }, output_tokens: 34, output_tokens_details: { reasoning_tokens: 5 }, total_tokens: 1234 };
    send("response.completed", { response: { id, usage } });
    res.end();
  }

  #id(kind) {
    return `${kind}_${++this.#made}`;
  }

  #item({ text, think, call, custom, input }) {
    if (text) return { type: "message", role: "assistant", id: this.#id("msg"), content: [{ type: "output_text", text }] };
    if (think) return { type: "reasoning", id: this.#id("rs"), summary: [{ type: "summary_text", text: think }], encrypted_content: "c2VhbGVk" };
    if (call) return { type: "function_call", id: this.#id("fc"), call_id: this.#id("call"), name: call, arguments: JSON.stringify(input) };
    return { type: "custom_tool_call", id: this.#id("ctc"), call_id: this.#id("call"), name: custom, input };
  }
}
