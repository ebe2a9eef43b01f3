// A machine that works on one prompt by the Claude Agent SDK, with its sessions in Mooring: machine.js JSON. It prints a message of the SDK a line.

import { foldSessionSummary, query } from "@anthropic-ai/claude-agent-sdk";
import { ClaudeSessionStore } from "../../clients/js/dist/src/claude-session-store.js";
import { open } from "../../clients/js/dist/src/index.js";

const { home, ref, project, prompt, resume, flush, env, cwd } = JSON.parse(process.argv[2]);
const client = await open({ home });
const sessionStore = new ClaudeSessionStore(await client.session(ref), { project, foldSessionSummary });
const options = {
  cwd, env, resume, sessionStore, sessionStoreFlush: flush, settingSources: [], mcpServersDelivery: "initialize",
  canUseTool: async (_, input) => ({ behavior: "allow", updatedInput: input }),
};
for await (const message of query({ prompt, options })) console.log(JSON.stringify(message));
await client.close();
