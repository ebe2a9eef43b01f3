// Sessions as the AI SDK's UIMessages, by the real command line and the real SDK: it takes what is exported of recorded sessions, and what it makes itself
// is imported and exported again as it was.

import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import * as fs from "node:fs/promises";
import * as path from "node:path";
import { test } from "node:test";
import { convertToModelMessages, readUIMessageStream, safeValidateUIMessages } from "ai";
import { Commands, repo, Server } from "../rig/mooring.js";

const recordings = readdirSync(repo("testdata/opencode")).filter((name) => /\.(jsonl|export\.json)$/.test(name));

/** A server, and a command line with its owner's ref. */
async function rig(t) {
  const server = await Server.start(t);
  const commands = await Commands.with(t);
  await commands.run(["session", "list", "--owner", await server.owner()]);
  return commands;
}

const exported = (commands, session) => commands.run(["session", "export", session, "--format", "uimessage"]);

/** Checks that the SDK takes an array, and gives what it makes of it: what it does not know is gone from that. */
async function taken(text) {
  const messages = JSON.parse(text);
  const result = await safeValidateUIMessages({ messages });
  assert.ok(result.success, result.error?.message);
  await convertToModelMessages(messages);
  return result.data;
}

test("what is exported of recorded sessions is taken by the SDK, and imported elsewhere it is exported as the same bytes", async (t) => {
  // A recording and opencode's export of it name one session, which a server has once.
  const here = { jsonl: await rig(t), json: await rig(t) };
  const elsewhere = { jsonl: await rig(t), json: await rig(t) };
  const seen = new Set();
  for (const name of recordings) {
    await t.test(name, async () => {
      const kind = name.split(".").at(-1);
      const commands = here[kind];
      const array = await exported(commands, await commands.run(["session", "import", repo(`testdata/opencode/${name}`)]));
      const messages = await taken(array);
      assert.deepEqual(messages, JSON.parse(array), "the SDK knows all of it");
      const said = await convertToModelMessages(messages);
      assert.ok(said.some((m) => m.role === "tool") && said.some((m) => m.role === "user"));
      for (const { type, state } of messages.flatMap((m) => m.parts)) seen.add(type).add(state);
      assert.equal(await exported(elsewhere[kind], await elsewhere[kind].run(["session", "import", "-"], array)), array);
    });
  }
  for (const kind of ["text", "reasoning", "file", "dynamic-tool", "output-available", "output-error", "step-start", "data-step-finish", "data-patch", "data-diff", "data-compaction", "data-session"])
    assert.ok(seen.has(kind), kind);
});

test("a session of odd values is taken by the SDK as well", async (t) => {
  const commands = await rig(t);
  const session = await commands.run(["session", "create"]);
  const urls = ["a.txt", "", "http:", "https://1.2.3.999/", "https://a b/", "https://a:99999/", "file://x:1/y", "https://xn--a/", "https://[::1", "mcp://a<b/", "data:,a", "file:///a b", "mcp:///x", "urn:x"];
  const state = (status, more) => ({ type: "tool", tool: "read", callID: status, state: { status, input: {}, ...more } });
  const parts = [
    ...urls.map((url) => ({ type: "file", mime: "text/plain", url })),
    ...["pending", "running", "completed", "error", "odd"].map((status) => state(status)),
    state("completed", { input: undefined, metadata: { files: [{ file: "a", after: "b" }] }, title: 5 }),
    state("error", { error: { name: "x" }, metadata: 5 }),
    { type: "tool", tool: 5 }, { type: "tool", tool: "read" }, { type: "text" }, { type: "text", text: "", metadata: { a: 1 }, time: {} }, { type: "reasoning", text: 1 }, { type: 5 }, {}, { type: "step-start" },
  ];
  const ops = [["user", []], ["assistant", parts], ["system", []], ["tool", []], [undefined, []], ["user", parts]].flatMap(([role, parts], m) => [
    { method: "put", key: `message/m${m}`, payload: { id: `m${m}`, role, time: 5 } },
    ...parts.map((payload, p) => ({ method: "put", key: `part/m${m}/p${p}`, payload })),
  ]);
  await commands.run(["session", "append", session, "-", "--wait"], ops.map((op) => JSON.stringify(op)).join("\n"));
  const array = await exported(commands, session);
  await taken(array);
  assert.equal(JSON.parse(array)[1].parts.filter((p) => p.type === "file").length, 4);
  assert.equal(await exported(commands, await commands.run(["session", "import", "-"], array)), array);
});

/** A message that the SDK itself makes of a stream. */
async function made(chunks, message) {
  let last;
  const stream = new ReadableStream({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk);
      controller.close();
    },
  });
  for await (const state of readUIMessageStream({ stream, message, onError: (error) => assert.fail(error) })) last = state;
  return last;
}

