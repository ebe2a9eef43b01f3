// An agent of the Agent Client Protocol that does nothing but ask: a prompt with the text N asks for N permissions, SOME at a time. It adds a line for
// each that is decided to the file that it is given: { id, option }.

import { appendFileSync } from "node:fs";
import { createInterface } from "node:readline";

const [, , decided, some] = process.argv;
const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
let prompt; // { id, left, waiting }

const options = [["once", "Allow once", "allow_once"], ["no", "Reject", "reject_once"]].map(([optionId, name, kind]) => ({ optionId, name, kind }));

function ask() {
  for (; prompt.waiting < Number(some) && prompt.left > 0; prompt.left--, prompt.waiting++) {
    const toolCall = { toolCallId: `call_${prompt.left}`, title: `make ${prompt.left}`, kind: "execute", rawInput: { command: `make ${prompt.left}` } };
    send({ id: toolCall.toolCallId, method: "session/request_permission", params: { sessionId: "one", toolCall, options } });
  }
  if (prompt.waiting === 0) send({ id: prompt.id, result: { stopReason: "end_turn" } });
}

createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params, result } = JSON.parse(line);
  if (method === "initialize") send({ id, result: { protocolVersion: 1, agentCapabilities: {} } });
  else if (method === "session/new") send({ id, result: { sessionId: "one" } });
  else if (method === "session/prompt") {
    prompt = { id, left: Number(params.prompt[0].text), waiting: 0 };
    ask();
  } else if (result) {
    appendFileSync(decided, `${JSON.stringify({ id, option: result.outcome.optionId ?? result.outcome.outcome })}\n`);
    prompt.waiting--;
    ask();
  }
});
