// A model that plays a script, over the OpenAI-compatible protocol for streamed chat completions.

import assert from "node:assert/strict";
import { once } from "node:events";
import * as http from "node:http";

const title = "A scripted session";

/**
 * A step of a reply: `{reasoning}`, `{text}` (a delta each), `{call, input}` (a tool call), `{until}` (a promise, or a
 * function that gives one: the stream stands still until it is fulfilled).
 */
export class Model {
  /** How many replies of the script were asked for. */
  asked = 0;
  /** What is answered where the script has ended: a function of the messages that gives a reply. */
  otherwise;
  #server;
  #replies = [];
  #calls = 0;

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
    return `http://127.0.0.1:${this.#server.address().port}/v1`;
  }

  /** Adds replies to the script: the next requests get one each. A reply that ends in a call is followed by another. */
  script(...replies) {
    this.#replies.push(...replies);
  }

  /** Fails if the script was not played to its end. */
  done() {
    assert.equal(this.#replies.length, 0, "replies of the script that nobody asked for");
  }

  async #answer(req, res) {
    let body = "";
    for await (const chunk of req.setEncoding("utf8")) body += chunk;
    const { model, messages } = JSON.parse(body);
    const reply = model === "small" ? [{ text: title }] : this.#next(messages);
    res.writeHead(200, { "content-type": "text/event-stream" });
    const send = (delta, finish_reason = null, rest = {}) =>
      res.write(`data: ${JSON.stringify({ id: "chat", object: "chat.completion.chunk", created: 1, model, choices: [{ index: 0, delta, finish_reason }], ...rest })}\n\n`);
    send({ role: "assistant", content: "" });
    let calls = 0;
    for (const step of reply) {
      if (step.until) await (typeof step.until === "function" ? step.until() : step.until);
      if (step.reasoning) send({ reasoning_content: step.reasoning });
      if (step.text) send({ content: step.text });
      if (step.call) {
        const call = { index: calls++, id: `call_${++this.#calls}`, type: "function" };
        send({ tool_calls: [{ ...call, function: { name: step.call, arguments: "" } }] });
        send({ tool_calls: [{ index: call.index, function: { arguments: JSON.stringify(step.input) } }] });
      }
    }
    send({}, calls > 0 ? "tool_calls" : "stop", { usage: { prompt_tokens: 1200, completion_tokens: 34, total_tokens: 1234 } });
    res.end("data: [DONE]\n\n");
  }

  #next(messages) {
    this.asked++;
    const reply = this.#replies.shift() ?? this.otherwise?.(messages);
    return reply ?? [{ text: `The script has no answer to: ${JSON.stringify(messages.at(-1)?.content)}` }];
  }
}
