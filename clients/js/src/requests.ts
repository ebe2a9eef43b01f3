// Requests: what was asked in a session, and what became of it.

import type { Choice, Ticket } from "./batch.js";
import type { Session, Waiting } from "./client.js";
import { fault, faultOf } from "./fault.js";
import { memberAt } from "./jsontext.js";
import type { Claim, SessionEvent, State } from "./session.js";

/** The states of a request; the last four are ends. unknown: it was handed over, and nobody knows what came of it. */
export type RequestState = "open" | "claimed" | "answered" | "withdrawn" | "expired" | "unknown";

/** A request of a session. */
export interface Request {
  readonly id: string;
  readonly kind: string;
  /** The id of the message whose turn it is about; "" for none. */
  readonly message: string;
  /** What is asked, JSON text. */
  readonly payload: string;
  /** The answers to choose from; empty: any answer. */
  readonly choices: readonly Choice[];
  /** SHA-256 of payload, in hexadecimal. */
  readonly digest: string;
  /** Until when it may be answered, Unix ms; 0: for ever. */
  readonly expires: number;
  /** Who asked, under which ref, and when. */
  readonly asked: { readonly actor: string; readonly ref: string; readonly at: number };
  /** Of its last change. */
  readonly cursor: number;
  readonly state: RequestState;
  /** While it is claimed. */
  readonly claim: Claim | undefined;
  /** What was chosen in its answer; "" for nothing. */
  readonly choice: string;
  /** The payload of its answer, JSON text; "" for none. */
  readonly answer: string;
  /** Why it was withdrawn, opened again, or is unknown. */
  readonly reason: string;
  /** Who changed it last; undefined if nothing did, or it happened by itself. */
  readonly by: { readonly actor: string; readonly ref: string; readonly at: number } | undefined;
}

/** Which requests; by default all that are open or claimed. */
export interface RequestOptions extends Waiting {
  /** Only this one. */
  id?: string;
  /** Only these kinds. */
  kinds?: readonly string[];
  /** Those that have ended, too. */
  ended?: boolean;
}

const hasEnded = ({ state }: Request): boolean => state !== "open" && state !== "claimed";

const keysOf = (id = ""): string[] => (id === "" ? ["request/"] : [`request/${id}`, `request/${id}/state`]);

interface By { ref: string; actor: string }

/** The text of a member of an object; "" if it has none. */
function memberText(text: string, name: string): string {
  const at = memberAt(text, name);
  return at ? text.slice(...at) : "";
}

/** Changes the request that a key is about, and returns it; undefined if the key is none of a request whose question is known. */
function change(of: Map<string, Request>, key: string, cursor: number, value: string): Request | undefined {
  const [, id, state] = /^request\/([^/]+)(\/state)?$/.exec(key) ?? [];
  if (id === undefined) return undefined;
  const old = of.get(id);
  if (value === "") {
    if (!state) of.delete(id);
    return undefined;
  }
  let next: Request;
  if (state) {
    if (!old) return undefined;
    const v = JSON.parse(value) as { state: RequestState; claim?: number; outbox?: string; worker?: string; until?: number; choice?: string; reason?: string; by?: By; at: number };
    const claim = v.state === "claimed" ? { cursor: v.claim!, until: v.until!, outbox: v.outbox ?? "", worker: v.worker ?? "", ref: v.by!.ref, actor: v.by!.actor } : undefined;
    next = { ...old, cursor, state: v.state, claim, choice: v.choice ?? "", answer: memberText(value, "payload"), reason: v.reason ?? "", by: v.by && { ...v.by, at: v.at } };
  } else {
    const v = JSON.parse(value) as { kind: string; message?: string; digest: string; expires_at?: number; by: By; at: number; choices?: Choice[] };
    next = {
      id, kind: v.kind, message: v.message ?? "", payload: memberText(value, "payload"), choices: v.choices ?? [], digest: v.digest, expires: v.expires_at ?? 0,
      asked: { ...v.by, at: v.at }, cursor, state: "open", claim: undefined, choice: "", answer: "", reason: "", by: undefined,
    };
  }
  of.set(id, next);
  return next;
}

