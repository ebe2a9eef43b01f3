// A process that appends to a session of Claude's until it is killed, and says so after each append: claude-writer.js HOME REF KEY

import { type ClaudeSessionKey, ClaudeSessionStore } from "../src/claude-session-store.js";
import { open } from "../src/index.js";

const [, , home, ref, key] = process.argv as unknown as [string, string, string, string, string];
const client = await open({ home }), store = new ClaudeSessionStore(await client.session(ref));
for (let n = 0; ; n++) {
  await store.append(JSON.parse(key) as ClaudeSessionKey, [{ type: "user", uuid: `u${n}`, n }, { type: "user", n }]);
  console.log(n);
}
