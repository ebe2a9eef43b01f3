// The task store of the A2A SDK against a real server. Here a task is its own JSON; e2e/a2a has the SDK's, and its server on this store.

import assert from "node:assert/strict";
import * as fs from "node:fs/promises";
import { test, type TestContext } from "node:test";
import { type A2AContext, type A2AListRequest, type A2ATask, A2ATaskStore } from "../src/a2a-task-store.js";
import { type Client, MooringError, open, type Session } from "../src/index.js";
import { firstPlace, pageOf, placeOf } from "../src/a2a_pages.js";
import { repo } from "./paths.js";
import { folder, TestServer } from "./rig.js";

/** A message, as the tests need it. */
interface Message {
  messageId: string;
  role: string;
  parts: object[];
}

/** A task that is the JSON of A2A. */
interface JSONTask extends A2ATask {
  status: { state: string; timestamp?: string; message?: Message };
  history: Message[];
  artifacts: { artifactId: string; parts: object[]; [name: string]: unknown }[];
  metadata?: Record<string, unknown>;
}

type Store = A2ATaskStore<JSONTask>;
const Task = { fromJSON: (json: object) => ({ history: [], artifacts: [], ...json }) as unknown as JSONTask, toJSON: ({ history, artifacts, ...rest }: JSONTask) => ({ ...rest, ...(history.length > 0 && { history }), ...(artifacts.length > 0 && { artifacts }) }) };

async function client(t: TestContext, home?: string): Promise<Client> {
  const c = await open({ home: home ?? await folder(t, "home"), reconnect: { initial: 5, max: 50 }, outbox: { backoff: { initial: 5, max: 50 } } });
  t.after(() => c.close());
  return c;
}

/** A session on a server, a store in it, and one that another process would have. */
async function stores(t: TestContext): Promise<{ server: TestServer; session: Session; store: Store; other: Store }> {
  const server = await TestServer.start(t), { session, batch } = (await (await client(t)).space(server.ref)).create();
  const { ref } = batch.share({ rights: ["read", "append"] });
  (await (await batch.commit()).wait()).check();
  const elsewhere = await (await client(t)).session(ref);
  return { server, session, store: new A2ATaskStore(session, { Task }), other: new A2ATaskStore(elsewhere, { Task }) };
}

const as = (userName: string, tenant?: string): A2AContext => ({ user: { userName }, tenant }), ann = as("ann"), bob = as("bob");
const says = (messageId: string, role = "ROLE_USER", ...parts: object[]): Message => ({ messageId, role, parts: parts.length > 0 ? parts : [{ text: messageId }] });
const submitted = (id: string, ...history: Message[]): JSONTask => ({ id, contextId: "context", status: { state: "TASK_STATE_SUBMITTED" }, history, artifacts: [] });
const refused = (codeName: string, message = "") => (err: unknown) => err instanceof MooringError && err.codeName === codeName && err.message.includes(message);

async function loaded(store: Store, id: string, context = ann): Promise<JSONTask> {
  const task = await store.load(id, context);
  assert.ok(task, `there is a task ${id}`);
  return task;
}

/** How many events of the session a change makes. */
async function events(session: Session, change: () => Promise<void>): Promise<number> {
  const before = (await session.stat()).cursor;
  await change();
  return (await session.stat()).cursor - before;
}

test("what is saved is loaded again whole, by others as well, as it grows and shrinks, and each change costs what has changed", async (t) => {
  const { session, store, other } = await stores(t);
  const task: JSONTask = {
    ...submitted("task 1/ü", says("m", "ROLE_USER", { text: "Do it." }, { url: "https://example.org/a.png", mediaType: "image/png" }), says("a", "ROLE_AGENT", { data: { n: [1.5, null] } })), metadata: { deep: { list: ["x", 1.5, null, true] } },
    artifacts: Array.from({ length: 12 }, (_, i) => ({ artifactId: `artifact ${i}`, name: "a", parts: [{ text: `${i}` }, { raw: "AP8=" }] })),
  };
  const check = async () => {
    for (const s of [store, other]) assert.deepEqual(await s.load(task.id, ann), task);
  };
  await store.save(task, ann);
  await check();

  task.artifacts[3]!.parts.push({ text: "more" });
  assert.equal(await events(session, () => store.save(task, ann)), 2, "the part, and the task's own value");
  await check();
  const there = await loaded(other, task.id);
  there.status = task.status = { state: "TASK_STATE_COMPLETED", timestamp: "2026-11-30T01:02:03.000Z", message: says("done", "ROLE_AGENT") };
  there.history.push(says("done", "ROLE_AGENT"));
  task.history.push(says("done", "ROLE_AGENT"));
  assert.equal(await events(session, () => other.save(there, ann)), 2);
  await check();
  const here = await loaded(store, task.id);
  for (const x of [here, task]) {
    x.artifacts.splice(2);
    x.artifacts[1]!.parts.pop();
  }
  await store.save(here, ann);
  await check();
  assert.equal((await session.snapshot({ keys: ["a2a_artifact/", "a2a_part/"] })).entries.size, 2 + 2 + 1);
  assert.equal(await events(session, () => store.save(here, ann)), 1, "what has not changed");
  assert.deepEqual([await store.load("none", ann), await store.load("", ann), await store.load("x".repeat(201), ann)], [undefined, undefined, undefined]);
  await assert.rejects(store.save(submitted(""), ann), refused("bad_argument"));
  (await session.verify()).check();
});

