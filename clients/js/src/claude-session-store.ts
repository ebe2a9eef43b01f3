// A SessionStore of the Claude Agent SDK (npm @anthropic-ai/claude-agent-sdk) on a session: what Claude Code writes to its transcripts
// is in the session too, durably and once, and a session of Claude's that was begun on one machine is resumed on another.
// docs/claude.md says what is kept as what. The SDK is not needed by this file: its types are repeated here, as far as they matter.

import type { Ticket } from "./batch.js";
import type { Session } from "./client.js";
import { fault } from "./fault.js";
import { jsonText, outcomeError } from "./intent.js";
import { EntryKeys, type ClaudeSessionKey, segment } from "./claude_keys.js";
import { byteLength, bytesOf, sha256, toBase64url } from "./text.js";
import { newULID } from "./ulid.js";

export type { ClaudeSessionKey } from "./claude_keys.js";

/** A line of a transcript: JSON that is kept as it is. uuid, where it has one, is what makes it the same line. */
export type ClaudeSessionEntry = { type: string; uuid?: string; timestamp?: string; [name: string]: unknown };

/** What foldSessionSummary makes of a session's entries. data is the SDK's, and is kept as it is. */
export type ClaudeSessionSummary = { sessionId: string; mtime: number; data: Record<string, unknown> };

/** The SDK's foldSessionSummary: the summary after more entries. */
export type FoldSummary = (prev: ClaudeSessionSummary | undefined, key: ClaudeSessionKey, entries: ClaudeSessionEntry[], options?: { mtime?: number }) => ClaudeSessionSummary;

/** Settings of a store; all are optional. */
export interface ClaudeSessionStoreOptions {
  /**
   * When append is done: when the server has the entries ("server", the default), or when they are durable in this outbox ("outbox"), which
   * needs no server: the agent is never held up, but another machine sees them only once they are sent.
   */
  durable?: "server" | "outbox";
  /**
   * Stands for the project of every key. The SDK's is made of the working folder's path: with this, a session is found from wherever the
   * project is checked out, and all that use the store are one project.
   */
  project?: string;
  /** The SDK's foldSessionSummary, with which the store has summaries. Without it the SDK reads whole sessions to list them. */
  foldSessionSummary?: FoldSummary;
  /**
   * Removes what is deleted from the session's log as well, for good: it takes an owner's ref. Otherwise the log has it until it is
   * trimmed (serve --keep-log).
   */
  purge?: boolean;
}

/** The value of a session's header: append is another with each batch, so that the server's time of the key's last change is that of the last append. */
interface Header {
  sessionId: string;
  append: string;
}

/** The value of a session's summary: of its entries up to a cursor. */
interface StoredSummary {
  through: number;
  data: Record<string, unknown>;
}

/** Entries and parts of entries are at most about this size; no more than one value of a server's default limits (4 MiB) in any encoding. */
const wholeBytes = 1 << 20, pieceUnits = 512 << 10;

/** What one batch has at most: half of a server's default limits. */
const batchOps = 500, batchBytes = 4 << 20;

/**
 * The sessions of Claude's that a session holds, any number of them. Any number of stores, in any number of processes, may have the same
 * session: each appends through the outbox of its client, and what one has appended is in the order of the server for all. Errors are
 * MooringErrors: refusals of the ref (missing_right, revoked, …), disk_full and outbox_full, a Standstill if the session's stream has
 * stopped, canceled if the client was closed. What is appended takes the right append, all else read (delete takes both).
 */
export class ClaudeSessionStore {
  readonly #session: Session;
  readonly #options: ClaudeSessionStoreOptions;
  /** The ids of the entries of appends that failed: the SDK repeats them with the same list, of which nothing may be there twice. */
  readonly #failed = new WeakMap<readonly ClaudeSessionEntry[], string[]>();
  #committing: Promise<unknown> = Promise.resolve();

  /** The summaries of a project's sessions; only with foldSessionSummary. Each is folded further by whoever lists it first after an append. */
  readonly listSessionSummaries?: (projectKey: string) => Promise<ClaudeSessionSummary[]>;

  constructor(session: Session, options: ClaudeSessionStoreOptions = {}) {
    this.#session = session;
    this.#options = options;
    const { foldSessionSummary } = options;
    if (foldSessionSummary) this.listSessionSummaries = (projectKey) => this.#summaries(projectKey, foldSessionSummary);
  }

