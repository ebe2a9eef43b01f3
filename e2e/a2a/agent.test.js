// The real A2A SDK's clients at `mooring serve --a2a`, over both transports: an agent that mooring run runs is given tasks.

import { AgentCard, SendMessageRequest, TaskState } from "@a2a-js/sdk";
import { ClientFactory, ClientFactoryOptions, JsonRpcTransportFactory, RestTransportFactory } from "@a2a-js/sdk/client";
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import * as fs from "node:fs/promises";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Chats } from "../aisdk/rig.js";
import { repo } from "../rig/mooring.js";
import { Proxy } from "../rig/proxy.js";
import { until } from "../rig/wait.js";

const protocols = ["JSONRPC", "HTTP+JSON"];

/** A client over one transport, of what the server's card says, at an origin. */
async function connect(rig, name, origin = rig.server.origin) {
  const fetchImpl = (url, init) => fetch(url, { ...init, headers: { ...init?.headers, ...rig.headers } });
  const transports = [new JsonRpcTransportFactory({ fetchImpl }), new RestTransportFactory({ fetchImpl })];
  const card = await (await fetch(`${rig.server.origin}/.well-known/agent-card.json`)).json();
  card.supportedInterfaces = card.supportedInterfaces.filter((i) => i.protocolBinding === name).map((i) => ({ ...i, url: i.url.replace(rig.server.origin, origin) }));
  return new ClientFactory(ClientFactoryOptions.createFrom(ClientFactoryOptions.default, { transports })).createFromAgentCard(AgentCard.fromJSON(card));
}

const say = (messageId, text, configuration) => SendMessageRequest.fromJSON({ message: { messageId, role: "ROLE_USER", parts: [{ text }] }, configuration });

/** Puts what a stream says of a task together. */
class Folded {
  id;
  state;
  artifacts = new Map();
  ended = false;

  take({ payload: { $case, value } }) {
    const set = ({ artifactId, parts }, append) => this.artifacts.set(artifactId, (append ? this.artifacts.get(artifactId) : "") + parts.map((p) => p.content.value).join(""));
    if ($case === "task") {
      this.id = value.id;
      this.artifacts.clear();
      for (const a of value.artifacts) set(a, false);
    } else if ($case === "artifactUpdate") set(value.artifact, value.append);
    this.state = value.status?.state ?? this.state;
    this.ended = [TaskState.TASK_STATE_COMPLETED, TaskState.TASK_STATE_CANCELED, TaskState.TASK_STATE_FAILED].includes(this.state);
  }

  get texts() {
    return [...this.artifacts.values()];
  }
}

test("a task is sent, streamed, got, listed and cancelled, and the same message is one task", { timeout: 120_000 }, async (t) => {
  const rig = await Chats.start(t, ["--a2a"]);
  for (const name of protocols) {
    const client = await connect(rig, name);
    const folded = new Folded();
    const tools = [];
    for await (const event of client.sendMessageStream(say(`m ${name}`, `say:one tool:ls say:two_${name}`))) {
      folded.take(event);
      const data = event.payload.value.status?.message?.parts[0].content;
      if (data?.$case === "data") tools.push(data.value.status);
    }
    assert.deepEqual([folded.state, folded.texts], [TaskState.TASK_STATE_COMPLETED, ["one", `two ${name}`]], name);
    assert.deepEqual([tools[0], tools.at(-1)], ["pending", "completed"]); // the runner may gather what comes between
    const again = await client.sendMessage(say(`m ${name}`, `say:one tool:ls say:two_${name}`));
    assert.equal(again.id, folded.id);
    const got = await client.getTask({ id: folded.id, tenant: "" });
    assert.deepEqual([got.artifacts.map((a) => a.parts[0].content.value), got.history[0].messageId, got.contextId], [["one", `two ${name}`], `m ${name}`, rig.session]);
    assert.equal((await client.listTasks({ tenant: "", contextId: "", status: 0, pageToken: "" })).tasks[0].id, folded.id);

    const waits = await client.sendMessage(say(`w ${name}`, "say:working wait", { returnImmediately: true }));
    await until("it works", async () => (await client.getTask({ id: waits.id, tenant: "" })).artifacts.length === 1);
    const cancelled = await client.cancelTask({ id: waits.id, tenant: "", metadata: undefined });
    assert.equal(cancelled.status.state, TaskState.TASK_STATE_CANCELED);
    await assert.rejects(client.cancelTask({ id: waits.id, tenant: "", metadata: undefined }), /has ended/);
    assert.match((await client.getAgentCard()).description, new RegExp(rig.session));
  }
  assert.equal((await rig.prompted()).length, 4);
});