test("it writes what the store in Go writes, and reads that, in whatever order its members are", async (t) => {
  const { session, store, other } = await stores(t), { user, task, values } = JSON.parse(await fs.readFile(repo("testdata/a2a/task.json"), "utf8"));
  const reversed = (v: unknown): unknown => (Array.isArray(v) ? v.map(reversed) : typeof v === "object" && v !== null ? Object.fromEntries(Object.entries(v).reverse().map(([k, w]) => [k, reversed(w)])) : v);
  await store.save(task, as(user));
  assert.deepEqual(Object.fromEntries([...(await session.snapshot()).entries].map(([k, e]) => [k, JSON.parse(e.payload)])), values);

  const b = session.batch();
  for (const [key, value] of Object.entries(values)) b.put(key, reversed(value) as object);
  (await (await b.commit()).wait()).check();
  const there = await loaded(other, task.id, as(user));
  assert.deepEqual(there, task);
  there.artifacts[1]!.parts.push({ text: "2" });
  assert.equal(await events(session, () => other.save(there, as(user))), 2);
});

test("two that change a task at once keep both changes, and the same of it only one changes", async (t) => {
  const { store, other } = await stores(t), task = submitted("task", says("m"));
  await store.save(task, ann);
  const message = await loaded(other, "task"), cancel = await loaded(other, "task");
  task.artifacts.push({ artifactId: "a", parts: [{ text: "1" }] });
  await store.save(task, ann);
  task.history.push(says("working", "ROLE_AGENT"));
  await store.save(task, ann);
  message.history.push(says("more"));
  await other.save(message, ann); // on what it was before both
  let all = await loaded(store, "task");
  assert.deepEqual([all.history.map((m) => m.messageId), all.artifacts.length], [["m", "working", "more"], 1]);

  // The objects have not the other's change, and saving them again takes none of it away.
  message.metadata = { seen: true };
  await other.save(message, ann);
  task.artifacts[0]!.parts.push({ text: "2" });
  await store.save(task, ann);
  all = await loaded(store, "task");
  assert.deepEqual([all.history.map((m) => m.messageId), all.artifacts[0]!.parts.length, all.metadata], [["m", "working", "more"], 2, { seen: true }]);

  task.status = { state: "TASK_STATE_WORKING" };
  await store.save(task, ann);
  cancel.status = { state: "TASK_STATE_CANCELED" };
  await assert.rejects(other.save(cancel, ann), refused("conflict", "status"));
  assert.equal((await loaded(store, "task")).status.state, "TASK_STATE_WORKING");

  // A copy is on no version: it replaces what there is, and of many at once all apply.
  await Promise.all(Array.from({ length: 6 }, (_, i) => [store, other][i % 2]!.save({ ...submitted("task", says("m")), contextId: `${i}` }, ann)));
  all = await loaded(store, "task");
  assert.deepEqual([all.history.length, all.artifacts.length], [1, 0]);
  assert.match(all.contextId, /^[0-5]$/);
});

