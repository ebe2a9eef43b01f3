// The values of a session that are tasks of an A2A server, as Go's package a2astore has them too:
//
//	a2a_task/TASK             the task without its history and artifacts, its user, and how often it has changed
//	a2a_message/TASK/N        message N of its history
//	a2a_artifact/TASK/N       artifact N without its parts
//	a2a_part/TASK/N/M         part M of artifact N
//	a2a_sent/USER/MESSAGE     which task a message of a user went to

import { fault } from "./fault.js";
import { bytesOf, sha256, toBase32 } from "./text.js";

/** A message, as far as the store looks at it: the JSON of A2A. */
interface JSONMessage {
  readonly messageId?: string;
  readonly role?: string;
}

/** A task: the JSON of A2A. */
export interface JSONTask {
  history?: JSONMessage[];
  artifacts?: { parts?: unknown[] }[];
  [name: string]: unknown;
}

/** A task in parts: own has neither history nor artifacts, rows are the JSON texts of these by their keys, in order. */
export interface Split {
  readonly own: JSONTask;
  readonly rows: ReadonlyMap<string, string>;
}

/** The longest id in a key, in bytes. */
const maxID = 200;

/** An id as a part of a key: what a key cannot have, and + itself, is + and two hexadecimal digits. undefined if a key cannot have it. */
function escape(id: string): string | undefined {
  let out = "";
  for (const b of bytesOf(id)) {
    const c = String.fromCharCode(b);
    out += /[A-Za-z0-9_.:@-]/.test(c) ? c : `+${b.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  return out.length > 0 && out.length <= maxID ? out : undefined;
}

const unfit = () => fault("bad_argument", `an id has 1 to ${maxID} bytes, and those that are not letters, digits or one of _.:@- count three times`);

/** The prefix of the tasks' own values. */
export const taskPrefix = "a2a_task/";

/** The key of a task's own value; undefined for an id that none can have. */
export function taskKey(id: string): string | undefined {
  const e = escape(id);
  return e && taskPrefix + e;
}

/** All that a task has: its own key, and the prefixes of the rest. */
export function keysOf(key: string): string[] {
  const below = `${key.slice(taskPrefix.length)}/`;
  return [key, `a2a_message/${below}`, `a2a_artifact/${below}`, `a2a_part/${below}`];
}

/** The key that says where a user's message went. The user's name may have any length. */
export function sentKey(user: string, message: string): string {
  const e = escape(message);
  if (e === undefined) throw unfit();
  return `a2a_sent/${toBase32(sha256(bytesOf(user)).slice(0, 16)).toUpperCase()}/${e}`;
}

/** A task in parts, which share nothing with it. */
export function split(id: string, { history = [], artifacts = [], ...own }: JSONTask): Split {
  const name = escape(id), rows = new Map<string, string>();
  if (name === undefined) throw unfit();
  history.forEach((message, i) => rows.set(`a2a_message/${name}/${i}`, JSON.stringify(message)));
  artifacts.forEach(({ parts = [], ...artifact }, i) => {
    rows.set(`a2a_artifact/${name}/${i}`, JSON.stringify({ ...artifact, parts: [] }));
    parts.forEach((part, j) => rows.set(`a2a_part/${name}/${i}/${j}`, JSON.stringify(part)));
  });
  return { own: JSON.parse(JSON.stringify(own)) as JSONTask, rows };
}

/** The task that was split, of rows in any order. */
export function joined({ own, rows }: Split): JSONTask {
  const history = new Map<number, JSONMessage>(), artifacts = new Map<number, object>(), parts = new Map<number, Map<number, unknown>>();
  for (const [key, text] of rows) {
    const [kind, , ...at] = key.split("/"), [n, m] = at.map(Number) as [number, number], value = JSON.parse(text) as object;
    if (!at.every((digits) => /^\d{1,9}$/.test(digits)) || at.length !== (kind === "a2a_part" ? 2 : 1)) throw fault("bad_key", `${key} is of no task`);
    if (kind === "a2a_message") history.set(n, value);
    else if (kind === "a2a_artifact") artifacts.set(n, value);
    else parts.set(n, (parts.get(n) ?? new Map<number, unknown>()).set(m, value));
  }
  for (const [n, artifact] of artifacts) artifacts.set(n, { ...artifact, parts: inOrder(parts.get(n) ?? new Map<number, unknown>()) });
  return { ...own, ...(history.size > 0 && { history: inOrder(history) }), ...(artifacts.size > 0 && { artifacts: inOrder(artifacts) }) };
}

/** Values by their numbers. */
const inOrder = <T>(list: Map<number, T>): T[] => [...list].sort(([a], [b]) => a - b).map(([, value]) => value);

/** The ids of the user's messages that a task has and has not had, or has more often than before. */
export function newMessages(before: Split, after: Split): Set<string> {
  const count = new Map<string, number>(), fresh = new Set<string>();
  for (const id of userMessages(before)) count.set(id, (count.get(id) ?? 0) + 1);
  for (const id of userMessages(after)) {
    const left = count.get(id) ?? 0;
    if (left === 0) fresh.add(id);
    else count.set(id, left - 1);
  }
  return fresh;
}

function* userMessages({ rows }: Split): Generator<string> {
  for (const [key, text] of rows) {
    if (!key.startsWith("a2a_message/")) continue;
    const { role, messageId } = JSON.parse(text) as JSONMessage;
    if (role === "ROLE_USER" && messageId) yield messageId;
  }
}

/**
 * Moves what was changed of a task, from base to mine, onto what another has made of it meanwhile. A conflict, if both have changed the same
 * of it, and not alike. The history is the same where either has added to it: it has both additions then.
 */
export function rebase(id: string, base: Split, mine: Split, other: Split): Split {
  const [was, is, now] = [joined(base), joined(mine), joined(other)], out = { ...now };
  for (const field of new Set([...Object.keys(was), ...Object.keys(is)])) {
    const [a, b, c] = [was, is, now].map((t) => JSON.stringify(t[field]));
    if (b === a || (b === c && field !== "history")) continue; // a message that both have added is in it twice, which is refused if it is a user's
    if (c === a) out[field] = is[field];
    else if (field === "history" && began(is, was) && began(now, was)) out.history = [...(now.history ?? []), ...(is.history ?? []).slice(was.history?.length ?? 0)];
    else throw fault("conflict", `task ${id}: another has changed its ${field} since it was loaded`);
  }
  return split(id, out);
}

/** Whether a task's history begins with that of another. */
const began = (t: JSONTask, as: JSONTask): boolean => (as.history ?? []).every((m, i) => JSON.stringify(m) === JSON.stringify(t.history?.[i]));
