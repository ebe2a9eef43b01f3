// DefaultChatTransport and Chat of the AI SDK, as npm has them, with a real server and a real mooring run.

import { Chat } from "@ai-sdk/react";
import { DefaultChatTransport, readUIMessageStream } from "ai";
import assert from "node:assert/strict";
import { test } from "node:test";
import { Proxy } from "../rig/proxy.js";
import { until } from "../rig/wait.js";
import { Chats, chatPath } from "./rig.js";

const user = (id, text) => ({ id, role: "user", parts: [{ type: "text", text }] });

/** A message as it is compared: JSON has no members that are undefined. */
const plain = (message) => JSON.parse(JSON.stringify(message));

/** The last state of the message of a stream, and how it ended. */
async function read(stream) {
  let message;
  let failed;
  for await (const state of readUIMessageStream({ stream, onError: (err) => (failed = err) })) message = state;
  return { message: message === undefined ? undefined : plain(message), failed };
}

function transport(c, origin = c.server.origin) {
  return new DefaultChatTransport({ api: origin + chatPath, headers: c.headers });
}

const send = (via, c, messages) => via.sendMessages({ chatId: c.session, messages, trigger: "submit-message", messageId: undefined, abortSignal: undefined });

test("a message is a prompt, and its answer comes as it grows, with what was thought and called", async (t) => {
  const c = await Chats.start(t);
  const stream = await send(transport(c), c, [user("u0", "before"), { id: "a0", role: "assistant", parts: [] }, user("u1", "think:Hm say:Hello, say:_world. tool:ls say:Done gate:end")]);
  const states = [];
  let ended = false;
  const reading = (async () => {
    for await (const m of readUIMessageStream({ stream, terminateOnError: true })) states.push(plain(m));
    ended = true;
  })();
  await until("the text is there", () => states.at(-1)?.parts.some((p) => p.type === "text" && p.text === "Done"));
  assert.equal(ended, false);
  await c.open("end");
  await reading;
  const { id, parts } = states.at(-1);
  assert.match(id, /^turn_ai_[0-9a-f]{32}$/);
  assert.deepEqual(
    parts.map((p) => [p.type, p.text ?? p.output, p.state]),
    [["step-start", undefined, undefined], ["reasoning", "Hm", "done"], ["text", "Hello, world.", "done"], ["dynamic-tool", "ran ls", "output-available"], ["text", "Done", "done"]],
  );
  assert.equal(parts[3].toolName, "bash");
  assert.deepEqual(parts[3].input, { command: "ls" });
  assert.deepEqual(await c.prompted(), ["think:Hm say:Hello, say:_world. tool:ls say:Done gate:end"], "the last message alone");

  // Sent again it is the same prompt, with the same answer.
  const again = await read(await send(transport(c), c, [user("u1", "think:Hm say:Hello, say:_world. tool:ls say:Done gate:end")]));
  assert.equal(again.failed, undefined);
  assert.deepEqual(again.message, states.at(-1));
  assert.equal((await c.prompted()).length, 1);
  await assert.rejects(send(transport(c), c, [user("u1", "say:other")]), /sent before, with another text/);
  assert.equal(await transport(c).reconnectToStream({ chatId: c.session }), null, "none runs");

  // A file goes along.
  const picture = { type: "file", mediaType: "image/png", url: "data:image/png;base64,iVBORw0KGgo=", filename: "a.png" };
  await read(await send(transport(c), c, [{ id: "u2", role: "user", parts: [picture, { type: "text", text: "say:seen" }] }]));
  assert.deepEqual((await c.prompted()).slice(1), ["[image] say:seen"]);
});

test("two devices resume a message in the middle, and have the same in the end", async (t) => {
  const c = await Chats.start(t);
  const first = read(await send(transport(c), c, [user("u1", "think:One say:a say:b gate:one say:c tool:ls gate:two say:d")]));
  const early = (await transport(c).reconnectToStream({ chatId: c.session })).getReader();
  const chunks = [];
  while (chunks.at(-1)?.type !== "text-delta") chunks.push((await early.read()).value);
  assert.deepEqual(chunks.slice(0, 3).map((chunk) => chunk.type), ["start", "start-step", "reasoning-start"]);
  await early.cancel();
  const second = read(await transport(c).reconnectToStream({ chatId: c.session }));
  await c.open("one");
  const third = read(await transport(c).reconnectToStream({ chatId: c.session }));
  await c.open("two");
  const all = await Promise.all([first, second, third]);
  for (const { message, failed } of all) {
    assert.equal(failed, undefined);
    assert.deepEqual(message, all[0].message);
  }
  assert.deepEqual(all[0].message.parts.filter((p) => p.type === "text").map((p) => p.text), ["abc", "d"]);
});

