// A batch: ops that become durable together. Every method returns a promise of its op's result, which later ops of this
// batch or of any other may use in place of a value; the server fills in the value.

import { fault, MooringError } from "./fault.js";
import { argOf, type Arg, checkIntent, checkSize, type Expect, type JSONText, type Limits, type OpRef, outcomeError, type Outcome } from "./intent.js";
import { checkOp } from "./methods.js";
import type { Outbox } from "./outbox.js";
import type { NewBatch, Op } from "./outbox_types.js";
import type { Ref } from "./ref.js";
import type { Role } from "./rows.js";
import { isULID, newBatchID, newULID, opID } from "./ulid.js";

/** A reference to a field of an op's result, usable wherever a value is. It can be made in any later process. */
export interface Reference {
  readonly opRef: OpRef;
}

/** A reference by an op's id: { opRef: { op, path } }. */
export const reference = (op: string, path = ""): Reference => ({ opRef: { op, path } });

/** A payload: an object that JSON can hold, or JSON text that is kept byte for byte (jsonText). */
export type Payload = object | JSONText;

/** What a key can be put to: of Mooring's kinds an object, of one's own kinds anything that JSON can hold, null too. */
export type Value = Payload | string | number | boolean | null;

/** A value, or a result that does not exist yet. */
export type Now<T> = T | Reference;

/** The rights that a ref can have. */
export type Right = "read" | "append" | "share" | "revoke" | "create" | "list" | "break" | "schema" | "manage" | "revert" | "compact" | "ask" | "answer";

/** The rights that a ref can have in the sessions below its session. */
export type ChildRight = Exclude<Right, "share" | "revoke" | "create" | "list" | "manage">;

/** The limits of a new ref: it never allows more than the ref it is made from. */
export interface ShareOptions {
  rights: readonly Right[];
  /**
   * Its rights in the session's children (Session.open), at any depth, those that are there and those that come: among rights. It does not
   * reach them if left out. Such a ref has none of from, message, readKeys and writeKeys; its end is a cut in each child.
   */
  children?: readonly ChildRight[];
  /** The methods that may be appended; all if left out. */
  methods?: readonly string[];
  /** How long it is valid, in ms, from when the server makes it, by its clock; for ever if left out. */
  lifetime?: number;
  /** Instead of lifetime: until when, by the server's clock, which must not be past it. */
  expires?: Date | number;
  /** The first visible cursor. */
  from?: number;
  /** Only this message, with its parts and turn. */
  message?: string;
  /** Shows only these keys, and all below those that end in "/"; cursor marks stand for the rest. It does not limit writing. */
  readKeys?: readonly string[];
  /** Writes only these keys; ops about others are denied. It does not limit reading. */
  writeKeys?: readonly string[];
  /** The kinds of requests that a ref with the right ask asks: prompt, stop, permission, question, or your own; all if left out. */
  ask?: readonly string[];
  /** The kinds of requests that a ref with the right answer claims and answers; all if left out. */
  answer?: readonly string[];
  /** How often it may be redeemed. */
  redemptions?: number;
  label?: string;
  /** A path under the actor of the ref it is made from. */
  actor?: string;
  /** The public key that the ref is bound to (newSealKey's publicText, or what mooring key prints). */
  seal?: string;
}

/** What a request may have beside its kind and payload. */
export interface AskOptions {
  /** Its id, 1 to 200 letters, digits and _.:@+-; a new one if left out. It is the idempotency key. */
  id?: string;
  /** The id of the message whose turn it is about; a stop needs one. */
  message?: string;
  /** The answers to choose from, 32 at most; any answer if left out. */
  choices?: readonly Choice[];
  /** How long it may be answered, in ms from when the op applies, a second to 30 days; for ever if left out. */
  expires?: number;
}

/** One of the answers that a request offers. */
export interface Choice {
  /** Up to 64 bytes. */
  readonly id: string;
  readonly label?: string;
  /** What kind of choice it is, by the asker's protocol. */
  readonly kind?: string;
}

/** An answer to a request. */
export interface AnswerOptions {
  /** The id of one of its choices. */
  choice?: Now<string>;
  payload?: Now<Value>;
  /** The digest of what was shown (Request.digest), which the answer to a permission needs. */
  shown?: Now<string>;
  /** Of the request, if it is claimed. */
  claim?: OfClaim;
}