  /**
   * Adds entries to a transcript, in order. An entry whose uuid the transcript has already is left out, whoever appended it; entries without
   * one are all added. Entries of more than 1 MiB are kept in pieces. Calls need not wait for each other: what is appended stays in the
   * order of the calls. If it throws, appending the same list again doubles nothing.
   */
  async append(key: ClaudeSessionKey, entries: ClaudeSessionEntry[]): Promise<void> {
    if (entries.length === 0) return;
    const keys = this.#keys(key), ids = this.#failed.get(entries) ?? entries.map(idOf);
    const ops = entries.flatMap((e, i) => opsOf(keys, ids[i]!, e)); // before any wait: the caller may change the objects afterwards
    try {
      const tickets = await this.#commit(key, keys, ops);
      if (this.#options.durable !== "outbox") for (const ticket of tickets) await applied(ticket);
      this.#failed.delete(entries);
    } catch (err) {
      this.#failed.set(entries, ids);
      throw err;
    }
  }

  /** Commits what is put for a transcript, after what was appended before. */
  async #commit(key: ClaudeSessionKey, keys: EntryKeys, puts: Put[]): Promise<Ticket[]> {
    const commit = async (): Promise<Ticket[]> => {
      const tickets: Ticket[] = [];
      for (const some of portions(puts)) {
        const b = this.#session.batch();
        for (const { put, text, once } of some) {
          const op = b.put(put, jsonText(text));
          if (once) op.expectKey(0);
        }
        if (key.subpath) b.put(keys.subpath, { subpath: key.subpath });
        else b.put(keys.header, { sessionId: key.sessionId, append: b.id } satisfies Header);
        tickets.push(await b.commit());
      }
      return tickets;
    };
    const committed = this.#committing.then(commit, commit);
    this.#committing = committed.catch(() => {});
    return committed;
  }

  /** The entries of a transcript, equal to what was appended; null if it has none. */
  async load(key: ClaudeSessionKey): Promise<ClaudeSessionEntry[] | null> {
    await this.#settle();
    const { entries } = await this.#entries(this.#keys(key));
    return entries.length > 0 ? entries : null;
  }