test("cut at any byte, a client that subscribes or sends again has all of the answer, once", { timeout: 300_000 }, async (t) => {
  const rig = await Chats.start(t, ["--a2a"]);
  const proxy = await Proxy.start(t, rig.server);
  let cuts = 0;
  for (const name of protocols) {
    const client = await connect(rig, name, proxy.origin);
    const size = name === "JSONRPC" ? 3000 : 2800;
    for (let n = 1; n < size; n += process.env.FULL ? 1 : 67) {
      const folded = new Folded();
      const params = say(`${name} ${n}`, `say:one pause:40 say:_two tool:ls say:three_${name}_${n}`);
      proxy.cutAfter = n;
      for (let tries = 0; !folded.ended; tries++) {
        assert.ok(tries < 8, `cut at ${n}`);
        try {
          // A task that has ended is not followed any more, and a message is sent again where nothing is known of its task.
          const events = folded.id !== undefined && tries % 2 === 1 ? client.resubscribeTask({ id: folded.id, tenant: "" }) : client.sendMessageStream(params);
          for await (const event of events) folded.take(event);
        } catch (err) {
          if (!/ended: get it/.test(err.message)) cuts++;
        }
      }
      assert.deepEqual([folded.state, folded.texts], [TaskState.TASK_STATE_COMPLETED, ["one two", `three ${name} ${n}`]], `${name}, cut at ${n}`);
    }
  }
  assert.ok(cuts > 10, `${cuts} cuts`);
  const prompts = await rig.prompted();
  assert.equal(new Set(prompts).size, prompts.length, "no prompt twice");
});

test("a revoke ends what is followed, and another ref sees no task", { timeout: 120_000 }, async (t) => {
  const rig = await Chats.start(t, ["--a2a"]);
  const client = await connect(rig, "JSONRPC");
  const folded = new Folded();
  const failed = (async () => {
    for await (const event of client.sendMessageStream(say("m", "say:secret-text wait"))) folded.take(event);
  })().then(() => undefined, (err) => err);
  await until("it works", () => folded.artifacts.size === 1);
  await assert.rejects((await connect({ ...rig, server: rig.server, headers: { Authorization: `Bearer ${await rig.server.owner()}` } }, "JSONRPC")).getTask({ id: folded.id, tenant: "" }), /400|space/);
  await rig.commands.run(["revoke", rig.ref.split("/").at(-1).split("#")[0]]);
  assert.match((await failed).message, /revoked/);
  await assert.rejects(client.getTask({ id: folded.id, tenant: "" }), /403|revoked/);
  assert.ok(!rig.server.log.includes(rig.ref.split("#")[1]), "the log has no secret");
});

test("the lines of docs/a2a.md work", { timeout: 120_000 }, async (t) => {
  const rig = await Chats.start(t, ["--a2a"]);
  const doc = await fs.readFile(repo("docs/a2a.md"), "utf8");
  const program = /```js\n([^`]*?SendMessageRequest[\s\S]*?)```/.exec(doc)[1].replace("run the tests", "say:all_214_pass");
  const dir = await fs.mkdtemp(fileURLToPath(new URL("doc-", import.meta.url)));
  t.after(() => fs.rm(dir, { recursive: true, force: true }));
  await fs.writeFile(`${dir}/main.mjs`, program.replace("\n\n", `\n\nconst [, , server, ref] = process.argv;\n`));
  const { stdout } = await promisify(execFile)(process.execPath, [`${dir}/main.mjs`, rig.server.origin, rig.ref]);
  assert.match(stdout, /all 214 pass/);

  const curl = /curl -s ([\s\S]*?)\n```/.exec(doc)[0].replace(/\n```$/, "").replace("http://localhost:7600", rig.server.origin).replace("$(cat a2a.ref)", rig.ref).replace("run the tests", "say:all_of_them");
  const said = JSON.parse((await promisify(execFile)("sh", ["-c", curl])).stdout);
  assert.equal(said.task.status.state, "TASK_STATE_COMPLETED");
  assert.equal(said.task.artifacts[0].parts[0].text, "all of them");
});
