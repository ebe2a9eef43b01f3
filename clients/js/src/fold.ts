// Following a session's state: what each event does to it, as on the server (the Go package internal/session/fold.go).

import { compact, endCompaction, isLeftOut, leaveOut, type Mark, messageIn } from "./compacted.js";
import { isWellFormed, memberAt, skipSpace } from "./jsontext.js";
import { isOwnKey } from "./key.js";
import { add, merge } from "./patch.js";
import { type Claim, compareEntries, type Entry, type Hidden, type SessionEvent, type State } from "./session.js";

/**
 * Makes a state the one after an event, which is the next one that the ref shows: of a snapshot's cursor and hash
 * (follow({ after: state.cursor, hash: state.hash })), or of the log's beginning. Events up to the state's cursor change nothing. A value that
 * was patched, but put where the ref does not show it, is left out until it is put whole, as in a snapshot. order is SessionInfo.order:
 * where new entries are placed. Entries are replaced, not changed. If only some keys are shown, the order is the snapshot's, but the second
 * number of a position counts only the values of its event that are shown. A compacted view (State.view) stays one.
 */
export function fold(state: State, event: SessionEvent, order = ""): void {
  if (event.cursor <= state.cursor) return;
  state.cursor = event.cursor;
  state.hash = event.hash;
  if (event.hidden || isLeftOut(state, event)) return;
  const { key, payload } = event, old = state.entries.get(key), put = { key, schema_version: event.schema, payload };
  switch (event.method) {
    case "begin":
      state.turns = state.turns.filter((t) => t.message !== messageOf(key));
      state.turns.push({ message: messageOf(key), status: "streaming", begun: event.cursor, ended: 0, outbox: event.outbox, ref: event.ref });
      state.turns.sort((a, b) => (a.message < b.message ? -1 : 1));
      set(state, event, 0, put, order);
      break;
    case "put":
      set(state, event, 0, put, order);
      break;
    case "patch": case "add":
      if (old) set(state, event, 0, { ...put, payload: payload === "" ? "" : edited(old.payload, event) }, order);
      break;
    case "appendText":
      if (old && payload !== "") state.entries.set(key, new Growing(old, (JSON.parse(payload) as { text: string }).text));
      break;
    case "remove":
      state.entries.delete(key);
      state.claims.delete(key);
      endCompaction(state, key);
      break;
    case "purge": {
      state.entries.delete(key);
      state.hidden?.entries.delete(key);
      state.claims.delete(key);
      endCompaction(state, key);
      const shown = show(state);
      if (key.startsWith("message/") && payload !== "") keepLeft(state, messageOf(key), payload);
      if (shown) hide(state, shown);
      break;
    }
    case "revert": {
      const { to, ord, part, moves } = payload === "" ? {} : (JSON.parse(payload) as Partial<Hidden> & { moves?: number });
      if (to === undefined || ord === undefined || (moves !== undefined && !state.hidden)) state.stale = true;
      show(state);
      if (to !== undefined && ord !== undefined) {
        endCompaction(state, `message/${messageIn(to)}`, ord);
        hide(state, { to, ord, part });
      }
      break;
    }
    case "compact": {
      const mark = payload === "" ? {} : (JSON.parse(payload) as Partial<Mark>);
      compact(state, mark.upto === undefined ? undefined : (mark as Mark));
      break;
    }
    case "unrevert":
      if (!show(state)) state.stale = true;
      break;
    case "settle":
      if (payload.includes('"hidden"')) state.stale = true;
      state.hidden = undefined;
      break;
    case "claim":
      if (payload !== "") state.claims.set(key, claimed(event));
      break;
    case "release": case "lapse":
      state.claims.delete(key);
      break;
    case "finalize": case "fork": {
      if (payload === "") break;
      const { status = "", entries = [], purged = [], compact: mark } =
        JSON.parse(payload) as { status?: string; entries?: Embedded[] | null; purged?: number[]; compact?: Mark };
      if (event.method === "finalize") step(state, event, status);
      let place = 0, skipped = 0; // its place before others were purged
      for (const e of entries ?? []) {
        for (; purged[skipped] === place; place++) skipped++;
        set(state, event, place++, e, order);
      }
      if (mark) compact(state, mark);
      break;
    }
    case "interrupted":
      step(state, event, "interrupted");
      break;
    case "resumed":
      step(state, event, "streaming");
      break;
    case "delete":
      state.hidden = undefined;
      if (state.view) state.view = { compacted: undefined, leftOut: new Set() };
      state.entries.clear();
      state.claims.clear();
      state.turns = [];
  }
}

