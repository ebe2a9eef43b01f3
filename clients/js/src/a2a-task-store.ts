// A TaskStore of the A2A SDK (npm @a2a-js/sdk) on a session: the tasks of an A2A server outlive it, several servers share them, and whoever has
// a ref follows, searches and exports them. The values are those of Go's package a2astore. docs/a2a.md says what is kept as what. The SDK is not
// needed by this file: its types are repeated here, as far as they matter, and its converter comes as an option.

import type { Promised, Results } from "./batch.js";
import type { Session } from "./client.js";
import { fault } from "./fault.js";
import { jsonText, type Outcome, outcomeError } from "./intent.js";
import { firstPlace, pageOf, placeOf } from "./a2a_pages.js";
import { joined, type JSONTask, keysOf, newMessages, rebase, sentKey, type Split, split, taskKey, taskPrefix } from "./a2a_rows.js";

/** A task, as far as the store looks at it. */
export interface A2ATask {
  id: string;
  contextId: string;
  status: { state: unknown; timestamp?: string | undefined } | undefined;
  history: unknown[];
  artifacts: unknown[];
}

/** The context of a call: whose tasks it is about. */
export interface A2AContext {
  readonly tenant?: string | undefined;
  readonly user?: { readonly userName: string } | undefined;
}

/** Settings of a store. */
export interface A2ATaskStoreOptions<T extends A2ATask> {
  /** The SDK's Task, a value of the same name as its type: it makes the JSON of A2A of a task, and back. */
  Task: { fromJSON(json: any): T; toJSON(task: T): unknown };
  /** The user of a call; by default the context's user by its name, "" for nobody. The context's tenant counts besides. */
  owner?: (context: A2AContext) => string;
}

/** Which tasks are listed. */
export interface A2AListRequest {
  contextId?: string | undefined;
  /** The state that they are in; 0 or undefined for any. */
  status?: unknown;
  /** 1 to 100; 50 by default. */
  pageSize?: number | undefined;
  /** The token of the page before; "" for the first page. */
  pageToken?: string | undefined;
  /** The last messages of each history; by default all. */
  historyLength?: number | undefined;
  /** Those whose status has this time or a later one. */
  statusTimestampAfter?: string | undefined;
  includeArtifacts?: boolean | undefined;
}

/** A page of tasks. */
export interface A2AListPage<T> {
  tasks: T[];
  /** "" if there is no more. */
  nextPageToken: string;
  pageSize: number;
  /** How many tasks the request is about. */
  totalSize: number;
}

/** What answers messages: the SDK's A2ARequestHandler, as far as repeats looks at it. */
export interface A2ASender {
  sendMessage(params: any, context: any): Promise<any>;
  sendMessageStream(params: any, context: any): AsyncGenerator<any, void, undefined>;
}

/** The value of a task's own key. revision counts the changes, so that each is one. */
interface Own {
  user: string;
  revision: number;
  task: JSONTask;
}

/** A task as it was loaded or saved. */
interface Known extends Split {
  /** Of its own value; 0 if there is none yet. */
  readonly version: number;
  readonly user: string;
  readonly revision: number;
  /** All that the session has of it. */
  readonly keys: ReadonlySet<string>;
}

const defaultPage = 50, maxPage = 100, listKeys = 1000;

/**
 * The tasks of an A2A server in a session, whose ref needs the rights read and append. Any number of stores, in any processes and in Go as well,
 * may have the same session. A task is its user's in its tenant: others do not find it. Errors are MooringErrors: those of save, and refusals of the
 * ref (missing_right, revoked, …), a Standstill if the session's stream has stopped, canceled if the client was closed.
 */
export class A2ATaskStore<T extends A2ATask> {
  readonly #session: Session;
  readonly #options: A2ATaskStoreOptions<T>;
  /** What the session had of a task when the object was loaded or saved: on that it is saved. */
  readonly #known = new WeakMap<T, Known>();
  #earlier: Promise<void> | undefined;

  constructor(session: Session, options: A2ATaskStoreOptions<T>) {
    this.#session = session;
    this.#options = options;
  }

