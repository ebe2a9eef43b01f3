// An agent of the Agent Client Protocol that does what the words of a prompt say: say:TEXT, think:TEXT, tool:COMMAND, wait (until it is
// cancelled), gate:NAME (until there is a file of that name in the folder that it is given). It adds a line for each prompt that it gets to the
// file prompts there.

import { appendFileSync, existsSync } from "node:fs";
import * as path from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

const [, , folder] = process.argv;
const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
const update = (of) => send({ method: "session/update", params: { sessionId: "one", update: of } });
const text = (sessionUpdate, said) => update({ sessionUpdate, content: { type: "text", text: said.replaceAll("_", " ") } });
let cancelled = false;
let calls = 0;

const words = {
  say: (said) => text("agent_message_chunk", said),
  think: (said) => text("agent_thought_chunk", said),
  async tool(command) {
    const toolCallId = `call_${++calls}`;
    update({ sessionUpdate: "tool_call", toolCallId, title: command, kind: "execute", status: "pending", rawInput: { command } });
    update({ sessionUpdate: "tool_call_update", toolCallId, status: "in_progress" });
    await pause(60); // longer than what is gathered
    update({ sessionUpdate: "tool_call_update", toolCallId, status: "completed", content: [{ type: "content", content: { type: "text", text: `ran ${command}` } }] });
  },
  async gate(name) {
    while (!cancelled && !existsSync(path.join(folder, name))) await pause(20);
  },
  async wait() {
    while (!cancelled) await pause(20);
  },
  pause: (ms) => pause(Number(ms)),
};

async function prompted(id, prompt) {
  cancelled = false;
  const said = prompt.map((block) => block.text ?? `[${block.type}]`).join(" ");
  appendFileSync(path.join(folder, "prompts"), `${said}\n`);
  for (const word of said.split(/\s+/)) {
    const [verb, ...rest] = word.split(":");
    if (!cancelled) await words[verb]?.(rest.join(":"));
  }
  send({ id, result: { stopReason: cancelled ? "cancelled" : "end_turn" } });
}

createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (method === "initialize") send({ id, result: { protocolVersion: 1, agentCapabilities: { promptCapabilities: { image: true, embeddedContext: true } } } });
  else if (method === "session/new") send({ id, result: { sessionId: "one" } });
  else if (method === "session/prompt") void prompted(id, params.prompt);
  else if (method === "session/cancel") cancelled = true;
});