test("a message of a user makes one task, and is found by its id", async (t) => {
  const { session, store, other } = await stores(t);
  await store.save(submitted("one", says("m 1"), says("reply", "ROLE_AGENT")), ann);
  const before = (await session.stat()).cursor;
  await assert.rejects(other.save(submitted("two", says("m 1")), ann), refused("already_exists", "message m 1 was sent before"));
  const again = await loaded(other, "one");
  again.history.push(says("m 1"));
  await assert.rejects(other.save(again, ann), refused("already_exists", "message m 1"));
  await assert.rejects(store.save(submitted("three", says("new"), says("m 1")), ann), refused("already_exists", "message m 1"));
  assert.equal((await session.stat()).cursor, before);
  assert.equal(await store.load("two", ann), undefined);

  // The agent's may repeat, and another user's, or the same name's in another tenant; what moves within its task is no repetition.
  await store.save(submitted("four", says("reply", "ROLE_AGENT")), ann);
  await store.save(submitted("five", says("m 1")), bob);
  await store.save(submitted("six", says("m 1")), as("ann", "tenant"));
  const moved = await loaded(store, "one");
  moved.history = [says("first"), ...moved.history];
  await store.save(moved, ann);

  // Two servers to which it was sent at once: one has it.
  const [a, b] = [await loaded(store, "one"), await loaded(other, "one")];
  for (const x of [a, b]) x.history.push(says("both"));
  const done = await Promise.allSettled([store.save(a, ann), other.save(b, ann)]);
  assert.deepEqual(done.map((d) => d.status).sort(), ["fulfilled", "rejected"]);
  assert.ok(refused("already_exists", "message both")(done.flatMap((d) => (d.status === "rejected" ? [d.reason as unknown] : []))[0]));

  for (const [message, context, id] of [["m 1", ann, "one"], ["first", ann, "one"], ["m 1", bob, "five"], ["m 1", as("ann", "tenant"), "six"], ["first", bob, undefined], ["reply", ann, undefined]] as const) {
    assert.equal((await other.taskOfMessage(message, context))?.id, id, message);
  }
});

test("a task is its user's in its tenant, and no other's by whatever name", async (t) => {
  const { session, store } = await stores(t), tenant = as("ann", "t"), nobody: A2AContext = {};
  const owners: [string, A2AContext][] = [["of ann", ann], ["of ann in t", tenant], ["of nobody", nobody], ["of nobody in t", { tenant: "t" }], ["of a strange name", as('["t","ann"]')]];
  for (const [id, context] of owners) await store.save(submitted(id, says("m")), context);
  for (const [, context] of owners) {
    const { tasks } = await store.list({}, context), mine = owners.filter(([, c]) => c === context).map(([id]) => id);
    assert.deepEqual(tasks.map((x) => x.id), mine);
    for (const [id] of owners) assert.equal((await store.load(id, context))?.id, id === mine[0] ? id : undefined);
  }
  await assert.rejects(store.save(submitted("of ann"), bob), refused("already_exists", "another user"));
  const taken = await loaded(store, "of ann");
  await assert.rejects(store.save(taken, tenant), refused("already_exists", "another user"));
  const one = new A2ATaskStore<JSONTask>(session, { Task, owner: () => "ann" });
  assert.equal((await one.load("of ann", bob))?.id, "of ann");
});