  /**
   * Saves a task: what has changed of it, in one atomic batch, when the server has it. Saved is on the version at which this object was loaded or saved
   * by this store. If another has changed the task since, what is changed of this object is moved onto that; a conflict, if both have changed the same,
   * such as the status. An object that was not loaded here, as a new one or a copy, replaces what there is. One object is saved once at a time.
   *
   * already_exists, and nothing is saved, if a user's message that is new in the task was sent before, in this or another task of the user, or if the id
   * is of another user's task. bad_argument for an id that a key cannot have.
   */
  async save(task: T, context: A2AContext): Promise<void> {
    const user = this.#user(context), { id } = task, saved = split(id, this.#json(task)), base = this.#known.get(task);
    let mine = saved, on = base ?? (await this.#read(id)) ?? { version: 0, user, revision: 0, keys: new Set<string>(), own: {}, rows: new Map<string, string>() };
    for (;;) {
      if (on.user !== user) throw fault("already_exists", `another user has a task ${id}`);
      const written = await this.#write(id, mine, on);
      if (written) {
        // What was moved onto another's change has that, and the object has not: it is saved on its own version again.
        this.#known.set(task, mine === saved ? written : { ...base!, ...saved });
        return;
      }
      const now = await this.#read(id);
      if (!now) throw fault("conflict", `task ${id} was removed`);
      if (base) mine = rebase(id, on, mine, now);
      on = now;
    }
  }

  /** Loads a task, all of one moment; undefined if the user has none with this id. */
  async load(id: string, context: A2AContext): Promise<T | undefined> {
    const known = await this.#read(id);
    return known && known.user === this.#user(context) ? this.#object(known) : undefined;
  }

  /**
   * Lists the user's tasks, a page at a time, the one that was changed last first. A page's token has the session's cursor when the first page was read: tasks
   * that have changed since come last, the earliest change first, as they are then, so that none is missed, and some may come again. Each page reads the
   * own values of all tasks. bad_argument for a size or token that is none.
   */
  async list(request: A2AListRequest, context: A2AContext): Promise<A2AListPage<T>> {
    const user = this.#user(context), size = request.pageSize ?? defaultPage, { Task } = this.#options;
    if (!Number.isInteger(size) || size < 1 || size > maxPage) throw fault("bad_argument", `a page has 1 to ${maxPage} tasks`);
    const place = placeOf(request.pageToken ?? ""), all: { cursor: number; id: string; task: T }[] = [];
    await this.#settle();
    let cursor = 0;
    for (let after: string | undefined; after !== ""; ) {
      const page = await this.#session.listPage({ prefix: taskPrefix, values: true, limit: listKeys, after: after ?? "" });
      for (const e of page.entries) {
        const own = JSON.parse(e.payload) as Own;
        if (own.user !== user) continue;
        const task = Task.fromJSON(own.task);
        if (matches(task, request)) all.push({ cursor: e.cursor, id: e.key, task });
      }
      cursor ||= page.cursor;
      after = page.next;
    }
    const { page, next } = pageOf(all, place ?? firstPlace(cursor), size);
    const tasks = await Promise.all(page.map(({ task }) => this.#filled(task, request)));
    return { tasks, nextPageToken: next, pageSize: size, totalSize: all.length };
  }

  /** The task that a message of the user went to, as it is now; undefined if it was not sent before. */
  async taskOfMessage(messageId: string, context: A2AContext): Promise<T | undefined> {
    await this.#settle();
    const [sent] = (await this.#session.get(sentKey(this.#user(context), messageId))).entries;
    return sent && this.load((JSON.parse(sent.payload) as { task: string }).task, context);
  }

  /**
   * A request handler that answers a message which its user has sent before with the task that it went to, as that is by then, so that a client may send it
   * again when an answer was lost. A stream of it has the task alone. All else is the handler's.
   */
  repeats<H extends A2ASender>(handler: H): H {
    const before = async (params: { message?: { messageId?: string }; configuration?: { historyLength?: number } }, context: A2AContext): Promise<T | undefined> => {
      const id = params.message?.messageId, task = id ? await this.taskOfMessage(id, context) : undefined;
      return task && withHistory(task, params.configuration?.historyLength);
    };
    const sender: A2ASender = {
      sendMessage: async (params, context) => (await before(params, context)) ?? handler.sendMessage(params, context),
      sendMessageStream: async function* (params, context) {
        const task = await before(params, context);
        if (task) yield { payload: { $case: "task", value: task } };
        else yield* handler.sendMessageStream(params, context);
      },
    };
    return new Proxy(handler, {
      get(target, name) {
        if (name === "sendMessage" || name === "sendMessageStream") return sender[name];
        const member = Reflect.get(target, name) as unknown;
        return typeof member === "function" ? (member.bind(target) as unknown) : member; // it may have private fields
      },
    });
  }

  /** The user of a call, in its tenant. No two are written alike. */
  #user(context: A2AContext): string {
    const { owner = ({ user }: A2AContext) => user?.userName ?? "" } = this.#options, user = owner(context);
    return context.tenant || user.startsWith("[") ? JSON.stringify([context.tenant ?? "", user]) : user;
  }

  /** Waits, once, until the server has what an earlier process has left in the outbox: what this one saves it waits for. */
  #settle(): Promise<void> {
    return this.#earlier ??= this.#session.drain().catch((err: unknown) => {
      this.#earlier = undefined;
      throw err;
    });
  }

