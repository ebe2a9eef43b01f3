// Verification of a session: its log against the log's hash chain, and its state against the state folded from the log, as the
// Go client has it (client/verify.go, internal/session/verify.go).

import { ChainVerifier, type Flaw, readHash } from "./chain.js";
import type { Client, Waiting } from "./client.js";
import { Digest, isHash, sameHash, sumOf, zeroHash } from "./digest.js";
import { fault, faultOf, type MooringError } from "./fault.js";
import { fold } from "./fold.js";
import { type Held, reached } from "./link.js";
import { type Claim, type Description, type Entry, num, readEvent, readInfo, readParams, readSnapshot, type SessionEvent, type State, type Turn } from "./session.js";
import { dispose, type Struct } from "./wire.js";

/** Options of Session.verify. */
export interface VerifyOptions extends Waiting {
  /** Called with the cursor that was reached, and the last one. */
  progress?: (cursor: number, end: number) => void;
}

/** An event that is not as it was written. */
export interface Finding {
  cursor: number;
  /** What is wrong with it: "was changed", "is missing", … */
  what: string;
}

/** The result of Session.verify. */
export class Verification {
  /** Of the last event that was read, and its hash: kept elsewhere, it detects a log that was rewritten later. */
  cursor = 0;
  head: Uint8Array = zeroHash;
  /** How many events were read, and how many of these have lost their payload to a purge. */
  events = 0;
  purged = 0;
  /** The cursor of the state that was compared, and that state's hash as folded from the log; 0 and undefined if none was. */
  stateCursor = 0;
  state: Uint8Array | undefined;
  /** What is wrong in the log. */
  readonly findings: Finding[] = [];
  /** Where the server's state differs from the folded one: keys, "the claim of KEY", "turn of KEY", … */
  readonly differences: string[] = [];
  /** What could not be verified, and why. */
  readonly unverified: string[] = [];

  /** from: the first cursor that could be read. */
  constructor(readonly from: number) {}

  /** undefined if everything that could be verified is as it was written; else an error (internal) that names what is not. */
  get error(): MooringError | undefined {
    if (this.findings.length > 0) {
      const said = this.findings.slice(0, maxFindings).map((f) => `event ${f.cursor} ${f.what}`), more = this.findings.length - maxFindings;
      return fault("internal", `the log is not the one that was written: ${[...said, ...(more > 0 ? [`and ${more} more`] : [])].join("; ")}`, this.findings[0]!.cursor);
    }
    if (this.differences.length === 0) return undefined;
    const more = this.differences.length - 10;
    return fault("internal", `the state is not what the log makes of it, in ${this.differences.slice(0, 10).map((d) => JSON.stringify(d)).join(" ")}${more > 0 ? ` and ${more} more` : ""}`, this.stateCursor);
  }

  /** Throws the error, if there is one. */
  check(): this {
    if (this.error) throw this.error;
    return this;
  }
}

const maxFindings = 20;

/** An event with the hash of its payload as it was written. */
export interface Logged extends SessionEvent {
  readonly sum: Uint8Array;
}

/** The hash of a session's event as event cursor, over the one before it. */
export function hashEvent(prev: Uint8Array, session: string, e: Omit<Logged, "payload" | "hash">, cursor = e.cursor): Uint8Array {
  return new Digest("mooring event v1").hash(prev).text(session).num(cursor).text(e.method).text(e.key).num(e.schema).hash(e.sum)
    .text(e.ref).text(e.actor).text(e.outbox).text(e.op).text(e.batch).num(e.at).sum();
}

const statuses = ["", "streaming", "interrupted", "completed", "failed", "aborted"];

/** The hash of a live session's state. */
export function hashState(cursor: number, epoch: number, entries: Iterable<Entry>, turns: readonly Turn[], claims: ReadonlyMap<string, Claim>): Uint8Array {
  const live = 1, all = [...entries].sort((a, b) => (a.key < b.key ? -1 : 1)); // keys are ASCII
  const w = new Digest("mooring state v1").num(cursor).num(epoch).num(live).num(all.length);
  for (const e of all) w.text(e.key).num(e.cursor).num(e.schema).hash(sumOf(e.payload));
  w.num(turns.length);
  for (const t of [...turns].sort((a, b) => (a.message < b.message ? -1 : 1))) w.text(t.message).num(statuses.indexOf(t.status)).num(t.begun).num(t.ended);
  const claimed = all.filter((e) => claims.has(e.key));
  if (claimed.length > 0) w.num(claimed.length);
  for (const { key } of claimed) {
    const c = claims.get(key)!;
    w.text(key).num(c.cursor).num(c.until).text(c.outbox.replace(/~[A-Z2-7]{26}$/, "")).text(c.worker);
  }
  return w.sum();
}