/** The requests of a state, by id, in the order in which they were asked. */
function requestsIn(state: State): Map<string, Request> {
  const of = new Map<string, Request>();
  for (const e of state.entries.values()) change(of, e.key, e.cursor, e.payload); // what is asked comes before what became of it
  return of;
}

const has = ({ kinds = [], ended = false }: RequestOptions, r: Request): boolean => (ended || !hasEnded(r)) && (kinds.length === 0 || kinds.includes(r.kind));

export async function listRequests(session: Session, options: RequestOptions): Promise<Request[]> {
  const state = await session.snapshot({ keys: keysOf(options.id), ...(options.signal && { signal: options.signal }) });
  return [...requestsIn(state).values()].filter((r) => has(options, r));
}

/** The present requests, and each that changes. */
async function* changes(session: Session, id: string | undefined, signal: AbortSignal | undefined): AsyncGenerator<Request, void, void> {
  const keys = keysOf(id);
  let state: State | undefined;
  while (!state) {
    try {
      state = await session.snapshot({ keys, ...(signal && { signal }) });
    } catch (err) {
      if (signal?.aborted) return;
      if (!faultOf(err).transient) throw err; // else after the time that a call waits
    }
  }
  let of = requestsIn(state);
  const fresh = [...of.values()];
  const { cursor: after, hash } = state;
  const events = session.follow({ after, ...(hash && { hash }), keys, ...(signal && { signal }), startOver: (state) => {
    of = requestsIn(state);
    fresh.push(...of.values());
  } });
  for (;;) {
    for (let r = fresh.shift(); r; r = fresh.shift()) yield r;
    const next: IteratorResult<SessionEvent, void> = await events.next();
    if (next.done) return;
    const { key, cursor, payload, hidden } = next.value;
    yield* fresh.splice(0);
    const r = hidden ? undefined : change(of, key, cursor, payload);
    if (r) yield r;
  }
}

export async function* followRequests(session: Session, options: RequestOptions): AsyncGenerator<Request, void, void> {
  const seen = new Set<string>();
  for await (const r of changes(session, options.id, options.signal)) {
    if (!has(options, r) && !seen.has(r.id)) continue;
    if (hasEnded(r)) seen.delete(r.id);
    else seen.add(r.id);
    yield r;
  }
}

export async function* openRequests(session: Session, outbox: string, kinds: readonly string[], { signal }: Waiting): AsyncGenerator<Request, void, void> {
  const shown = new Map<string, number>(); // by id: the cursor at which it was given last
  for await (const r of changes(session, undefined, signal)) {
    if (hasEnded(r)) shown.delete(r.id);
    else if (kinds.length > 0 && !kinds.includes(r.kind)) continue;
    else if (r.state === "open" ? shown.get(r.id) !== r.cursor : r.claim!.outbox === outbox && !shown.has(r.id)) {
      shown.set(r.id, r.cursor);
      yield r;
    }
  }
}

/** Names a request of a session. Its id and batch can be saved and given to Session.requestTicket in any later process. */
export class RequestTicket {
  readonly #session: Session;
  readonly #asked: Ticket | "";

  constructor(session: Session, readonly id: string, asked: Ticket | "") {
    this.#session = session;
    this.#asked = asked;
  }

  /** The id of the batch that asked; "" if it is not known. */
  get batch(): string {
    return this.#asked === "" ? "" : this.#asked.batch;
  }

  /**
   * Waits until the request has ended, and returns it as it is then, over lost connections and restarts of the server. It throws why the op was
   * refused, canceled, or what ends a subscription. It takes the right read.
   */
  async wait(options: Waiting = {}): Promise<Request> {
    if (this.#asked !== "") (await this.#asked.wait(options)).check();
    for await (const r of changes(this.#session, this.id, options.signal)) if (hasEnded(r)) return r;
    throw fault("canceled", `stopped waiting for request ${this.id}`);
  }
}