  /** A project's sessions, and when each was last appended to, by the server's clock. */
  async listSessions(projectKey: string): Promise<{ sessionId: string; mtime: number }[]> {
    await this.#settle();
    const all: { sessionId: string; mtime: number }[] = [];
    const prefix = this.#keys({ projectKey, sessionId: "" }).headers;
    for await (const e of this.#session.list({ prefix, values: true })) all.push({ sessionId: (JSON.parse(e.payload) as Header).sessionId, mtime: e.at });
    return all;
  }

  /** The subpaths of a session, as the transcripts of subagents have them. */
  async listSubkeys(key: { projectKey: string; sessionId: string }): Promise<string[]> {
    await this.#settle();
    const all: string[] = [];
    for await (const e of this.#session.list({ prefix: this.#keys(key).subpaths, values: true })) all.push((JSON.parse(e.payload) as { subpath: string }).subpath);
    return all;
  }

  /**
   * Deletes a session with all its subpaths or, where the key has a subpath, that alone; what is not there is deleted already. What another
   * process appends meanwhile may stay.
   */
  async delete(key: ClaudeSessionKey): Promise<void> {
    await this.#settle();
    const keys = this.#keys(key), found: string[] = [];
    const prefixes = key.subpath ? [keys.entries, keys.pieces] : [keys.session];
    for (const prefix of prefixes) for await (const e of this.#session.list({ prefix })) found.push(e.key);
    // What names it goes last: until then it is listed, and deleting it again goes on.
    for (const k of key.subpath ? [keys.subpath] : [keys.summary, keys.header]) if ((await this.#session.get(k)).entries.length > 0) found.push(k);
    for (let at = 0; at < found.length; at += batchOps) {
      const b = this.#session.batch();
      for (const k of found.slice(at, at + batchOps)) void (this.#options.purge ? b.purge(k) : b.remove(k));
      await applied(await b.commit());
    }
  }

  #keys(key: ClaudeSessionKey): EntryKeys {
    return new EntryKeys({ ...key, projectKey: this.#options.project ?? key.projectKey });
  }

  /** Waits until the server has what this outbox has for the session, from earlier processes too. */
  async #settle(): Promise<void> {
    await this.#committing;
    await this.#session.drain();
  }

  /** The entries of a transcript that were put after a cursor, in order, and the cursor of the last. */
  async #entries(keys: EntryKeys, after = 0): Promise<{ entries: ClaudeSessionEntry[]; through: number }> {
    const values: string[] = [];
    let through = after;
    if (after === 0) {
      for await (const e of this.#session.list({ prefix: keys.entries, order: "put", values: true })) {
        values.push(e.payload);
        through = e.ord[0];
      }
    } else {
      const fresh: string[] = [];
      for await (const e of this.#session.list({ prefix: keys.entries, order: "put" })) {
        if (e.ord[0] <= after) continue;
        fresh.push(e.key);
        through = e.ord[0];
      }
      if (fresh.length > 0) for (const e of (await this.#session.get(fresh)).entries) values.push(e.payload);
    }
    const entries: ClaudeSessionEntry[] = [];
    for (const text of values) entries.push(await this.#entryOf(keys, JSON.parse(text) as ClaudeSessionEntry | string[]));
    return { entries, through };
  }

  /** An entry, put together if it is in pieces. */
  async #entryOf(keys: EntryKeys, value: ClaudeSessionEntry | string[]): Promise<ClaudeSessionEntry> {
    if (!Array.isArray(value)) return value;
    const names = value.map((digest) => keys.piece(digest)), pieces = new Map((await this.#session.get([...new Set(names)])).entries.map((e) => [e.key, e.payload]));
    const texts = names.map((name) => {
      const text = pieces.get(name);
      if (text === undefined) throw fault("not_found", `a piece of an entry is missing: ${name}`);
      return JSON.parse(text) as string;
    });
    return JSON.parse(texts.join("")) as ClaudeSessionEntry;
  }

  /** Folds what was appended since the stored summaries, and stores what it makes. */
  async #summaries(projectKey: string, fold: FoldSummary): Promise<ClaudeSessionSummary[]> {
    const headers = await this.listSessions(projectKey), stored = new Map<string, { cursor: number; value: StoredSummary }>();
    for await (const e of this.#session.list({ prefix: this.#keys({ projectKey, sessionId: "" }).summaries, values: true })) {
      stored.set(e.key, { cursor: e.cursor, value: JSON.parse(e.payload) as StoredSummary });
    }
    const writes = (await this.#session.describe()).grant.rights.includes("append"), all: ClaudeSessionSummary[] = [], tickets: Ticket[] = [];
    for (const { sessionId, mtime } of headers) {
      const key = { projectKey, sessionId }, keys = this.#keys(key), had = stored.get(keys.summary);
      let summary: ClaudeSessionSummary | undefined = had && { sessionId, mtime, data: had.value.data };
      const { entries, through } = await this.#entries(keys, had?.value.through);
      if (entries.length > 0 || summary === undefined) {
        summary = fold(summary, key, entries, { mtime });
        if (writes) tickets.push(await this.#keep(keys, { through, data: summary.data }, had?.cursor ?? 0));
      }
      all.push({ ...summary, sessionId, mtime });
    }
    for (const ticket of tickets) await ticket.wait(); // what is refused is folded again by the next
    return all;
  }

  /** Stores a summary, unless another store has changed it since it was read. */
  #keep(keys: EntryKeys, value: StoredSummary, read: number): Promise<Ticket> {
    const b = this.#session.batch();
    b.put(keys.summary, value).expectKey(read);
    return b.commit();
  }
}

/** What stands for an entry in its key: its uuid or, if it has none, an id that no uuid is written as. */
function idOf(entry: ClaudeSessionEntry): string {
  if (typeof entry !== "object" || entry === null || Array.isArray(entry)) throw fault("bad_argument", "an entry of a transcript is an object");
  return typeof entry.uuid === "string" && entry.uuid !== "" ? segment(entry.uuid) : `@${newULID()}`;
}

/** A value of a batch. once: it stays as it is, if it is there. */
interface Put {
  readonly put: string;
  readonly text: string;
  readonly once: boolean;
}

/** The values of an entry: itself or, if it is large, its pieces by their hashes, and the list of those. */
function opsOf(keys: EntryKeys, id: string, entry: ClaudeSessionEntry): Put[] {
  const text = JSON.stringify(entry), puts: Put[] = [], put = keys.entries + id;
  if (byteLength(text) <= wholeBytes) return [{ put, text, once: true }];
  const digests: string[] = [];
  for (let at = 0; at < text.length; ) {
    let end = Math.min(at + pieceUnits, text.length);
    if (end < text.length && /[\ud800-\udbff]/.test(text[end - 1]!)) end--; // not within a character
    const piece = text.slice(at, end), digest = toBase64url(sha256(bytesOf(piece)));
    digests.push(digest);
    puts.push({ put: keys.piece(digest), text: JSON.stringify(piece), once: false });
    at = end;
  }
  return [...puts, { put, text: JSON.stringify(digests), once: true }];
}

/** Values in portions of a batch each. */
function* portions(all: Put[]): Generator<Put[]> {
  let some: Put[] = [], bytes = 0;
  for (const p of all) {
    const n = byteLength(p.text) + p.put.length;
    if (some.length === batchOps || (some.length > 0 && bytes + n > batchBytes)) {
      yield some;
      some = [];
      bytes = 0;
    }
    some.push(p);
    bytes += n;
  }
  if (some.length > 0) yield some;
}

/** Waits for a batch, and throws what was refused. What is a conflict is there already: entries are put once, and nobody claims them. */
async function applied(ticket: Ticket): Promise<void> {
  const { outcomes, batch } = await ticket.wait();
  const refused = outcomes.find((o) => o.status !== "applied" && o.status !== "conflict");
  if (refused) throw outcomeError(refused, batch);
}