/** Where a revert is to. */
type Point = Pick<Hidden, "to" | "ord" | "part">;

/** Hides what comes from a point on: messages with their parts and turns. A part whose message is not in the state is not hidden. */
function hide(state: State, { to, ord, part }: Point): void {
  const of = messageIn(to), place = { ord, key: `message/${of}` } as Entry;
  const gone = new Set<string>(); // messages that are hidden whole
  for (const e of state.entries.values()) {
    if (!e.key.startsWith("message/")) continue;
    const c = compareEntries(e, place);
    if (c > 0 || (c === 0 && part === undefined)) gone.add(messageIn(e.key));
  }
  const late = part && state.entries.has(place.key) ? ({ ord: part, key: to } as Entry) : undefined, entries = new Map<string, Entry>();
  for (const e of state.entries.values()) {
    const message = messageIn(e.key);
    if (gone.has(message) || (late && message === of && e.key !== place.key && compareEntries(e, late) >= 0)) entries.set(e.key, e);
  }
  for (const key of entries.keys()) state.entries.delete(key);
  state.hidden = { to, ord, part, entries, turns: state.turns.filter((t) => gone.has(t.message)) };
  state.turns = state.turns.filter((t) => !gone.has(t.message));
}

/** Shows again what is hidden, and returns where it was hidden from; undefined if nothing is known to be hidden. */
function show(state: State): Point | undefined {
  const { hidden } = state;
  if (!hidden) return undefined;
  setAll(state, [...state.entries.values(), ...hidden.entries.values()]);
  state.turns = [...state.turns, ...hidden.turns].sort((a, b) => (a.message < b.message ? -1 : 1));
  state.hidden = undefined;
  return hidden;
}

/** Sets the entries of a state, in their order. */
function setAll(state: State, entries: Entry[]): void {
  state.entries.clear();
  for (const e of entries.sort(compareEntries)) state.entries.set(e.key, e);
}

/**
 * Removes what a settled revert hid of a message that is purged since, and which the log no longer says to have been hidden. The
 * state is stale if it lacks what is shown of the message from here on.
 */
function keepLeft(state: State, message: string, payload: string): void {
  const { left } = JSON.parse(payload) as { left?: { turn?: boolean; parts?: { id: string; ord: Entry["ord"] }[]; hidden?: 1 } };
  if (!left) return;
  if (left.hidden) {
    state.stale = true;
    return;
  }
  const turns = state.turns.filter((t) => t.message !== message);
  if (left.turn !== true) state.turns = turns;
  else if (turns.length === state.turns.length) state.stale = true; // it was hidden with its message, when the state was read
  const places = new Map((left.parts ?? []).map((p) => [`part/${message}/${p.id}`, p.ord])), prefix = `part/${message}/`;
  for (const part of places.keys()) if (!state.entries.has(part)) state.stale = true; // as that
  setAll(state, [...state.entries.values()].filter((e) => !e.key.startsWith(prefix) || places.has(e.key)).map((e) => {
    const ord = places.get(e.key);
    return ord === undefined || (e.ord[0] === ord[0] && e.ord[1] === ord[1]) ? e : { key: e.key, cursor: e.cursor, schema: e.schema, payload: e.payload, ord };
  }));
}

/** The claim that a claim event makes or renews. */
function claimed({ payload, cursor, outbox, ref, actor }: SessionEvent): Claim {
  const { claim = cursor, until, worker = "" } = JSON.parse(payload) as { claim?: number; until: number; worker?: string };
  return { cursor: claim, until, outbox, worker, ref, actor };
}

/** A value in an event. */
interface Embedded {
  readonly key: string;
  readonly schema_version: number;
  readonly payload: string;
}

const messageOf = (key: string): string => key.slice("message/".length);

