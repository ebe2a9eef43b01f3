// Reading single keys of a session's state, and pages of a prefix's.

import type { Waiting } from "./client.js";
import type { Peer } from "./server.js";
import { type Claim, num, readClaim, str } from "./session.js";
import { dispose, type Struct, type StubPromise } from "./wire.js";

/** A key of a session's state, its value, and who changed it last. */
export interface EntryInfo {
  readonly key: string;
  /** Of the value's last change; text that was appended is one. */
  readonly cursor: number;
  readonly schema: number;
  /** The value, JSON text; "" in a list without values. */
  readonly payload: string;
  /** Its position in the session's order: by the first number, the second, then the key. */
  readonly ord: readonly [number, number];
  /** The value's size; about that while text is appended to it and payload is "". */
  readonly bytes: number;
  /** The id of the ref that the last change was written under; "" if the ref does not show its event, or the log has it no more. */
  readonly ref: string;
  /** Who wrote it, as that ref says; "" as ref is. */
  readonly actor: string;
  /** When, Unix milliseconds; 0 as ref is "". */
  readonly at: number;
  /** Who works on it; undefined for nobody. */
  readonly claim?: Claim;
}

/** A part of a session's state by key. */
export interface EntryPage {
  entries: EntryInfo[];
  /** The session's cursor when they were read. */
  cursor: number;
  /** The after of the next page; "" if there is none. */
  next: string;
}

/** Which keys are listed, and how. */
export interface KeyOptions extends Waiting {
  /** The keys below it: todo/ is all that begin so and are longer. It ends with "/"; "" (default) is all keys. */
  prefix?: string;
  /** By the bytes of the key (default), or in the session's order: by first put or, if it is ordered by time, by creation. */
  order?: "key" | "put";
  /** With their values. */
  values?: boolean;
  /** Of the compacted view, as in SnapshotOptions. */
  compacted?: boolean;
}

/** Which page of the keys is read. */
export interface KeyPageOptions extends KeyOptions {
  /** The previous page's next; "" (default) for the first. */
  after?: string;
  /** Up to so many entries; 100 by default, 1,000 at most. */
  limit?: number;
}

/** How many keys are requested at once, and entries of a list. */
const getKeys = 64, listKeys = 1000;

/** call makes one call on the session's live object, with the client's retries. */
export type Caller = (ask: (live: StubPromise, peer: Peer) => Promise<Struct>) => Promise<Struct>;

/** Reads the entries of keys, in as many calls as that takes; the cursor is the first one's. */
export async function readKeys(keys: readonly string[], call: Caller): Promise<EntryPage> {
  let page: EntryPage | undefined;
  for (let at = 0; page === undefined || at < keys.length; ) {
    const asked = keys.slice(at, at + getKeys);
    const answer = await call(async (live) => (await live["get"]!(asked)) as Struct);
    const read = readPage(answer);
    at += num(answer["next"]) || asked.length;
    page = page ? { ...page, entries: page.entries.concat(read.entries) } : read;
  }
  return page;
}

/** Reads a page of the keys below a prefix. */
export async function readKeyPage({ prefix = "", after = "", limit = 0, order = "key", values = false, compacted = false }: KeyPageOptions, call: Caller): Promise<EntryPage> {
  const answer = await call(async (live, peer) => {
    const view = compacted && (await peer.has("compact")) ? [compacted] : []; // an older server has no session that is compacted
    return (await live["list"]!(prefix, after, limit, order, values, ...view)) as Struct;
  });
  return { ...readPage(answer), next: answer["more"] === true ? str(answer["next"]) : "" };
}

/** Reads all pages of the keys below a prefix. */
export async function* readAllKeys(options: KeyOptions, call: Caller): AsyncGenerator<EntryInfo, void, void> {
  for (let after: string | undefined; after !== ""; ) {
    const page: EntryPage = await readKeyPage({ ...options, after: after ?? "", limit: listKeys }, call);
    yield* page.entries;
    after = page.next;
  }
}

function readPage(answer: Struct): EntryPage {
  const entries = ((answer["entries"] ?? []) as Struct[]).map(readEntryInfo);
  dispose(answer);
  return { entries, cursor: num(answer["cursor"]), next: "" };
}

export function readEntryInfo(e: Struct): EntryInfo {
  const claim = readClaim(e);
  return {
    key: str(e["key"]), cursor: num(e["cursor"]), schema: num(e["schema"]), payload: str(e["payload"]), ord: [num(e["ord"]), num(e["ordIndex"])],
    bytes: num(e["bytes"]), ref: str(e["ref"]), actor: str(e["actor"]), at: num(e["at"]), ...(claim && { claim }),
  };
}