test("what the SDK makes, in all that its parts can be, is imported and exported again as it was", async (t) => {
  const call = (toolCallId, ...more) => [
    { type: "tool-input-start", toolCallId, toolName: "weather", dynamic: toolCallId.startsWith("d") },
    { type: "tool-input-delta", toolCallId, inputTextDelta: '{"city":"Bern"' },
    ...more.map((chunk) => ({ toolCallId, ...chunk })),
  ];
  const input = { type: "tool-input-available", toolName: "weather", input: { city: "Bern", at: 1.5 }, title: "Weather", providerMetadata: { x: { a: null } } };
  const both = (toolCallId, ...more) => [...call(`s_${toolCallId}`, ...more), ...call(`d_${toolCallId}`, ...more.map((chunk) => (chunk.toolName ? { ...chunk, dynamic: true } : chunk)))];
  const ask = (id) => ({ type: "tool-approval-request", approvalId: id, reason: "it costs" });
  const chunks = [
    { type: "start", messageId: "", messageMetadata: { createdAt: 1795203728054, model: "x" } },
    { type: "start-step" },
    { type: "reasoning-start", id: "r" }, { type: "reasoning-delta", id: "r", delta: "Hm… \u2028 \ud83c\udf27" }, { type: "reasoning-end", id: "r", providerMetadata: { anthropic: { signature: "s" } } },
    ...both("begun"), ...both("called", input), ...both("done", input, { type: "tool-output-available", output: { t: 21, sky: ["blue"] } }),
    ...both("nothing", input, { type: "tool-output-available", output: null, preliminary: true }), ...both("failed", input, { type: "tool-output-error", errorText: "no net" }),
    ...call("s_bad", { type: "tool-input-error", toolName: "weather", input: "x", errorText: "no city" }),
    ...both("asked", input).concat([{ ...ask("a1"), toolCallId: "s_asked" }, { ...ask("a2"), toolCallId: "d_asked" }]),
    ...call("s_denied", input, ask("a3"), { type: "tool-approval-response", approvalId: "a3", approved: false, reason: "too dear" }, { type: "tool-output-denied" }),
    ...call("s_allowed", input, ask("a4"), { type: "tool-approval-response", approvalId: "a4", approved: true }),
    { type: "finish-step" }, { type: "start-step" },
    { type: "source-url", sourceId: "1", url: "https://example.org", title: "Weather" }, { type: "source-document", sourceId: "2", mediaType: "text/plain", title: "D", filename: "d.txt" },
    { type: "file", url: "data:text/plain,a", mediaType: "text/plain" }, { type: "reasoning-file", url: "data:,b", mediaType: "image/png" }, { type: "custom", kind: "x.y" },
    { type: "data-chart", id: "c", data: { points: [1, 2.5] } }, { type: "data-patch", data: null },
    { type: "steering-message", id: "st", parts: [{ type: "text", text: "and Basel" }] },
    { type: "text-start", id: "t" }, { type: "text-delta", id: "t", delta: "It is 21°." }, { type: "text-end", id: "t" }, { type: "text-start", id: "u" }, { type: "text-delta", id: "u", delta: "And" },
    { type: "finish-step" }, { type: "finish", messageMetadata: { tokens: 5 } },
  ];
  const user = { id: "Ab3 de/ü", role: "user", parts: [{ type: "text", text: "Weather?" }, { type: "file", mediaType: "image/*", url: "data:image/png;base64,aGk=", filename: "a.png" }] };
  const messages = [{ id: "1", role: "system", parts: [{ type: "text", text: "Be brief." }] }, user, await made(chunks), { ...user, id: "1" }, await made([{ type: "start" }, { type: "text-start", id: "t" }])];
  const states = new Set(messages.flatMap((m) => m.parts).map((p) => p.state));
  for (const state of ["input-streaming", "input-available", "approval-requested", "approval-responded", "output-available", "output-error", "output-denied", "streaming", "done"]) assert.ok(states.has(state), state);

  const commands = await rig(t);
  const text = JSON.stringify(messages, undefined, 1);
  await taken(text);
  const file = path.join(commands.home, "chat.json");
  await fs.writeFile(file, text);
  const session = await commands.run(["session", "import", file]);
  const array = await exported(commands, session);
  assert.deepEqual(JSON.parse(array), JSON.parse(text));
  await taken(array);
  // Pages and opencode's own export show what was said, called and answered.
  const { messages: shown } = JSON.parse(await commands.run(["session", "export", session]));
  assert.deepEqual(shown.map((m) => m.info.role), ["system", "user", "assistant", "user", "assistant"]);
  const tools = shown[2].parts.filter((p) => p.type === "tool");
  assert.deepEqual(new Set(tools.map((p) => p.state.status)), new Set(["pending", "running", "completed", "error"]));
  assert.ok(tools.every((p) => p.tool === "weather"));

  // The chat goes on with the SDK, and the import with it; what was exported once is exported as the same bytes from then on.
  const more = [...(await taken(array)), { id: "next", role: "user", parts: [{ type: "text", text: "Thanks" }] }];
  await fs.writeFile(file, JSON.stringify(more));
  assert.equal(await commands.run(["session", "import", file]), session);
  const longer = await exported(commands, session);
  assert.deepEqual(JSON.parse(longer), JSON.parse(JSON.stringify(more)));
  const other = await rig(t);
  assert.equal(await exported(other, await other.run(["session", "import", "-"], longer)), longer);
});