test("lists have filters and pages, and miss nothing that changes meanwhile", async (t) => {
  const { store } = await stores(t);
  const all = async (request: A2AListRequest, between: (page: number) => Promise<void> = async () => {}) => {
    const ids: string[] = [];
    for (let page = 1, pageToken = ""; page === 1 || pageToken !== ""; page++) {
      if (page > 1) await between(page - 1);
      const { tasks, nextPageToken } = await store.list({ ...request, pageToken }, ann);
      ids.push(...tasks.map((x) => x.id));
      pageToken = nextPageToken;
    }
    return ids.join("");
  };
  assert.deepEqual(await store.list({}, ann), { tasks: [], nextPageToken: "", pageSize: 50, totalSize: 0 });
  const create = (n: number) => store.save({
    id: `${n}`, contextId: `context ${n % 2}`, status: { state: ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED", "TASK_STATE_FAILED"][n % 3]!, ...(n < 6 && { timestamp: `2026-11-0${n + 1}T00:00:00.000Z` }) },
    history: [0, 1, 2].map((i) => says(`${n} ${i}`)), artifacts: [{ artifactId: "a", parts: [{ text: "x" }] }],
  }, ann);
  const touch = async (id: string) => store.save(await loaded(store, id), ann);
  for (let n = 0; n < 6; n++) await create(n);
  await store.save(submitted("another's"), bob);
  await touch("1");
  assert.equal(await all({}), "154320");
  for (let pageSize = 1; pageSize <= 7; pageSize++) assert.equal(await all({ pageSize }), "154320", `by ${pageSize}`);
  assert.equal(await all({ contextId: "context 1" }), "153");
  assert.equal(await all({ status: "TASK_STATE_WORKING" }), "30");
  assert.equal(await all({ statusTimestampAfter: "2026-11-04T00:00:00Z" }), "543");
  assert.equal(await all({ pageSize: 2 }, async (page) => {
    if (page === 1) {
      await touch("2");
      await create(7);
    } else if (page === 2) await touch("0");
  }), "1543270");

  for (const [request, history, artifacts] of [[{}, 3, 0], [{ historyLength: 0 }, 0, 0], [{ historyLength: 2, includeArtifacts: true }, 2, 1], [{ historyLength: 0, includeArtifacts: true }, 0, 1]] as const) {
    const { tasks, totalSize } = await store.list(request, ann);
    assert.equal(totalSize, 7);
    for (const task of tasks) assert.deepEqual([task.history.length, task.artifacts.length, task.history.at(-1)?.messageId], [history, artifacts, history > 0 ? `${task.id} 2` : undefined]);
  }
  for (const pageSize of [0, 101, 1.5]) await assert.rejects(store.list({ pageSize }, ann), refused("bad_argument"));
  for (const pageToken of ["x", "t.1", "t.x.1", "u.1.1", "t.0.0", "t.1.-1", "t.1.1", "t.0.0.x"]) await assert.rejects(store.list({ pageToken }, ann), refused("bad_argument"), pageToken);
});

test("tasks that share a cursor, as in a fork, are listed once each", () => {
  const all = ["d", "b", "a.x", "c"].map((id) => ({ cursor: id === "d" ? 2 : 1, id }));
  for (let size = 1; size <= 5; size++) {
    const ids: string[] = [];
    for (let token = "", page = 0; page === 0 || token !== ""; page++) {
      const part = pageOf(all, placeOf(token) ?? firstPlace(2), size);
      ids.push(...part.page.map((t) => t.id));
      token = part.next;
    }
    assert.deepEqual(ids, ["d", "a.x", "b", "c"], `by ${size}`);
  }
});

test("what a server that was ended has left in its outbox is loaded by the next", async (t) => {
  const { server, session } = await stores(t), home = await folder(t, "agent");
  const first = await client(t, home), store = new A2ATaskStore<JSONTask>(await first.session(session.ref), { Task }), task = submitted("task", says("m"));
  await store.save(task, ann);
  await server.kill();
  task.status = { state: "TASK_STATE_COMPLETED" };
  const saving = assert.rejects(store.save(task, ann), refused("canceled"));
  while ((await first.status()).pending === 0) await new Promise((r) => setTimeout(r, 1));
  await first.close();
  await saving;
  await server.start();
  const next = new A2ATaskStore<JSONTask>(await (await client(t, home)).session(session.ref), { Task });
  assert.equal((await loaded(next, "task")).status.state, "TASK_STATE_COMPLETED");
});

test("a message that is sent again is answered with its task, and not handled", async (t) => {
  const { store, other } = await stores(t);
  class Handler {
    #handled: string[] = [];
    get handled() { return this.#handled; }
    async sendMessage({ message }: { message: Message }, context: A2AContext) {
      const task = submitted(`task of ${message.messageId}`, message, says("reply", "ROLE_AGENT"));
      this.#handled.push(message.messageId);
      await store.save(task, context);
      return task;
    }
    async *sendMessageStream(params: { message: Message }, context: A2AContext) {
      const value: JSONTask = await this.sendMessage(params, context);
      yield { payload: { $case: "task", value } };
      yield { payload: { $case: "statusUpdate", value } };
    }
    async getTask() { return this.#handled.length; }
  }
  const handler = new Handler(), wrapped = other.repeats(handler), ids: string[] = [];
  const stream = async (messageId: string, context: A2AContext) => {
    for await (const { payload } of wrapped.sendMessageStream({ message: says(messageId) }, context)) ids.push(`${payload.$case} ${payload.value.id}`);
  };
  for (const context of [ann, ann]) assert.equal((await wrapped.sendMessage({ message: says("a") }, context)).id, "task of a");
  for (const context of [ann, ann]) await stream("b", context);
  assert.deepEqual(ids, ["task task of b", "statusUpdate task of b", "task task of b"]);
  const short = await wrapped.sendMessage({ message: says("a"), configuration: { historyLength: 1 } } as { message: Message }, ann);
  assert.deepEqual(short.history.map((m) => m.messageId), ["reply"]);
  await assert.rejects(wrapped.sendMessage({ message: says("a") }, bob), refused("already_exists", "another user")); // it is handled: it is another's
  assert.deepEqual([handler.handled, await wrapped.getTask()], [["a", "b", "a"], 3]);
});