/** What a live capability is to allow; what is left out is as before, and nothing can be wider. */
export type AttenuateOptions = Partial<Omit<ShareOptions, "redemptions" | "seal">>;

/** When a ref ends, in Unix ms: computed from a lifetime by this machine's clock, for servers that do not know lifetimes. */
export function endOf({ expires, lifetime }: AttenuateOptions): number | undefined {
  if (lifetime === undefined) return expires === undefined ? undefined : Number(expires);
  if (expires !== undefined) throw fault("bad_argument", "a ref has a lifetime or an expiry time, not both");
  if (!Number.isSafeInteger(lifetime) || lifetime < 1) throw fault("bad_argument", "a lifetime is a whole number of milliseconds, and at least one");
  return Date.now() + lifetime;
}

/** The result of an op that is not applied yet. As an argument it stands for the whole result. */
export class Promised implements Reference {
  readonly #batch: Batch;
  readonly #place: number;

  constructor(batch: Batch, place: number) {
    this.#batch = batch;
    this.#place = place;
  }

  /** The op's id, known before the op is durable. */
  get opID(): string {
    return this.#batch.op(this.#place).id!;
  }

  get opRef(): OpRef {
    return { op: this.opID, path: "" };
  }

  /** A field of the result by a dot-separated path: "cursor" (which every result has), "length", "ref", "session", "epoch", "cut". */
  field(path: string): Reference {
    return reference(this.opID, path);
  }

  /** Sets an argument of the op, replacing the one that the method set. */
  arg(name: string, value: unknown): this {
    this.#batch.change(this.#place, (op) => ({ ...op, args: withArg(op.args, argOf(name, value)) }));
    return this;
  }

  /** Makes the op skipped if one of these does not apply. */
  dependsOn(...ops: (Promised | string)[]): this {
    const ids = ops.map((o) => (typeof o === "string" ? o : o.opID));
    this.#batch.change(this.#place, (op) => ({ ...op, dependsOn: [...(op.dependsOn ?? []), ...ids] }));
    return this;
  }

  /** Makes the op a conflict unless the session is at this cursor, which is compared once, before the batch's first op. */
  expect(cursor: Now<number>): this {
    this.#batch.change(this.#place, (op) => ({ ...op, expected: expectOf(cursor) }));
    return this;
  }

  /**
   * Makes a put, remove, patch or add a conflict unless its key's value was last changed at this cursor (Entry.cursor, or the "cursor"
   * of the op that did); 0 expects that there is none. The outcome of a conflict has the cursor of the key's last change. Unlike expect
   * it is compared when the op's turn comes, and other keys may change meanwhile.
   */
  expectKey(cursor: Now<number>): this {
    return this.arg("expect", cursor);
  }

  /**
   * Makes a put, remove, patch or add one of a claim's owner, which a claimed key takes: claim is the cursor of the claim, the promise of the op
   * that made it (of this batch or of another), or its "claim". The op is a conflict if the claim is not in force any more, with the
   * cursor of the one that is.
   */
  withClaim(claim: OfClaim): this {
    return this.arg("claim", claimOf(claim));
  }

  /** Gives the op an id of the caller's, a ULID, instead of one made of the batch's. */
  named(id: string): this {
    if (!isULID(id)) throw fault("bad_argument", "the op id is not a ULID");
    this.#batch.change(this.#place, (op) => ({ ...op, id }));
    return this;
  }
}

/** A claim: its cursor, a reference to that, or the promise of the op that made it. */
export type OfClaim = Now<number> | Promised;

const claimOf = (claim: OfClaim): Now<number> => (claim instanceof Promised ? claim.field("claim") : claim);

function withArg(args: readonly Arg[], arg: Arg): Arg[] {
  const place = args.findIndex((a) => a.name === arg.name);
  return place < 0 ? [...args, arg] : args.with(place, arg);
}

function expectOf(cursor: Now<number>): Expect {
  if (typeof cursor === "object") return { ref: cursor.opRef };
  if (!Number.isSafeInteger(cursor) || cursor < 0) throw fault("bad_argument", "the expected cursor is not a whole number");
  return { cursor };
}

/** The parts of the client that a batch uses. */
export interface BatchHome {
  readonly outbox: Outbox;
  limits(): Limits;
  ticket(batch: string, session: string, ops: readonly string[]): Ticket;
}

/** What commit stores before a batch that creates a session. */
export interface OwnerRef {
  ref: Ref;
  meta: { role: Role; external?: string; label?: string };
}

