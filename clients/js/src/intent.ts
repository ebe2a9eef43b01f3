// Op intents and their outcomes, as they are sent and stored, and the checks before sending: the server runs
// the same ones, but records a rejection where commit here throws.

import { clip, codeNameOf, fault, MooringError, type CodeName } from "./fault.js";
import { isJSON, isWellFormed, skipSpace, skipValue } from "./jsontext.js";
import { byteLength } from "./text.js";
import { isULID } from "./ulid.js";

/** The result of an earlier op: path is a dot-separated way into its object, "" the whole. */
export interface OpRef {
  readonly op: string;
  readonly path: string;
}

/** A named argument: JSON text, kept byte for byte, or a reference to an earlier result. */
export type Arg = { readonly name: string } & ({ readonly json: string; readonly ref?: never } | { readonly ref: OpRef; readonly json?: never });

/** An op's expected_cursor: a number, or a reference to an earlier result that is one. */
export type Expect = { readonly cursor: number; readonly ref?: never } | { readonly ref: OpRef; readonly cursor?: never };

/** An op intent without its position in a stream. */
export interface Intent {
  readonly id: string;
  readonly method: string;
  readonly args: readonly Arg[];
  readonly dependsOn?: readonly string[] | undefined;
  readonly expected?: Expect | undefined;
}

/** create's arguments that are hints. */
const ofCreate: ReadonlySet<string> = new Set(["order", "origin", "origin_at", "origin_message"]);

/**
 * Takes the hints out of an op's arguments: those that older servers may leave out and that travel beside the
 * others. A lifetime is a hint only beside a time: if a server left it out alone, the ref would live for ever.
 */
export function hintsOf(method: string, args: readonly Arg[]): { args: readonly Arg[]; hints: readonly Arg[] } {
  const timed = args.some((a) => a.name === "expires_at");
  const hint = (a: Arg): boolean =>
    a.ref === undefined && (a.name === "at_hash" || (a.name === "expires_in" && timed) || (ofCreate.has(a.name) && method === "create"));
  const hints = args.filter(hint);
  return hints.length === 0 ? { args, hints } : { args: args.filter((a) => !hint(a)), hints };
}

/** The status of an op. pruned: its record is gone. */
export type Status = "applied" | "skipped" | "denied" | "conflict" | "rejected" | "voided" | "batch_aborted" | "pruned";

const statuses: readonly Status[] = ["pruned", "applied", "skipped", "denied", "conflict", "rejected", "voided", "batch_aborted"];

/** The record of one op, the same for every repeat. */
export interface Outcome {
  readonly op: string;
  readonly status: Status;
  /** Why, where the status is not applied. */
  readonly reason: CodeName;
  readonly message: string;
  readonly cursor: number;
  /** Applied: the JSON text of the result, which references read. */
  readonly result: string;
  /** The op because of which this one was skipped or aborted. */
  readonly cause: string;
  readonly at: number;
}

/** The outcome in the wire's form. */
export function outcomeOf(v: unknown): Outcome {
  const o = (v ?? {}) as Record<string, unknown>;
  const s = o["status"];
  const status = typeof s === "string" ? (s === "" ? "pruned" : (s as Status)) : statuses[Number(s ?? 0)];
  if (typeof o["op"] !== "string" || status === undefined) throw fault("incompatible", "the server gave an outcome that this client does not know");
  return {
    op: o["op"], status, reason: codeNameOf(o["reason"]), message: String(o["message"] ?? ""), cursor: Number(o["cursor"] ?? 0),
    result: String(o["result"] ?? ""), cause: String(o["cause"] ?? ""), at: Number(o["at"] ?? 0),
  };
}

/** Why an op of a batch did not apply, as an error; undefined if it did. Its cause is the status where reason and status differ. */
export function outcomeError(o: Outcome, batch: string): MooringError | undefined {
  if (o.status === "applied") return undefined;
  const reason = o.reason === "none" ? o.status : o.reason;
  const at = o.status === "conflict" ? o.cursor : o.at;
  return new MooringError(reason, o.status === reason ? o.message : `${o.status}: ${o.message}`, { at, batch });
}

/** Limits bound what one batch may carry; bytes are those of the arguments' JSON text. */
export interface Limits {
  batchOps: number;
  batchBytes: number;
  payloadBytes: number;
}

/** A server's default limits. */
export const defaultLimits: Limits = { batchOps: 1000, batchBytes: 8 << 20, payloadBytes: 4 << 20 };

const maxArgs = 64;
const maxDependsOn = 1000;
const maxName = 64;
const maxPath = 256;
const maxOutside = 1000;

/** Every (op, path) that an intent refers to, in the order of lookup. */
export function references(in_: Intent): OpRef[] {
  const refs = in_.args.flatMap((a) => (a.ref ? [a.ref] : []));
  if (in_.expected?.ref) refs.push(in_.expected.ref);
  return refs;
}

/** The ops that an intent depends on or refers to. */
export const needs = (in_: Intent): string[] => [...(in_.dependsOn ?? []), ...references(in_).map((r) => r.op)];

/** Throws too_large for ops that exceed the bounds of one batch. */
export function checkSize(ops: readonly Intent[], lim: Limits): void {
  if (ops.length > lim.batchOps) {
    throw fault("too_large", `the batch has ${ops.length} ops, the limit is ${lim.batchOps}: commit smaller batches`);
  }
  const outside = new Set(ops.flatMap(needs));
  for (const op of ops) outside.delete(op.id);
  if (outside.size > maxOutside) {
    throw fault("too_large", `the batch refers to ${outside.size} ops of other batches, the limit is ${maxOutside}: commit smaller batches`);
  }
  let bytes = 0;
  for (const op of ops) for (const a of op.args) if (a.json !== undefined) bytes += byteLength(a.json);
  if (bytes > lim.batchBytes) {
    throw fault("too_large", `the batch has ${bytes} bytes of arguments, the limit is ${lim.batchBytes}: commit smaller batches`);
  }
}