/** Sets a key to a value of an event; "" is one that was purged. */
function set(state: State, event: SessionEvent, i: number, { key, schema_version, payload }: Embedded, order: string): void {
  const { entries } = state, old = entries.get(key);
  if (payload === "") {
    entries.delete(key);
    return;
  }
  const entry: Entry = { key, cursor: event.cursor, schema: schema_version, payload, ord: old?.ord ?? newOrd(event, i, key, payload, order) };
  entries.set(key, entry);
  if (old || order !== "time") return; // by the log it is the last
  for (const [after, e] of [...entries]) {
    if (compareEntries(e, entry) <= 0) continue;
    entries.delete(after);
    entries.set(after, e);
  }
  if (key.startsWith("message/")) leaveOut(state);
}

/** The value after a patch or add event. */
function edited(value: string, event: SessionEvent): string {
  if (event.method === "patch") return merge(value, event.payload);
  const { member, by } = JSON.parse(event.payload) as { member: string; by: number };
  return add(value, member, by);
}

/** Advances the turn that an event is about, unless it has ended. */
function step(state: State, event: SessionEvent, status: string): void {
  const open = ["streaming", "interrupted"];
  state.turns = state.turns.map((t) =>
    t.message !== messageOf(event.key) || !open.includes(t.status) ? t : { ...t, status, ended: open.includes(status) ? 0 : event.cursor });
}

/** The position of a key that is first put: by the log, or by the time of creation in the value, else in its id, else now. */
function newOrd(event: SessionEvent, i: number, key: string, payload: string, order: string): Entry["ord"] {
  if (order !== "time") return [event.cursor, i];
  const created = isOwnKey(key, ["own", "schema", "request"]) ? 0 : timeIn(payload) || timeInID(key, event.at);
  return created > 0 ? [created, 0] : [Math.max(event.at, 1), event.cursor];
}

/** The time.created of a payload; 0 if it has none. */
function timeIn(payload: string): number {
  const t = (JSON.parse(payload) as { time?: { created?: unknown } | null }).time?.created;
  return typeof t === "number" && t >= 1 && t <= 2 ** 53 ? Math.floor(t) : 0;
}

/** The time in an id of opencode, a clock of 36 bits: the one nearest to now. 0 for other ids. */
function timeInID(key: string, now: number): number {
  const span = 2 ** 36, hex = /^[^_]*_([0-9a-f]{12})/i.exec(key.slice(key.lastIndexOf("/") + 1))?.[1];
  if (hex === undefined) return 0;
  let off = (Math.floor(parseInt(hex, 16) / 4096) - now) % span;
  if (off >= span / 2) off -= span;
  else if (off < -span / 2) off += span;
  return Math.max(now + off, 0);
}

/** A part to which text was appended. Its payload is made when it is read: so a text costs no more than its pieces. */
class Growing implements Entry {
  readonly key: string;
  readonly cursor: number;
  readonly schema: number;
  readonly ord: Entry["ord"];
  readonly #tail: string;
  #before: Entry | undefined; // until the payload is made
  #payload = "";

  constructor(before: Entry, tail: string) {
    ({ key: this.key, cursor: this.cursor, schema: this.schema, ord: this.ord } = before);
    this.#before = before;
    this.#tail = tail;
  }

  get payload(): string {
    if (this.#before) {
      const tails: string[] = [];
      let at: Entry = this;
      for (; at instanceof Growing && at.#before; at = at.#before) tails.push(at.#tail);
      this.#payload = withText(at.payload, tails.reverse().join(""));
      this.#before = undefined;
    }
    return this.#payload;
  }
}

/** A payload with a tail appended to its text, byte for byte as the server has it. */
function withText(payload: string, tail: string): string {
  const at = memberAt(payload, "text");
  const old: unknown = at && JSON.parse(payload.slice(...at));
  let text = (typeof old === "string" ? old : "") + tail;
  if (!isWellFormed(text)) text = text.replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd");
  const json = JSON.stringify(text).replace(/[\u2028\u2029]/g, (c) => (c === "\u2028" ? "\\u2028" : "\\u2029"));
  if (at) return payload.slice(0, at[0]) + json + payload.slice(at[1]);
  const end = payload.lastIndexOf("}"), empty = payload[skipSpace(payload, skipSpace(payload, 0) + 1)] === "}";
  return `${payload.slice(0, end)}${empty ? "" : ","}"text":${json}${payload.slice(end)}`;
}
