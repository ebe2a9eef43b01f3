// The real A2A SDK (npm @a2a-js/sdk) with its tasks in Mooring: its server on two machines, its clients over JSON-RPC and REST.

import { AgentCard, Message, Part, Role, SendMessageRequest, Task, TaskState } from "@a2a-js/sdk";
import { ClientFactory } from "@a2a-js/sdk/client";
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore, ServerCallContext } from "@a2a-js/sdk/server";
import { jsonRpcHandler, restHandler } from "@a2a-js/sdk/server/express";
import express from "express";
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import * as fs from "node:fs/promises";
import * as path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { A2ATaskStore } from "../../clients/js/dist/src/a2a-task-store.js";
import { open } from "../../clients/js/dist/src/index.js";
import { folder, repo, Server } from "../rig/mooring.js";

/** A session on a server, and stores of it on machines of their own. */
async function created(t, machines = 2) {
  const server = await Server.start(t);
  const client = async () => {
    const c = await open({ home: await folder(t, "outbox") });
    t.after(() => c.close());
    return c;
  };
  const { session, batch } = (await (await client()).space(await server.owner())).create();
  const { ref } = batch.share({ rights: ["read", "append"] });
  (await (await batch.commit()).wait()).check();
  const stores = [];
  for (let n = 0; n < machines; n++) stores.push(new A2ATaskStore(await (await client()).session(ref), { Task }));
  return { session, stores, ref: ref.text };
}

const user = (userName) => ({ isAuthenticated: userName !== "", userName });
const as = (userName, tenant) => new ServerCallContext({ user: user(userName), ...(tenant && { tenant }) });
const message = (messageId, text, more = {}) => Message.fromJSON({ messageId, role: "ROLE_USER", parts: [{ text }], ...more });

test("what the store in Go writes is the SDK's task, and what the SDK's task becomes is what Go writes", async (t) => {
  const { session, stores: [store, other] } = await created(t), shared = JSON.parse(await fs.readFile(repo("testdata/a2a/task.json"), "utf8"));
  const b = session.batch(), task = Task.fromJSON(shared.task), context = as(shared.user);
  for (const [key, value] of Object.entries(shared.values)) b.put(key, value);
  (await (await b.commit()).wait()).check();
  const read = await store.load(task.id, context);
  assert.deepStrictEqual(read, task);
  assert.deepStrictEqual(read.artifacts[0].parts[1].content, { $case: "raw", value: Buffer.from([0, 255]) });

  const { session: empty, stores: [writer] } = await created(t, 1);
  await writer.save(task, context);
  assert.deepEqual(Object.fromEntries([...(await empty.snapshot()).entries].map(([k, e]) => [k, JSON.parse(e.payload)])), shared.values);

  // One more of each kind of part is one event each, and the task's own.
  const before = (await session.stat()).cursor, parts = [{ text: "more" }, { raw: "AQID" }, { url: "https://example.org" }, { data: [1, { x: null }] }];
  read.artifacts[1].parts.push(...parts.map((p) => Part.fromJSON(p)));
  await store.save(read, context);
  assert.equal((await session.stat()).cursor - before, 5);
  assert.deepStrictEqual(await other.load(task.id, context), read);
});

test("it does what the SDK's store in memory does", async (t) => {
  const { stores: [store, other] } = await created(t), memory = new InMemoryTaskStore(), contexts = [as("ann"), as("bob"), as("ann", "tenant"), as("")];
  const plain = { contextId: "", status: 0, pageToken: "" }, json = (x) => (x?.tasks ? { ...x, tasks: x.tasks.map(json) } : x && Task.toJSON(x)); // a copy's bytes are no Buffer
  const both = async (what) => assert.deepStrictEqual(json(await what(store)), json(await what(memory)));
  for (const [c, context] of contexts.entries()) {
    for (let n = 0; n < 6; n++) {
      const task = Task.fromJSON({
        id: `${c} ${n}`, contextId: `c${n % 2}`, status: { state: n % 3 === 0 ? "TASK_STATE_WORKING" : "TASK_STATE_COMPLETED", timestamp: `2026-11-0${n + 1}T00:00:00.000Z` },
        metadata: n === 0 ? {} : { n }, artifacts: [{ artifactId: "a", name: "n", parts: [{ text: "1" }, { raw: "AP8=" }] }], history: [0, 1, 2].map((i) => ({ messageId: `${n} ${i}`, role: "ROLE_USER", parts: [{ text: "x" }], metadata: {} })),
      });
      await both((s) => s.save(task, context));
      task.artifacts.push(...task.artifacts.splice(0, 1, { ...task.artifacts[0], artifactId: "b" }));
      await both((s) => s.save(n % 2 === 0 ? task : structuredClone(task), context));
    }
  }
  for (const [c, context] of [...contexts.entries(), [4, as("eve")]]) {
    for (let n = 0; n < 6; n++) await both((s) => s.load(`${c} ${n}`, context));
    await both((s) => s.load("0 0", context));
    for (const more of [{}, { contextId: "c1" }, { status: TaskState.TASK_STATE_WORKING }, { includeArtifacts: true }, { statusTimestampAfter: "2026-11-03T12:00:00Z" }, { pageSize: 4 }]) {
      await both(async (s) => {
        const { nextPageToken, ...page } = await s.list({ ...plain, ...more }, context);
        if (nextPageToken) page.tasks.push(...(await s.list({ ...plain, ...more, pageToken: nextPageToken }, context)).tasks);
        return page;
      });
    }
  }
  assert.deepStrictEqual(json(await other.load("0 0", contexts[0])), json(await memory.load("0 0", contexts[0])));
});