/** Collects ops for one session. Faulty ops are reported by commit, with their position. */
export class Batch {
  readonly #home: BatchHome;
  readonly #session: string;
  readonly #via: Ref;
  readonly #at: Ref;
  /** The ref that a fork reads its source by, or under which a child is made. */
  source: Ref | undefined;
  readonly #owner: OwnerRef | undefined;
  readonly #ops: Op[] = [];
  #id: string;
  #atomic = false;

  constructor(home: BatchHome, session: string, via: Ref, at: Ref, owner?: OwnerRef, id?: string) {
    this.#home = home;
    this.#session = session;
    this.#via = via;
    this.#at = at;
    this.#owner = owner;
    this.#id = id ?? newBatchID();
    if (!isULID(this.#id)) throw fault("bad_argument", "the batch id is not a ULID");
  }

  /** The batch's id, which names its ticket. */
  get id(): string {
    return this.#id;
  }

  /** The number of ops so far. */
  get length(): number {
    return this.#ops.length;
  }

  op(place: number): Op {
    return this.#ops[place]!;
  }

  change(place: number, how: (op: Op) => Op): void {
    this.#ops[place] = how(this.#ops[place]!);
  }

  /** Makes the ops apply all or not at all. */
  atomic(): this {
    this.#atomic = true;
    return this;
  }

  /** Adds an op of any method. Arguments that are undefined are left out. */
  do(method: string, args: Record<string, unknown> = {}): Promised {
    const place = this.#ops.length;
    const given = Object.entries(args).filter(([, v]) => v !== undefined).map(([name, v]) => argOf(name, v));
    this.#ops.push({ id: opID(this.#id, place), method, args: given });
    return new Promised(this, place);
  }

  /**
   * Sets a key to a payload: of the kinds that Mooring knows (session, message/ID, part/MESSAGE/ID, session_diff, model/ID) to an object, of
   * a kind of your own (KIND or KIND/ID[/ID…], up to 512 bytes: todo/1, plan) to any value. An equal payload changes nothing.
   */
  put(key: Now<string>, payload: Now<Value>): Promised {
    return this.do("put", { key, payload });
  }

  /** Removes a key; a missing one changes nothing. */
  remove(key: Now<string>): Promised {
    return this.do("remove", { key });
  }

  /**
   * Changes members of the value of a key of your own kinds, by RFC 7396: patch is an object with the members to set, null for those to
   * remove; nested objects are patched likewise. Two patches of different members both apply, whoever made them. What patch does not name
   * keeps its bytes. A value that is missing or no object counts as {}; a patch that is no object replaces the value. A value in which
   * a name stands twice is rejected (bad_payload).
   */
  patch(key: Now<string>, patch: Now<Value>): Promised {
    return this.do("patch", { key, patch });
  }

  /**
   * Adds a whole number to a member of the value of a key of your own kinds, an object; a missing value or member counts as 0. The number
   * and the sum are within 2^53 - 1; a member that is no whole number is rejected (bad_payload).
   */
  add(key: Now<string>, member: Now<string>, by: Now<number>): Promised {
    return this.do("add", { key, member, by });
  }

  /**
   * Claims a key of your own kinds that has a value, for lease milliseconds (1,000 to 3,600,000): until then no other outbox changes it, and
   * neither does another worker of this one. worker tells the workers of an outbox apart, in up to 64 bytes; without one it is its only one.
   * Claiming the same again renews the lease. A claim of another is a conflict, with its cursor. The result has the "claim", the cursor that
   * the worker's ops name (withClaim), and the "key". The claim ends with release, remove or the lease: what the worker sends later is a conflict.
   * Where too many keys are claimed under the ref, the op waits in the outbox.
   */
  claim(key: Now<string>, lease: Now<number>, worker?: Now<string>): Promised {
    return this.do("claim", { key, lease, worker });
  }

  /**
   * Claims the first key below a prefix (todo/), in the order of keys, that has a value and is not claimed. Its result names the "key"; if none
   * is free, it changes nothing and the result names none. It takes the right to read, too.
   */
  claimFirst(prefix: Now<string>, lease: Now<number>, worker?: Now<string>): Promised {
    return this.do("claim", { prefix, lease, worker });
  }

  /**
   * Ends a claim of this outbox; the key is free at once. Under a ref with the right break it also ends a claim of another outbox, which is
   * named by its cursor (Claim.cursor).
   */
  release(key: Now<string>, claim: OfClaim): Promised {
    return this.do("release", { key, claim: claimOf(claim) });
  }

  /**
   * Makes a request in the session: a prompt or a stop for its agent, a permission or a question for people, or one of a kind of your own. It
   * takes the right ask. Asking the same again changes nothing; under the same id another request is rejected (already_exists). Where too many
   * requests are open under the ref (32, and 256 in the session), the op waits in the outbox.
   */
  ask(kind: Now<string>, payload?: Now<Value>, options: AskOptions = {}): { id: string; op: Promised } {
    const { id = newULID(), message, choices, expires } = options;
    return { id, op: this.do("ask", { request: id, kind, payload, message, choices: choices as Value | undefined, expires_in: expires }) };
  }

  /**
   * Claims an open request for lease milliseconds (1,000 to 3,600,000): until then nobody else answers it. It takes the right answer. worker is
   * as in claim, and claiming again renews the lease. The result has the "claim". When the lease is over the request is open again; a prompt is
   * not, since it may have been handed to an agent.
   */
  claimRequest(request: Now<string>, lease: Now<number>, worker?: Now<string>): Promised {
    return this.do("claim", { request, lease, worker });
  }

  /** Gives a request back, which is open again. */
  releaseRequest(request: Now<string>, claim: OfClaim): Promised {
    return this.do("release", { request, claim: claimOf(claim) });
  }

  /**
   * Answers a request. It takes the right answer. The first answer is recorded; any other is a conflict, with the cursor of the first. An answer to
   * what was withdrawn, or has expired, is rejected (request_ended).
   */
  answer(request: Now<string>, options: AnswerOptions = {}): Promised {
    const { choice, payload, shown, claim } = options;
    return this.do("answer", { request, choice, payload, shown, claim: claim === undefined ? undefined : claimOf(claim) });
  }

  /** Ends a request that this outbox has claimed as unknown: it was handed over, and nobody knows what came of it. */
  endUnknown(request: Now<string>, claim: OfClaim, reason?: Now<string>): Promised {
    return this.do("answer", { request, claim: claimOf(claim), state: "unknown", reason });
  }

  /**
   * Ends a request that nobody works on: one's own, or one that was asked under a ref made from this one. A prompt whose claimer is gone ends as
   * unknown by it.
   */
  withdraw(request: Now<string>, reason?: Now<string>): Promised {
    return this.do("withdraw", { request, reason });
  }

  /** Puts a message and opens its turn: until finalize its parts can grow. */
  begin(message: Now<string>, payload: Now<Payload>): Promised {
    return this.do("begin", { message, payload });
  }

  /** Adds text to a part while its message's turn is open. offset is the text's length in UTF-8 bytes so far. */
  appendText(key: Now<string>, offset: Now<number>, text: Now<string>): Promised {
    return this.do("appendText", { key, offset, text });
  }

  /** Ends a message's turn. More can be set with arg: payload, parts, usage, error, completed. */
  finalize(message: Now<string>, status: Now<"completed" | "failed" | "aborted">): Promised {
    return this.do("finalize", { message, status });
  }

  /** Makes a new ref, offline: it can be given away at once and works as soon as the op has arrived. */
  share(options: ShareOptions): { ref: Ref; op: Promised } {
    const ref = this.#at.for(this.#session, Boolean(options.seal));
    const { expires, lifetime, readKeys, writeKeys, ...rest } = options, ends = endOf(options);
    const op = this.do("share", {
      ref: ref.id, hash: ref.hashText, ...rest, ...(ends !== undefined && { expires_at: ends }), ...(lifetime !== undefined && { expires_in: lifetime }),
      ...(readKeys && { read_keys: readKeys }), ...(writeKeys && { write_keys: writeKeys }),
    });
    return { ref, op };
  }

  /** Revokes a ref, by its id, and all refs made from it; its result has the "cut". */
  revoke(ref: Now<string> | Ref): Promised {
    return this.do("revoke", { ref: typeof ref === "object" && "id" in ref ? ref.id : ref });
  }

  /** Revokes every share of the session; owners' refs stay. */
  bumpEpoch(): Promised {
    return this.do("bumpEpoch");
  }

  /** Removes every payload of a key from log and state, for good; only an owner's ref may. */
  purge(key: Now<string>): Promised {
    return this.do("purge", { key });
  }

  /**
   * Hides a message or part (message/ID or part/MESSAGE/ID) and all messages after it in the session's order, with their parts and turns, for
   * everybody, until unrevert. Open turns among them end as aborted. The next new message or begun turn settles it: what is hidden leaves
   * the state. It takes the right revert, and a ref that shows all of the session. The result has "to".
   */
  revert(to: Now<string>): Promised {
    return this.do("revert", { to });
  }

  /** revert to the first message that was put after a cursor; rejected in a session that is ordered by time. */
  revertAfter(cursor: Now<number>): Promised {
    return this.do("revert", { cursor });
  }

  /** Shows again what revert has hidden; rejected (not_reverted) if nothing is hidden, or something new was said since. */
  unrevert(): Promised {
    return this.do("unrevert");
  }

  /**
   * Says that a message (message/ID) is the summary of another and all messages before it in the session's order: the compacted view
   * (snapshot with compacted) has it in their place, everyone else is shown everything. The summary is upto or a later message, and its turn
   * has ended. Another compact moves the mark, and removing the summary ends it. It takes the right compact, and a ref that shows all of the
   * session.
   */
  compact(upto: Now<string>, summary: Now<string>): Promised {
    return this.do("compact", { upto, summary });
  }

  /** Ends the session, with all refs to it, for good; only an owner's ref may. */
  delete(): Promised {
    return this.do("delete");
  }

  /**
   * Makes the batch durable, with or without a server, and returns its ticket. A batch that could never apply is refused here,
   * and nothing is stored. Committing it again changes nothing.
   */
  async commit(): Promise<Ticket> {
    const batch: NewBatch = { id: this.#id, session: this.#session, via: this.#via.id, held: this.source ? [this.#via, this.source] : [this.#via], atomic: this.#atomic, ops: [...this.#ops] };
    if (batch.ops.length === 0) throw fault("usage", "the batch has no ops");
    const lim = this.#home.limits();
    for (const [i, op] of batch.ops.entries()) {
      try {
        const intent = { ...op, id: op.id! };
        checkIntent(intent, lim);
        checkOp(intent);
      } catch (err) {
        if (err instanceof MooringError) throw fault(err.codeName, `op ${i + 1} (${op.method}): ${err.reason}`, err.at);
        throw err;
      }
    }
    checkSize(batch.ops.map((op) => ({ ...op, id: op.id! })), lim);
    // The ref is stored before its batch: a ref without a session is harmless.
    if (this.#owner) await this.#home.outbox.putRef(this.#owner.ref, this.#owner.meta);
    const made = await this.#home.outbox.commit(batch);
    return this.#home.ticket(made.batch, this.#session, made.ops);
  }
}

/** The outcomes of a batch's ops, in order. */
export class Results {
  constructor(readonly outcomes: readonly Outcome[], readonly batch: string) {}

  /** The first refusal, undefined if every op applied. */
  get error(): MooringError | undefined {
    for (const o of this.outcomes) {
      const err = outcomeError(o, this.batch);
      if (err) return err;
    }
    return undefined;
  }

  /** Throws the first refusal. */
  check(): this {
    if (this.error) throw this.error;
    return this;
  }

  /** The outcome of one op; not_found if it is not of this batch. */
  of(op: Promised | string): Outcome {
    const id = typeof op === "string" ? op : op.opID;
    const o = this.outcomes.find((o) => o.op === id);
    if (!o) throw fault("not_found", `op ${id} is not of this batch`);
    return o;
  }

  /** One op's result. If the op did not apply, the error says why. */
  get(op: Promised | string): Record<string, unknown> {
    const o = this.of(op), err = outcomeError(o, this.batch);
    if (err) throw err;
    return JSON.parse(o.result) as Record<string, unknown>;
  }
}

/** The name of a durable batch. Its id can be stored and given to Client.ticket in any later process, for 30 days. */
export class Ticket {
  readonly #outbox: Outbox;

  constructor(outbox: Outbox, readonly batch: string, readonly session: string = "", readonly ops: readonly string[] = []) {
    this.#outbox = outbox;
  }

  /**
   * Waits until every op of the batch has its outcome. It throws errors of waiting only (canceled, not_found, a Standstill
   * if nothing more of the session is sent until someone decides); refusals of ops are in the results.
   */
  async wait(options: { signal?: AbortSignal } = {}): Promise<Results> {
    return new Results(await this.#outbox.wait(this.batch, options.signal), this.batch);
  }
}
