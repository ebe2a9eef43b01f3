// The protocol's JavaScript SDK as a client, over HTTP and over standard input and output.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import * as path from "node:path";
import { test } from "node:test";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ResourceUpdatedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
import { folder, mooring, output, Server } from "../rig/mooring.js";
import { until } from "../rig/wait.js";

/** The owner's ref in a file, as an argument. */
async function ownerFile(t, server) {
  const file = path.join(await folder(t, "owner"), "owner.ref");
  writeFileSync(file, await server.owner(), { mode: 0o600 });
  return `@${file}`;
}

const transports = {
  HTTP: async (t, server) => new StreamableHTTPClientTransport(new URL(`http://127.0.0.1:${server.port}/mcp`), { requestInit: { headers: { Authorization: `Bearer ${await server.owner()}` } } }),
  stdio: async (t, server) => new StdioClientTransport({ command: mooring(), args: ["mcp", "--home", await folder(t, "home"), "--owner", await ownerFile(t, server), "--allow", "append,ask"] }),
};

for (const [name, transport] of Object.entries(transports)) {
  test(`the JavaScript SDK over ${name}`, async (t) => {
    const server = await Server.start(t, ["--mcp", "--mcp-allow", "append,ask"]);
    const home = await folder(t, "writer");
    const id = (await output(mooring(), ["session", "create", "--home", home, "--owner", await ownerFile(t, server)])).trim();
    const append = (op) => output(mooring(), ["session", "append", id, "--wait", "--home", home], { input: JSON.stringify(op) });
    await append({ method: "put", key: "session", payload: { title: "from the command line" } });

    const client = new Client({ name: "test", version: "1" });
    const updates = [];
    client.setNotificationHandler(ResourceUpdatedNotificationSchema, (n) => updates.push(n.params.uri));
    await client.connect(await transport(t, server));
    t.after(() => client.close());
    const call = async (tool, args) => {
      const { isError, structuredContent, content } = await client.callTool({ name: tool, arguments: args });
      return isError ? content[0].text : structuredContent;
    };
    assert.ok((await client.listTools()).tools.length >= 10); // which has callTool validate results
    assert.deepEqual((await call("list_sessions", {})).sessions.map((s) => [s.session, s.title]), [[id, "from the command line"]]);
    const uri = `mooring://session/${id}`;
    assert.deepEqual((await client.listResources()).resources.map((r) => [r.uri, r.title]), [[uri, "from the command line"]]);
    await client.subscribeResource({ uri });
    const said = await call("append_message", { session: id, text: "hello" });
    await until("an update", () => updates.length > 0);
    assert.deepEqual([...new Set(updates)], [uri]);
    const read = await call("read_session", { session: id });
    assert.deepEqual(read.messages.map((m) => [m.message, m.role, m.text]), [[said.message, "assistant", "hello"]]);
    assert.equal(JSON.parse((await client.readResource({ uri })).contents[0].text).messages[0].text, "hello");
    await call("ask", { session: id, kind: "question", text: "which?", id: "q" });
    const waiting = call("wait_answer", { session: id, request: "q", seconds: 50 });
    await append({ method: "answer", request: "q", payload: { text: "that" } });
    assert.equal((await waiting).answer, "that");
    assert.match(await call("read_message", { session: id, message: "none" }), /^not_found: /);
  });
}