/** An agent that works on a task in steps, until it is let go on with the last one. */
class Agent {
  started = 0;
  #goOn = [];
  #free = 0;

  goOn() {
    const next = this.#goOn.shift();
    if (next) next();
    else this.#free++;
  }

  async execute({ taskId, contextId, task, userMessage }, bus) {
    this.started++;
    const status = (state, text) => bus.publish(AgentEvent.statusUpdate({ taskId, contextId, metadata: undefined, status: { state, timestamp: new Date().toISOString(), message: text === undefined ? undefined : Message.fromJSON({ messageId: crypto.randomUUID(), role: "ROLE_AGENT", parts: [{ text }] }) } }));
    const artifact = (text, append) => bus.publish(AgentEvent.artifactUpdate({ taskId, contextId, append, lastChunk: false, metadata: undefined, artifact: { artifactId: "hello", name: "", description: "", parts: [Part.fromJSON({ text })], metadata: undefined, extensions: [] } }));
    bus.publish(AgentEvent.task(task ?? Task.fromJSON({ id: taskId, contextId, status: { state: "TASK_STATE_SUBMITTED", timestamp: new Date().toISOString() } })));
    if (userMessage.parts[0].content.value === "Ask me.") return status(TaskState.TASK_STATE_INPUT_REQUIRED, "What?");
    status(TaskState.TASK_STATE_WORKING);
    artifact("Hello", false);
    artifact(", world!", true);
    if (this.#free > 0) this.#free--;
    else await new Promise((go) => this.#goOn.push(go));
    status(TaskState.TASK_STATE_COMPLETED, "Done.");
  }

  async cancelTask() {}
}

/** The SDK's server with its tasks in a store, and clients of it by transport, for a user. The user is who says so in a header. */
async function served(t, agent, store) {
  const app = express(), web = app.listen(0, "127.0.0.1");
  await once(web, "listening");
  t.after(() => {
    web.closeAllConnections();
    web.close();
  });
  const url = `http://127.0.0.1:${web.address().port}`, transports = { JSONRPC: `${url}/rpc`, "HTTP+JSON": `${url}/rest` };
  const card = (names) => AgentCard.fromJSON({
    name: "agent", description: "works", version: "1", capabilities: { streaming: true }, defaultInputModes: ["text/plain"], defaultOutputModes: ["text/plain"], skills: [],
    supportedInterfaces: names.map((name) => ({ url: transports[name], protocolBinding: name, protocolVersion: "1.0" })),
  });
  const options = { requestHandler: store.repeats(new DefaultRequestHandler(card(Object.keys(transports)), store, agent)), userBuilder: async (req) => user(req.get("x-user") ?? "") };
  app.use("/rpc", jsonRpcHandler(options));
  app.use("/rest", restHandler(options));
  return (name) => new ClientFactory().createFromAgentCard(card([name]));
}

const request = (message, more = {}) => SendMessageRequest.fromJSON({ message: Message.toJSON(message), ...more });
const texts = (parts) => parts.map((p) => p.content.value);

test("the SDK's server keeps its tasks in a session, at another server they go on, and a message that is sent again is one task", { timeout: 60_000 }, async (t) => {
  const { session, stores } = await created(t), agent = new Agent(), [here, there] = [await served(t, agent, stores[0]), await served(t, agent, stores[1])], ids = {};
  for (const name of ["JSONRPC", "HTTP+JSON"]) {
    const client = await here(name), params = request(message(`m ${name}`, "Work.")), kinds = [];
    let chunks = 0;
    for await (const { payload } of client.sendMessageStream(params)) {
      kinds.push(payload.$case);
      if (payload.$case === "task") ids[name] = payload.value.id;
      if (payload.$case === "artifactUpdate" && ++chunks === 2) {
        const again = await client.sendMessage(params); // while the agent works
        assert.deepEqual([again.id, again.status.state], [ids[name], TaskState.TASK_STATE_WORKING]);
        agent.goOn();
      }
    }
    assert.deepEqual(kinds, ["task", "statusUpdate", "artifactUpdate", "artifactUpdate", "statusUpdate"], name);
    for (const at of [here, there]) {
      const c = await at(name), done = await c.sendMessage(params), streamed = [];
      assert.deepEqual([done.id, done.status.state], [ids[name], TaskState.TASK_STATE_COMPLETED]);
      for await (const { payload } of c.sendMessageStream(params)) streamed.push([payload.$case, payload.value.id]);
      assert.deepEqual(streamed, [["task", ids[name]]]);
    }
  }
  assert.equal(agent.started, 2);

  for (const [name, id] of Object.entries(ids)) {
    const client = await there(name), task = await client.getTask({ id, tenant: "" });
    assert.deepEqual([texts(task.artifacts[0].parts), task.history.map((m) => m.role), texts(task.status.message.parts)], [["Hello", ", world!"], [Role.ROLE_USER, Role.ROLE_AGENT], ["Done."]]);
    const first = await client.listTasks({ tenant: "", contextId: "", status: 0, pageToken: "", pageSize: 1 }), second = await client.listTasks({ tenant: "", contextId: "", status: 0, pageToken: first.nextPageToken, pageSize: 1 });
    assert.deepEqual([[...first.tasks, ...second.tasks].map((x) => x.id), first.totalSize, second.nextPageToken], [[ids["HTTP+JSON"], ids.JSONRPC], 2, ""]);
  }
  (await session.verify()).check();
});

test("a conversation goes on at another server, a task is canceled there, and each user has their own", { timeout: 60_000 }, async (t) => {
  const { stores } = await created(t), agent = new Agent(), [here, there] = [await (await served(t, agent, stores[0]))("JSONRPC"), await (await served(t, agent, stores[1]))("HTTP+JSON")];
  const asked = await here.sendMessage(request(message("first", "Ask me.")));
  assert.equal(asked.status.state, TaskState.TASK_STATE_INPUT_REQUIRED);
  agent.goOn();
  const answer = request(message("second", "Work.", { taskId: asked.id, contextId: asked.contextId })), done = await there.sendMessage(answer);
  assert.deepEqual([done.id, done.status.state, done.history.map((m) => m.parts[0].content.value)], [asked.id, TaskState.TASK_STATE_COMPLETED, ["Ask me.", "What?", "Work.", "Done."]]);
  assert.equal((await here.sendMessage(answer)).status.state, TaskState.TASK_STATE_COMPLETED);
  assert.equal(agent.started, 2);

  const working = await here.sendMessage(request(message("third", "Work."), { configuration: { returnImmediately: true } }));
  for (let task; task?.artifacts[0]?.parts.length !== 2; ) task = await there.getTask({ id: working.id, tenant: "" });
  const canceled = await there.cancelTask({ id: working.id, tenant: "", metadata: undefined });
  assert.equal(canceled.status.state, TaskState.TASK_STATE_CANCELED);
  agent.goOn();
  for (const client of [here, there]) assert.equal((await client.getTask({ id: working.id, tenant: "" })).status.state, TaskState.TASK_STATE_CANCELED);

  const ann = { serviceParameters: { "x-user": "ann" } }, ids = (page) => page.tasks.map((x) => x.id);
  await assert.rejects(here.getTask({ id: asked.id, tenant: "" }, ann), /not found/i);
  const plain = { tenant: "", contextId: "", status: 0, pageToken: "" }, hers = await here.sendMessage(request(message("first", "Ask me.")), ann);
  assert.deepEqual([ids(await there.listTasks(plain, ann)), ids(await there.listTasks(plain))], [[hers.id], [working.id, asked.id]]);
});

test("without repeats the same message is refused where it would make a second task", { timeout: 60_000 }, async (t) => {
  const { stores: [store] } = await created(t, 1), handler = new DefaultRequestHandler(AgentCard.fromJSON({ name: "agent", capabilities: {} }), store, new Agent()), params = request(message("once", "Ask me."));
  const task = await handler.sendMessage(params, as("ann"));
  const errors = t.mock.method(console, "error", () => {});
  await assert.rejects(handler.sendMessage(params, as("ann")), /already_exists: message once was sent before/);
  errors.mock.restore();
  assert.equal((await store.taskOfMessage("once", as("ann"))).id, task.id);
});

test("the lines of docs/a2a.md keep the tasks of the SDK's server", { timeout: 120_000 }, async (t) => {
  const { stores: [store], ref } = await created(t, 1), dir = await folder(t, "program");
  const [, lines] = /^### In JavaScript\n[^]*?^```js\n([^]*?)^```$/m.exec(await fs.readFile(repo("docs/a2a.md"), "utf8"));
  await fs.mkdir(path.join(dir, "node_modules"));
  for (const [name, at] of [["mooring-client", "clients/js"], ...["@a2a-js", "express"].map((name) => [name, `e2e/a2a/node_modules/${name}`])]) await fs.symlink(repo(at), path.join(dir, "node_modules", name));
  await fs.writeFile(path.join(dir, "main.mjs"), `
    import express from "express";
    import { AgentCard } from "@a2a-js/sdk";
    import { AgentEvent } from "@a2a-js/sdk/server";
    const ref = process.argv[2], app = express(), userBuilder = async () => ({ isAuthenticated: false, userName: "" });
    const card = AgentCard.fromJSON({ name: "agent", capabilities: {}, supportedInterfaces: [{ url: "http://127.0.0.1/rpc", protocolBinding: "JSONRPC", protocolVersion: "1.0" }] });
    const executor = {
      execute: async ({ taskId: id, contextId }, bus) => bus.publish(AgentEvent.task(Task.fromJSON({ id, contextId, status: { state: "TASK_STATE_COMPLETED", timestamp: new Date().toISOString() } }))),
      async cancelTask() {},
    };
    ${lines}
    const web = app.listen(0, "127.0.0.1", () => console.log(web.address().port));
  `);
  const program = spawn(process.execPath, ["main.mjs", ref], { cwd: dir, stdio: ["ignore", "pipe", "inherit"] });
  t.after(() => program.kill("SIGKILL"));
  const [port] = await once(program.stdout.setEncoding("utf8"), "data");
  const client = await new ClientFactory().createFromAgentCard(AgentCard.fromJSON({ name: "agent", capabilities: {}, supportedInterfaces: [{ url: `http://127.0.0.1:${port.trim()}/rpc`, protocolBinding: "JSONRPC", protocolVersion: "1.0" }] }));
  const task = await client.sendMessage(request(message("once", "Work.")));
  assert.equal(task.status.state, TaskState.TASK_STATE_COMPLETED);
  assert.equal((await store.load(task.id, as(""))).status.state, TaskState.TASK_STATE_COMPLETED);
  assert.equal((await client.sendMessage(request(message("once", "Work.")))).id, task.id, "sent again it is the same task");
});

test("the compiler takes it for a TaskStore", async (t) => {
  const dir = await fs.mkdtemp(fileURLToPath(new URL("types-", import.meta.url)));
  t.after(() => fs.rm(dir, { recursive: true, force: true }));
  await fs.writeFile(path.join(dir, "main.mts"), `
    import { type AgentCard, Task } from "@a2a-js/sdk";
    import { type A2ARequestHandler, type AgentExecutor, DefaultRequestHandler, type TaskStore } from "@a2a-js/sdk/server";
    import { A2ATaskStore } from "../../../clients/js/dist/src/a2a-task-store.js";
    import type { Session } from "../../../clients/js/dist/src/index.js";
    export function handlerOf(session: Session, card: AgentCard, executor: AgentExecutor): A2ARequestHandler {
      const store = new A2ATaskStore(session, { Task, owner: ({ user }) => user?.userName ?? "" }), same: TaskStore = store;
      return store.repeats(new DefaultRequestHandler(card, same, executor));
    }
  `);
  await promisify(execFile)(repo("clients/js/node_modules/.bin/tsc"), [
    "--ignoreConfig", "--strict", "--exactOptionalPropertyTypes", "--noEmit", "--skipLibCheck", "--target", "es2022", "--lib", "es2023,esnext.disposable,dom", "--module", "nodenext",
    "--typeRoots", repo("clients/js/node_modules/@types"), "--types", "node", path.join(dir, "main.mts"),
  ], { cwd: dir }).catch((err) => assert.fail(err.stdout));
});