  #json(task: T): JSONTask {
    return this.#options.Task.toJSON(task) as JSONTask;
  }

  /** An object of a task, which is saved on what is known. */
  #object(known: Known): T {
    const task = this.#options.Task.fromJSON(joined(known));
    this.#known.set(task, known);
    return task;
  }

  /** What the session has of a task, of one moment and in the form that the SDK gives it; undefined for nothing. */
  async #read(id: string): Promise<Known | undefined> {
    const key = taskKey(id);
    if (key === undefined) return undefined; // none can have it
    await this.#settle();
    const { entries } = await this.#session.snapshot({ keys: keysOf(key) }), own = entries.get(key);
    if (!own) return undefined;
    const { user, revision, task } = JSON.parse(own.payload) as Own, rows = new Map([...entries].filter(([k]) => k !== key).map(([k, e]) => [k, e.payload]));
    // Another program may order members otherwise: compared is what this one would write.
    const same = split(id, this.#json(this.#options.Task.fromJSON(joined({ own: task, rows }))));
    return { ...same, user, revision, version: own.cursor, keys: new Set(entries.keys()) };
  }

  /** Writes what a task has and the session has not, in one atomic batch, on a version of it; undefined if that is not the present one. */
  async #write(id: string, mine: Split, on: Known): Promise<Known | undefined> {
    const key = taskKey(id)!, revision = on.revision + 1, b = this.#session.batch().atomic();
    const own = b.put(key, jsonText(JSON.stringify({ user: on.user, revision, task: mine.own } satisfies Own))).expectKey(on.version);
    for (const [k, text] of mine.rows) if (on.rows.get(k) !== text || !on.keys.has(k)) b.put(k, jsonText(text));
    for (const k of on.keys) if (k !== key && !mine.rows.has(k)) b.remove(k);
    const sent = new Map<string, Promised>();
    for (const message of newMessages(on, mine)) sent.set(message, b.put(sentKey(on.user, message), { task: id }).expectKey(0));
    const results = await (await b.commit()).wait(), o = results.of(own);
    if (o.status === "applied") return { ...mine, user: on.user, revision, version: o.cursor, keys: new Set([key, ...mine.rows.keys()]) };
    if (isConflict(o)) return undefined;
    for (const [message, op] of sent) if (isConflict(results.of(op))) throw fault("already_exists", `message ${message} was sent before: taskOfMessage has its task`);
    throw refusal(results);
  }

  /** A listed task with as much of its history, and its artifacts, as a request asks for. */
  async #filled(task: T, { historyLength, includeArtifacts }: A2AListRequest): Promise<T> {
    if (historyLength === 0 && !includeArtifacts) return task;
    const known = await this.#read(task.id);
    if (!known) return task; // it was removed meanwhile
    const whole = this.#options.Task.fromJSON(joined(known));
    if (!includeArtifacts) whole.artifacts = [];
    return withHistory(whole, historyLength);
  }
}

/** Whether a request is about a task. */
function matches({ contextId, status }: A2ATask, request: A2AListRequest): boolean {
  const { statusTimestampAfter: after } = request;
  return (!request.contextId || contextId === request.contextId) && (!request.status || status?.state === request.status)
    && (!after || Date.parse(status?.timestamp ?? "") >= Date.parse(after));
}

/** Leaves a task the last messages of its history; all if no number is given. */
function withHistory<T extends A2ATask>(task: T, length: number | undefined): T {
  if (length !== undefined) task.history = length > 0 ? task.history.slice(-length) : [];
  return task;
}

/** Whether an op is why its atomic batch was aborted. */
const isCause = (o: Outcome): boolean => o.status !== "applied" && (o.cause === "" || o.cause === o.op);

/** Whether an op of an atomic batch is why it was aborted, by a conflict. */
const isConflict = (o: Outcome): boolean => o.reason === "conflict" && isCause(o);

/** Why an atomic batch was refused. */
const refusal = ({ outcomes, batch }: Results) => outcomeError(outcomes.find(isCause) ?? outcomes[0]!, batch);