/** A payload that is not as it was written. Purges have the hash of what replaces it. */
interface Altered {
  gone: boolean;
  sum: Uint8Array; // of the present payload
  explained: boolean;
}

/** Verifies a log that is added event by event. It keeps only flawed ones. */
export class LogVerifier {
  redactedEvents = 0;
  readonly #session: string;
  readonly #first: number; // the cursor before the log's first event
  readonly #redacted: boolean; // the ref hides values from before its first cursor
  readonly #expected: { cursor: number; head: Uint8Array } | undefined;
  readonly #chain: ChainVerifier;
  readonly #found = new Map<number, string>();
  readonly #gaps: (readonly [number, number])[] = [];
  readonly #altered = new Map<number, Altered>();
  #lastIntact = 0; // the last event whose payload is as it was written
  #deleted = 0;

  /** expected: the hash that an event is known to have had. */
  constructor(session: string, first: number, redacted: boolean, expected: { cursor: number; head: Uint8Array } | undefined) {
    this.#session = session;
    this.#first = first;
    this.#redacted = redacted;
    this.#expected = expected;
    this.#chain = new ChainVerifier(first);
  }

  get cursor(): number {
    return this.#chain.seq;
  }

  get head(): Uint8Array {
    return this.#chain.head;
  }

  add(e: Logged): void {
    const next = this.cursor + 1, { payload: _, ...row } = e;
    this.#chain.add({ seq: e.cursor, hash: e.hash, sum: (prev, seq) => hashEvent(prev, this.#session, row, seq) });
    if (e.cursor < next) return; // the chain reports that it is out of order
    if (e.cursor > next) this.#gaps.push([next, e.cursor - 1]);
    if (this.#expected?.cursor === e.cursor && !sameHash(this.#expected.head, e.hash)) this.#note(e.cursor, "is not the one that the session was at");
    this.#payload(e);
  }

  #note(cursor: number, what: string): void {
    if (!this.#found.has(cursor)) this.#found.set(cursor, what);
  }

  /** Verifies an event's payload against its sum, and reads what a purge says of others. */
  #payload(e: Logged): void {
    const { cursor, method, payload } = e, sum = payload === "" ? zeroHash : sumOf(payload);
    if (payload === "") this.#altered.set(cursor, { gone: true, sum, explained: false });
    else if (sameHash(sum, e.sum)) this.#lastIntact = cursor;
    else if (this.#redacted && ["finalize", "purge", "revert", "unrevert", "settle", "compact"].includes(method) && (parsed(payload)?.["hidden"] as number) > 0) this.redactedEvents++;
    else {
      this.#altered.set(cursor, { gone: false, sum, explained: false });
      return;
    }
    if (method === "delete") this.#deleted = cursor;
    if (method !== "purge" || payload === "") return;
    const purge = parsed(payload), notes = purge?.["events"] ?? [];
    if (purge === undefined || !Array.isArray(notes)) this.#note(cursor, "is a purge that cannot be read");
    else for (const n of notes as { cursor: number; sum?: string }[]) this.#explain(cursor, n);
  }

  /** Reads what the purge at cursor by says of an event. */
  #explain(by: number, { cursor, sum = "" }: { cursor: number; sum?: string }): void {
    if (cursor <= this.#first || cursor >= by) return; // trimmed since
    const odd = this.#altered.get(cursor);
    if (odd) odd.explained = sum === "" ? odd.gone : !odd.gone && sum === hexOf(odd.sum);
    else if (!this.#gaps.some(([from, to]) => from <= cursor && cursor <= to)) this.#note(cursor, `has its payload, which event ${by} purged`);
  }

  /** All flaws, by cursor, of a log that is known to end with an event of that hash. */
  findings(end: number, head: Uint8Array): Finding[] {
    const found = new Map<number, string>();
    for (const f of this.#chain.end(end, head)) {
      const { cursor, what } = findingOf(f);
      if (!found.has(cursor)) found.set(cursor, what);
    }
    for (const [cursor, what] of this.#found) if (!found.has(cursor)) found.set(cursor, what);
    for (const [cursor, odd] of this.#altered) {
      if (found.has(cursor) || odd.explained || (odd.gone && this.#deleted !== 0)) continue;
      found.set(cursor, odd.gone ? "has lost its payload, and no purge took it" : "has another payload than was written");
    }
    if (this.#deleted !== 0 && this.#lastIntact !== 0 && !found.has(this.#lastIntact)) {
      found.set(this.#lastIntact, `has its payload, although the session was deleted at ${this.#deleted}`);
    }
    return [...found].map(([cursor, what]) => ({ cursor, what })).sort((a, b) => a.cursor - b.cursor);
  }
}

const hexOf = (b: Uint8Array): string => Array.from(b, (v) => v.toString(16).padStart(2, "0")).join("");

/** An object's members; undefined for anything else. */
function parsed(json: string): Record<string, unknown> | undefined {
  try {
    const v: unknown = JSON.parse(json);
    return v !== null && typeof v === "object" && !Array.isArray(v) ? (v as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

function findingOf(f: Flaw): Finding {
  switch (f.kind) {
    case "missing": return { cursor: f.seq, what: f.through > f.seq ? `is missing, and all up to event ${f.through}` : "is missing" };
    case "misplaced": return { cursor: f.seq, what: f.writtenAs === 0 ? "is out of order" : `is out of order: it belongs at ${f.writtenAs}` };
    case "beyond": return { cursor: f.writtenAs + 1, what: `is there, although the session has come to event ${f.writtenAs} only` };
    case "end": return { cursor: f.seq, what: "is not the one that the session ends with" };
    case "changed": return { cursor: f.seq, what: "was changed" };
  }
}

/** How often a session is read again if its log changes meanwhile. */
const verifyTries = 4;

/** Session.verify. */
export async function verifySession(client: Client, held: Held, options: VerifyOptions): Promise<Verification> {
  for (let tries = 1; ; tries++) {
    const v = await new Pass(client, held, options).run();
    if (v !== undefined) return v;
    if (tries === verifyTries) throw fault("overloaded", "the log was purged or trimmed each time it was read: try again");
  }
}

/** One reading of a session. */
class Pass {
  readonly #client: Client;
  readonly #held: Held;
  readonly #options: VerifyOptions;
  #state: State | undefined; // the server's; undefined if there is none to compare
  #folded: State | undefined;
  #order = "";
  #epoch = 0;
  #wrong = ""; // why the log cannot be folded

  constructor(client: Client, held: Held, options: VerifyOptions) {
    this.#client = client;
    this.#held = held;
    this.#options = options;
  }

  /** undefined if events were changed meanwhile, by a purge or trim: then nothing is proved. */
  async run(): Promise<Verification | undefined> {
    const { session, grant, head } = await this.#describe();
    if (grant.dead !== "none") throw fault(grant.dead, "the ref is dead: nothing can be read through it");
    const { base, cursor, epoch } = session!, v = new Verification(Math.max(grant.from, base + 1, 1));
    const whole = isHash(head), parts = grant.readKeys.length > 0 || grant.message !== "";
    if (parts || (!whole && v.from === 1)) {
      throw fault("missing_right", "the ref does not show all of the session, so nothing can be verified through it: use an owner's ref");
    }
    if (v.from > 1 && base + 1 >= grant.from) {
      v.unverified.push(`the log was trimmed and starts after cursor ${base}: what was before it, how its first event goes on from that, and the state`);
    } else if (v.from > 1) {
      v.unverified.push(`the ref shows the log from cursor ${v.from}: what was before it, how the first event goes on from that, and the state`);
    } else {
      this.#state = await this.#client.call(this.#held, (live, peer) => readSnapshot(live, peer), this.#options);
      this.#folded = { cursor: 0, hash: zeroHash, entries: new Map(), turns: [], claims: new Map() };
      v.stateCursor = this.#state.cursor;
    }
    const log = new LogVerifier(reached(this.#held), v.from - 1, v.from > 1 && grant.from > 1, whole ? { cursor, head } : undefined);
    let end = cursor, purged = false;
    for (let after = v.from - 1; ; ) {
      const page = await this.#page(after);
      if (page === undefined) return undefined;
      end = Math.max(end, page.cursor);
      const last = page.events.at(-1);
      if (last === undefined) break;
      for (const e of page.events) {
        log.add(e);
        v.events++;
        if (e.payload === "") v.purged++;
        purged ||= e.method === "purge" && e.cursor > cursor;
        this.#fold(e);
        if (e.cursor === cursor && this.#folded && this.#epoch !== epoch) v.differences.push("epoch");
      }
      after = last.cursor;
      this.#options.progress?.(after, end);
      if (after >= end) break;
    }
    if (purged) return undefined;
    v.findings.push(...(whole && end === cursor ? log.findings(end, head) : log.findings(Math.max(end, log.cursor), log.head)));
    if (log.redactedEvents > 0) v.unverified.push(`${log.redactedEvents} events hold values from before cursor ${grant.from}, which the ref does not show: what they hold`);
    v.cursor = log.cursor;
    v.head = log.head;
    this.#compare(v);
    return v;
  }

  #describe(): Promise<Description & { head: Uint8Array }> {
    return this.#client.call(this.#held, async (live) => {
      const answer = (await live["info"]!()) as Struct, head = readHash((answer["info"] as Struct | undefined)?.["head"]);
      return { ...readInfo(answer), head };
    }, this.#options);
  }

  /** The events after a cursor; undefined if the log was trimmed there. */
  async #page(after: number): Promise<{ events: Logged[]; cursor: number } | undefined> {
    try {
      return await this.#client.call(this.#held, async (live, peer) => {
        const answer = (await live["events"]!({ from: after, limit: 0, ...(await readParams(peer, undefined, undefined)) })) as Struct;
        const page = { events: ((answer["events"] ?? []) as Struct[]).map(readLogged), cursor: num(answer["cursor"]) };
        dispose(answer);
        return page;
      }, this.#options);
    } catch (err) {
      if (faultOf(err).codeName === "cursor_expired") return undefined;
      throw err;
    }
  }

  #fold(e: Logged): void {
    const to = this.#folded;
    if (to === undefined || e.cursor > this.#state!.cursor) return;
    try {
      if (e.cursor !== to.cursor + 1) throw fault("internal", `event ${e.cursor} came where ${to.cursor + 1} was next`);
      if (e.method === "create" || e.method === "fork") this.#epoch = 1;
      if (e.method === "create") this.#order = parsed(e.payload)?.["order"] === "time" ? "time" : "";
      if (e.method === "bumpEpoch") this.#epoch++;
      fold(to, e, this.#order);
    } catch (err) {
      this.#wrong = `event ${e.cursor} (${e.method}) cannot be folded: ${err instanceof Error ? err.message : String(err)}`;
      this.#folded = undefined;
    }
  }

  /** Compares the folded state with the server's. */
  #compare(v: Verification): void {
    if (this.#wrong !== "" && v.findings.length === 0) v.differences.push(this.#wrong);
    const want = this.#folded, got = this.#state;
    if (want === undefined || got === undefined || want.cursor !== got.cursor) return; // the findings name the cause
    v.state = hashState(want.cursor, this.#epoch, want.entries.values(), want.turns, want.claims);
    const differs = new Set<string>();
    for (const key of new Set([...want.entries.keys(), ...got.entries.keys()])) {
      const w = want.entries.get(key), g = got.entries.get(key);
      if (!w || !g || w.cursor !== g.cursor || w.schema !== g.schema || w.payload !== g.payload) differs.add(key);
      else if (!sameClaim(want.claims.get(key), got.claims.get(key))) differs.add(`the claim of ${key}`);
      if (w && g && (g.ord[0] !== 0 || g.ord[1] !== 0) && (w.ord[0] !== g.ord[0] || w.ord[1] !== g.ord[1])) differs.add(`the place of ${key}`);
    }
    const began = new Map(got.turns.map((t) => [t.message, t]));
    for (const w of want.turns) {
      const g = began.get(w.message);
      began.delete(w.message);
      if (!g || g.status !== w.status || g.begun !== w.begun || g.ended !== w.ended) differs.add(`turn of message/${w.message}`);
    }
    for (const message of began.keys()) differs.add(`turn of message/${message}`);
    v.differences.push(...differs);
    v.differences.sort();
  }
}

function sameClaim(a: Claim | undefined, b: Claim | undefined): boolean {
  return a === b || (a !== undefined && b !== undefined && a.cursor === b.cursor && a.until === b.until && a.outbox === b.outbox && a.worker === b.worker && a.ref === b.ref && a.actor === b.actor);
}

/** An event with its sum; that of its payload if the server does not say. */
function readLogged(e: Struct): Logged {
  const event = readEvent(e), sum = readHash(e["sum"]);
  return { ...event, sum: isHash(sum) || event.payload === "" ? sum : sumOf(event.payload) };
}