test("a turn is stopped, and a message whose reader went away is not", async (t) => {
  const c = await Chats.start(t);
  const leaving = new AbortController();
  const stream = await transport(c).sendMessages({ chatId: c.session, messages: [user("u1", "say:working wait")], trigger: "submit-message", abortSignal: leaving.signal });
  const gone = read(stream);
  await until("it works", async () => (await c.prompted()).length === 1);
  leaving.abort();
  assert.equal((await gone).failed?.name, "AbortError");
  const resumed = read(await transport(c).reconnectToStream({ chatId: c.session }));
  const stopped = await until("it has begun", async () => {
    const answer = await c.stop();
    return answer.status === 200 && (await answer.json());
  });
  assert.match(stopped.message, /^turn_ai_/);
  const { message, failed } = await resumed;
  assert.equal(failed, undefined);
  assert.equal(message.parts.at(-1).text, "working");
  await until("nothing runs", async () => (await c.stop()).status === 204);
  assert.equal(await transport(c).reconnectToStream({ chatId: c.session }), null);
});

test("cut at any byte, a chat that sends its message again has all of the answer, once", async (t) => {
  const c = await Chats.start(t);
  const proxy = await Proxy.start(t, c.server);
  const text = (n) => `think:Wait_${n} say:one say:_two tool:ls say:three_${n}`;
  const whole = await (await fetch(c.api, { method: "POST", headers: { ...c.headers, "content-type": "application/json" }, body: JSON.stringify({ id: c.session, messages: [user("whole", text(0))] }) })).text();
  const step = process.env.FULL ? 1 : 41;
  let cuts = 0;
  for (let n = 1; n < whole.length + 600; n += step) {
    const errors = [];
    let finish;
    const chat = new Chat({
      id: c.session,
      transport: transport(c, proxy.origin),
      onError: (err) => errors.push(err),
      onFinish: ({ finishReason }) => (finish = finishReason),
    });
    proxy.cutAfter = n;
    await chat.sendMessage({ text: text(n) });
    for (let tries = 0; finish === undefined; tries++) {
      assert.ok(tries < 5, String(errors.at(-1)));
      cuts++;
      if (tries === 0 && cuts % 2 === 0) await chat.resumeStream(); // if it still runs
      else await chat.sendMessage({ text: text(n), messageId: chat.messages.findLast((m) => m.role === "user").id });
    }
    assert.equal(chat.status, "ready", `cut at ${n}: ${errors.at(-1)}`);
    assert.equal(chat.messages.length, 2, `cut at ${n}`);
    const parts = chat.messages[1].parts.map((p) => [p.type, p.text ?? p.output]);
    assert.deepEqual(parts, [["step-start", undefined], ["reasoning", `Wait ${n}`], ["text", "one two"], ["dynamic-tool", "ran ls"], ["text", `three ${n}`]], `cut at ${n}`);
  }
  assert.ok(cuts > 10, `${cuts} cuts`);
  const prompts = await c.prompted();
  assert.equal(new Set(prompts).size, prompts.length, "no prompt twice");
});

test("a revoke ends a stream with an error that says no more, and what cannot be carried is refused", async (t) => {
  const c = await Chats.start(t);
  const cut = read(await send(transport(c), c, [user("u1", "say:secret-text wait")]));
  await until("it works", async () => (await c.prompted()).length === 1);
  await c.commands.run(["revoke", c.ref.split("/").at(-1).split("#")[0]]);
  assert.equal((await cut).failed.message, "the session is not shown any more: revoked");
  const secret = c.ref.split("#")[1];
  await assert.rejects(transport(c).reconnectToStream({ chatId: c.session }), (err) => err.statusCode === 403 && !err.message.includes(secret));
  assert.ok(!c.server.log.includes(secret), "the log has no secret");
});
