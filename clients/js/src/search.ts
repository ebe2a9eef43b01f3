// Searching a session's state for words, page by page.

import type { Waiting } from "./client.js";
import { type Caller, type EntryInfo, readEntryInfo } from "./keys.js";
import { num, str } from "./session.js";
import { dispose, type Struct } from "./wire.js";

/** An entry in whose value a search has found its words. Its payload is "". */
export interface Found extends EntryInfo {
  /** Of the text in the value: a JSON Pointer, "" the value as a whole; "key" in the key's ids. */
  readonly place: string;
  /** Of that text: in turn what is beside a match, which may be "", and a match. */
  readonly excerpt: readonly string[];
}

/** A part of what a search has found. */
export interface FoundPage {
  found: Found[];
  /** The session's cursor when it was searched. */
  cursor: number;
  /** The after of the next page; "" if there is none. */
  next: string;
  /** The server's index of the session is not up to date yet: there may be others, and the next search goes on with it. */
  indexing: boolean;
}

/** Which page of a search is read. */
export interface SearchPageOptions extends Waiting {
  /** The previous page's next; "" (default) for the first. */
  after?: string;
  /** Up to so many entries; 20 by default, 100 at most. */
  limit?: number;
}

/** How many entries are requested at once. */
const maxFound = 100;

/** Reads a page of a search. */
export async function readFoundPage(query: string, { after = "", limit = 0 }: SearchPageOptions, call: Caller): Promise<FoundPage> {
  const answer = await call(async (live) => (await live["search"]!(query, after, limit)) as Struct);
  const found = ((answer["found"] ?? []) as Struct[]).map((f) => ({
    ...readEntryInfo((f["entry"] ?? {}) as Struct), place: str(f["place"]), excerpt: ((f["excerpt"] ?? []) as unknown[]).map(str),
  }));
  const page = { found, cursor: num(answer["cursor"]), next: str(answer["next"]), indexing: answer["indexing"] === true };
  dispose(answer);
  return page;
}

/** Reads all pages of a search, from when the index is made. */
export async function* readAllFound(query: string, waiting: Waiting, call: Caller): AsyncGenerator<Found, void, void> {
  for (let after = "", more = true; more; ) {
    const page = await readFoundPage(query, { ...waiting, after, limit: maxFound }, call);
    if (after === "" && page.indexing) continue; // the server has gone on with the index
    yield* page.found;
    after = page.next;
    more = after !== "";
  }
}