/** Throws malformed, too_large or bad_reference for an intent that could not be decoded. */
export function checkIntent(in_: Intent, lim: Limits): void {
  if (!goodName(in_.method)) throw fault("malformed", `the method's name is empty or longer than ${maxName} bytes`);
  if (in_.args.length > maxArgs) throw fault("too_large", `${in_.args.length} arguments, the limit is ${maxArgs}`);
  if ((in_.dependsOn?.length ?? 0) > maxDependsOn) {
    throw fault("too_large", `${in_.dependsOn!.length} ops in depends_on, the limit is ${maxDependsOn}`);
  }
  const seen = new Set<string>();
  for (const a of in_.args) {
    if (!goodName(a.name)) throw fault("malformed", `an argument's name is empty or longer than ${maxName} bytes`);
    if (seen.has(a.name)) throw fault("malformed", `argument ${JSON.stringify(a.name)} is given twice`);
    seen.add(a.name);
    if (a.json === undefined) continue;
    const n = byteLength(a.json);
    if (n > lim.payloadBytes) throw fault("too_large", `argument ${JSON.stringify(a.name)} has ${n} bytes, the limit is ${lim.payloadBytes}`);
    if (!isJSON(a.json)) throw fault("malformed", `argument ${JSON.stringify(a.name)} is not JSON text`);
  }
  for (const id of in_.dependsOn ?? []) if (!isULID(id)) throw fault("bad_reference", "depends_on has an element that is not an op id");
  for (const r of references(in_)) {
    if (!isULID(r.op)) throw fault("bad_reference", "a reference does not name an op id");
    if (typeof r.path !== "string" || byteLength(r.path) > maxPath) {
      throw fault("bad_reference", `the path of a reference to op ${r.op} is longer than ${maxPath} bytes`);
    }
  }
}

const goodName = (s: unknown): boolean => typeof s === "string" && s !== "" && byteLength(s) <= maxName && isWellFormed(s);

/**
 * The JSON text at a path in a result, byte for byte: a walk through objects by key and arrays by index, "" the whole.
 * undefined if nothing is there.
 */
export function resolvePath(result: string, path: string): string | undefined {
  let at = result.trim();
  if (path === "") return at === "" ? undefined : at;
  for (const step of path.split(".")) {
    const next = child(at, step);
    if (next === undefined) return undefined;
    at = next;
  }
  return at;
}

/** The text of an object's field or an array's element. text is JSON. */
function child(text: string, step: string): string | undefined {
  const object = text[0] === "{";
  if (!object && text[0] !== "[") return undefined;
  if (!object && !/^(0|[1-9]\d{0,9})$/.test(step)) return undefined;
  let i = skipSpace(text, 1), n = 0;
  while (i < text.length && text[i] !== "}" && text[i] !== "]") {
    let key = String(n++);
    if (object) {
      const end = skipValue(text, i);
      key = JSON.parse(text.slice(i, end)) as string;
      i = skipSpace(text, skipSpace(text, end) + 1); // the colon
    }
    const end = skipValue(text, i);
    if (key === step) return text.slice(i, end);
    i = skipSpace(text, end);
    if (text[i] === ",") i = skipSpace(text, i + 1);
  }
  return undefined;
}

/** JSON text, kept byte for byte, in place of a value. */
export class JSONText {
  constructor(readonly text: string) {}
}

/** Marks a text as JSON text, which is sent byte for byte instead of as a string. */
export const jsonText = (text: string): JSONText => new JSONText(text);

const isReference = (value: unknown): value is { opRef: OpRef } => typeof value === "object" && value !== null && "opRef" in value;

/** A name for values that may only be a whole argument, not a part of one; undefined for all others. */
function wholeOnly(value: unknown): string | undefined {
  if (isReference(value) && typeof (value.opRef as OpRef | undefined)?.op === "string") return "refers to another op's result: a reference";
  if (value instanceof JSONText) return "is JSON text: a jsonText";
  if (value instanceof Promise) return "is a promise: await it; one";
  return undefined;
}

/** The JSON text of a value. Throws bad_reference, with the path, for a reference or a promise inside it, which JSON.stringify would treat as a plain object. */
function stringify(name: string, value: unknown): string | undefined {
  const paths = new Map<unknown, string>();
  return JSON.stringify(value, function (this: unknown, key: string, v: unknown) {
    if (typeof v !== "object" || v === null) return v;
    const parent = paths.get(this);
    const path = parent === undefined ? name : Array.isArray(this) ? `${parent}[${key}]` : `${parent}.${key}`;
    const wrong = wholeOnly(v);
    if (wrong) throw fault("bad_reference", `${clip(path)} ${wrong} can only be a whole argument, not a part of its value`);
    paths.set(v, path);
    return v;
  });
}

/** Makes an argument of a value, JSON text or a reference. Throws bad_argument for values that JSON cannot express, and bad_reference for a reference inside a value. */
export function argOf(name: string, value: unknown): Arg {
  if (value instanceof JSONText) return { name, json: value.text };
  if (isReference(value)) return { name, ref: { op: value.opRef.op, path: value.opRef.path } };
  let json: string | undefined;
  try {
    json = stringify(name, value);
  } catch (err) {
    if (err instanceof MooringError) throw err;
    throw fault("bad_argument", `${clip(name)} cannot be written as JSON: ${err instanceof Error ? err.message : String(err)}`);
  }
  if (json === undefined) throw fault("bad_argument", `${clip(name)} cannot be written as JSON`);
  return { name, json };
}
