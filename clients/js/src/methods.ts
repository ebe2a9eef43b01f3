// The methods of ops, their arguments, and the checks of values that could never be right, which commit refuses
// at once. The server checks arguments that are references.

import { clip, fault } from "./fault.js";
import type { Arg, Intent } from "./intent.js";
import { idRule, isID, isOwnKey, keyKind } from "./key.js";
import { isOffline, isSession, targetOf } from "./ref.js";
import { byteLength, fromBase64url } from "./text.js";

const labelBytes = 256;
const maxParts = 10_000;

type Check = (name: string, value: unknown, json: string) => void;
interface Param {
  readonly must: boolean;
  readonly check: Check | undefined; // undefined: any JSON, null too
}

const bad = (reason: string): never => {
  throw fault("bad_argument", reason);
};

const halfCharacter = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/;
const anyText: Check = (name, v) => {
  if (typeof v !== "string") bad(`${name} is not a string`);
};
const text: Check = (name, v) => {
  anyText(name, v, "");
  const s = v as string;
  if (byteLength(s) > labelBytes) throw fault("too_large", `${name} has ${byteLength(s)} bytes, the limit is ${labelBytes}`);
  // eslint-disable-next-line no-control-regex
  if (/[\u0000-\u001f\u007f-\u009f\ufffd]/.test(s) || halfCharacter.test(s)) bad(`${name} has control characters or invalid ones`);
};
const full: Check = (name, v, json) => {
  text(name, v, json);
  if (v === "") bad(`${name} is empty`);
};
const id: Check = (name, v, json) => {
  full(name, v, json);
  if (!isID(v as string)) throw fault("bad_key", `${name}: ${JSON.stringify(clip(v as string))} is not an id: ${idRule}`);
};
const key: Check = (name, v) => {
  anyText(name, v, "");
  keyKind(v as string);
};
const writtenKey: Check = (name, v, json) => {
  key(name, v, json);
  if (keyKind(v as string) === "request") throw fault("bad_key", `${JSON.stringify(clip(v as string))}: requests are changed by ask, claim, release, answer and withdraw alone`);
};
const partKey: Check = (name, v) => {
  anyText(name, v, "");
  if (keyKind(v as string) !== "part") throw fault("bad_key", "text can be appended to a part only: part/MESSAGE/ID");
};
const ownKey = (method: string): Check => (name, v) => {
  key(name, v, "");
  if (!isOwnKey(v as string)) {
    throw fault("bad_key", `${method} changes values of your own kinds alone (todo/1, plan): ${JSON.stringify(clip(v as string))} has rules of its own, put it whole`);
  }
};
const member: Check = (name, v) => {
  if (typeof v !== "string" || halfCharacter.test(v)) bad(`${name} is not the name of a member: a string of whole characters`);
  const bytes = byteLength(v as string);
  if (bytes > labelBytes) throw fault("too_large", `${name} has ${bytes} bytes, the limit is ${labelBytes}`);
};
const streamed: Check = (name, v, json) => {
  anyText(name, v, json);
  if (halfCharacter.test(v as string)) {
    bad(`${name} ends or begins in the middle of a character (half a surrogate pair): send whole ones`);
  }
};
const object: Check = (name, v) => {
  if (v === null || typeof v !== "object" || Array.isArray(v)) throw fault("bad_payload", `${name} is not a JSON object`);
};
const number: Check = (name, _, json) => {
  if (!/^\s*(0|[1-9]\d*)\s*$/.test(json) || BigInt(json) > 2n ** 53n) bad(`${name} is not a whole number from 0 to 2^53`);
};
const integer: Check = (name, v, json) => {
  if (!/^\s*-?(0|[1-9]\d*)\s*$/.test(json) || !Number.isSafeInteger(v)) bad(`${name} is not a whole number from -(2^53-1) to 2^53-1`);
};
const schema: Check = (name, v, json) => {
  number(name, v, json);
  if ((v as number) < 1 || (v as number) > 0x7fffffff) bad(`${name} is from 1 to ${0x7fffffff}`);
};
const texts: Check = (name, v) => {
  if (!Array.isArray(v) || v.length > 64 || !v.every((e) => typeof e === "string")) bad(`${name} is not a list of at most 64 names`);
};
const rights: Check = (name, v, json) => {
  texts(name, v, json);
  const known = ["read", "append", "share", "revoke", "create", "list", "break", "schema", "manage", "revert", "compact", "ask", "answer"];
  if ((v as string[]).length === 0 || !(v as string[]).every((r) => known.includes(r))) bad(`${name}: name some of read, append, share, revoke, break, schema, revert, compact, ask, answer`);
};
/** The rights that a ref can have in children. */
const inChildren = ["read", "append", "break", "schema", "revert", "compact", "ask", "answer"];
const childRights: Check = (name, v, json) => {
  texts(name, v, json);
  if ((v as string[]).length === 0 || !(v as string[]).every((r) => inChildren.includes(r))) bad(`${name}: name some of ${inChildren.join(", ")}`);
};
const appending = ["add", "appendText", "begin", "claim", "finalize", "patch", "put", "release", "remove"];
const methodNames: Check = (name, v, json) => {
  texts(name, v, json);
  if ((v as string[]).length === 0 || !(v as string[]).every((m) => appending.includes(m))) bad(`${name}: name some of those that append needs: ${appending.join(", ")}`);
};
/** Checks a list of keys: one that ends in "/" covers all below it, any other exactly that key. */
export function checkKeys(name: string, v: unknown): void {
  if (!Array.isArray(v) || v.length === 0 || v.length > 16) bad(`${name} is a list of 1 to 16 keys: leave it out for no limit`);
  for (const k of v as unknown[]) {
    if (typeof k !== "string" || k.length > 512 || !/^[a-z][a-z0-9_-]{0,63}(\/[A-Za-z0-9_.:@+-]+)*\/?$/.test(k)) {
      bad(`${name}: ${JSON.stringify(clip(String(k)))} is neither a key nor a prefix: it begins with a kind (a to z, digits, _ and -, the first a letter) and has up to 512 letters, digits and _.:@+-/, as in todo/1, or todo/ for all below it`);
    }
  }
}
const keyList: Check = (name, v) => checkKeys(name, v);
const idOrNone: Check = (name, v, json) => {
  text(name, v, json);
  if (v !== "") id(name, v, json);
};
const refID: Check = (name, v, json) => {
  full(name, v, json);
  if (targetOf(v as string) === "") bad(`${name} is not a ref's id`);
};
const newRef: Check = (name, v, json) => {
  refID(name, v, json);
  if (!isOffline(v as string)) bad("the new ref's id is not one that a client makes: derive it from the ref's secret");
};
const session: Check = (name, v, json) => {
  full(name, v, json);
  if (!isSession(v as string)) bad(`${name} is not a session id`);
};
const hash: Check = (name, v, json) => {
  full(name, v, json);
  if (fromBase64url(v as string)?.length !== 32) bad(`${name} is not a SHA-256 in unpadded base64url`);
};
const sealKey: Check = (name, v, json) => {
  text(name, v, json);
  if (v !== "" && fromBase64url(v as string)?.length !== 32) bad(`${name} is an Ed25519 public key: 43 characters of base64url`);
};
const redemptions: Check = (name, v, json) => {
  number(name, v, json);
  if ((v as number) > 2 ** 31) bad(`${name} is at most ${2 ** 31}`);
};
const status: Check = (name, v, json) => {
  full(name, v, json);
  if (!["completed", "failed", "aborted"].includes(v as string)) bad(`status is ${JSON.stringify(clip(v as string))}: use completed, failed or aborted`);
};
const parts: Check = (name, v) => {
  const seen = new Set<unknown>();
  const wrong = () => bad(`${name} is not a list of {"id", "payload", "schema_version"}, each id once`);
  if (!Array.isArray(v)) wrong();
  if ((v as unknown[]).length > maxParts) throw fault("too_large", `${name} has more than ${maxParts} parts: put the others before the turn ends`);
  for (const p of v as unknown[]) {
    if (p === null || typeof p !== "object" || Array.isArray(p)) wrong();
    const o = p as Record<string, unknown>;
    if (Object.keys(o).some((k) => k !== "id" && k !== "payload" && k !== "schema_version") || seen.has(o["id"])) wrong();
    seen.add(o["id"]);
    id(name, o["id"], "");
    object(name, o["payload"], "");
  }
};

const ownPrefix: Check = (name, v) => {
  const s = v as string;
  if (typeof v !== "string") bad(`${name} is not a string`);
  if (!s.endsWith("/") || !isOwnKey(s + "1")) {
    throw fault("bad_key", `prefix: ${JSON.stringify(clip(s))} is not the beginning of keys of your own kinds: use KIND/ or KIND/ID/, as in todo/`);
  }
};
const lease: Check = (name, v, json) => {
  number(name, v, json);
  if ((v as number) < 1000 || (v as number) > 3600000) bad(`lease is from 1000 to 3600000 milliseconds`);
};
const worker: Check = (name, v, json) => {
  text(name, v, json);
  const bytes = byteLength(v as string);
  if (bytes > 64) throw fault("too_large", `worker has ${bytes} bytes, the limit is 64`);
};

const isKind = (s: string): boolean => /^[a-z][a-z0-9_-]{0,63}$/.test(s);
const requestKind: Check = (name, v, json) => {
  full(name, v, json);
  if (!isKind(v as string)) bad(`kind is ${JSON.stringify(clip(v as string))}: use prompt, stop, permission, question or one of your own, of a to z, digits, _ and - (the first a letter)`);
};
const expiresIn: Check = (name, v, json) => {
  number(name, v, json);
  if ((v as number) < 1000 || (v as number) > 2_592_000_000) bad("expires_in is from 1000 to 2592000000 milliseconds");
};
const choices: Check = (name, v) => {
  const wrong = () => bad(`${name} is not a list of 1 to 32 {"id", …}, each id once and of at most 64 bytes`);
  if (!Array.isArray(v) || v.length === 0 || v.length > 32) wrong();
  const seen = new Set<string>();
  for (const c of v as unknown[]) {
    const id: unknown = c !== null && typeof c === "object" && !Array.isArray(c) ? (c as { id?: unknown }).id : undefined;
    // eslint-disable-next-line no-control-regex
    if (typeof id !== "string" || id === "" || byteLength(id) > 64 || /[\u0000-\u001f\u007f-\u009f\ufffd]/.test(id) || halfCharacter.test(id) || seen.has(id)) wrong();
    seen.add(id as string);
  }
};
const endState: Check = (name, v, json) => {
  text(name, v, json);
  if (!["", "answered", "unknown"].includes(v as string)) bad(`state is ${JSON.stringify(clip(v as string))}: leave it out, or say unknown for what was handed over and may have been done`);
};
/** Checks the kinds of requests that a ref is limited to, if its rights are known. */
function checkKinds(op: NamedOp): void {
  const own = argValue(op, "rights");
  for (const name of ["ask", "answer"]) {
    const list = argValue(op, name);
    if (!Array.isArray(list) || !Array.isArray(own)) continue;
    if (list.length === 0 || list.length > 16) bad(`${name} names ${list.length} kinds of requests and names 1 to 16: leave it out for all`);
    if (!own.includes(name)) bad(`${name} limits the right ${name}, which the new ref does not carry: add it, or leave ${name} out`);
    for (const k of list as string[]) {
      if (!isKind(k)) bad(`${name}: ${JSON.stringify(clip(k))} is not a kind of requests: prompt, stop, permission, question or one of your own, of a to z, digits, _ and - (the first a letter)`);
    }
  }
}

const flag: Check = (name, v) => {
  if (v !== true) bad(`${name} is true, or is left out`);
};

const must = (check: Check): Param => ({ must: true, check });
const may = (check: Check): Param => ({ must: false, check });
const anything: Param = { must: true, check: undefined };

const order: Check = (name, v, json) => {
  text(name, v, json);
  if (v !== "" && v !== "time") bad(`order is "time" for a session in the order of its messages' times, or nothing for that of its log`);
};

const messageKey: Check = (name, v, json) => {
  if (v === "") return;
  key(name, v, json);
  if (!/^(message|part)\//.test(v as string)) throw fault("bad_key", `${name}: ${JSON.stringify(clip(v as string))} is not the key of a message or part: message/ID or part/MESSAGE/ID`);
};
const revertKey: Check = (name, v, json) => {
  key(name, v, json);
  if (!/^(message|part)\//.test(v as string)) throw fault("bad_key", "a session is reverted to a message or a part: message/ID or part/MESSAGE/ID");
};

const compactKey: Check = (name, v, json) => {
  key(name, v, json);
  if (!/^message\//.test(v as string)) throw fault("bad_key", "a session is compacted up to a message, with a message as the summary: message/ID");
};

const creation = { external: may(text), ref: must(newRef), hash: must(hash), label: may(text), actor: may(text) };

const methods: Record<string, Record<string, Param>> = {
  create: { ...creation, parent: may(session), part: may(messageKey), via: may(refID), order: may(order), origin: may(session), origin_at: may(number), origin_message: may(idOrNone), shared_external: may(flag) },
  fork: { ...creation, source: must(session), via: must(refID), at: may(number), at_hash: may(text), message: may(idOrNone) },
  put: { key: must(writtenKey), payload: must(object), schema_version: may(schema), expect: may(number), claim: may(number), sync: may(flag) },
  remove: { key: must(writtenKey), expect: may(number), claim: may(number), sync: may(flag) },
  patch: { key: must(ownKey("patch")), patch: anything, schema_version: may(schema), expect: may(number), claim: may(number) },
  add: { key: must(ownKey("add")), member: must(member), by: must(integer), expect: may(number), claim: may(number) },
  claim: { key: may(ownKey("claim")), prefix: may(ownPrefix), request: may(id), lease: must(lease), worker: may(worker) },
  release: { key: may(ownKey("release")), request: may(id), claim: must(number) },
  ask: { request: must(id), kind: must(requestKind), message: may(idOrNone), payload: { must: false, check: undefined }, choices: may(choices), expires_in: may(expiresIn) },
  answer: {
    request: must(id), choice: may(text), shown: may(text), reason: may(text), payload: { must: false, check: undefined }, claim: may(number), state: may(endState),
  },
  withdraw: { request: must(id), reason: may(text) },
  begin: { message: must(id), payload: must(object), schema_version: may(schema) },
  appendText: { key: must(partKey), offset: must(number), text: must(streamed) },
  finalize: {
    message: must(id), status: must(status), payload: may(object), schema_version: may(schema), parts: may(parts),
    usage: may(object), error: may(object), completed: may(number),
  },
  share: {
    ref: must(newRef), hash: must(hash), rights: must(rights), methods: may(methodNames), message: may(text), label: may(text),
    actor: may(text), seal: may(sealKey), expires_at: may(number), expires_in: may(number), from: may(number), redemptions: may(redemptions),
    read_keys: may(keyList), write_keys: may(keyList), ask: may(texts), answer: may(texts), children: may(childRights), public: may(flag),
  },
  revoke: { ref: must(refID) },
  bumpEpoch: {},
  revert: { to: may(revertKey), cursor: may(number) },
  unrevert: {},
  compact: { upto: must(compactKey), summary: must(compactKey) },
  purge: { key: must(key) },
  delete: {},
};

/** The names of all methods, sorted. */
export const methodList: readonly string[] = Object.keys(methods).sort();

/** Whether a method makes the session that its batch is for. */
export const creates = (method: string): boolean => method === "create" || method === "fork";

/** put's parameters for a value of its users' kinds. */
const putOwn = { ...methods["put"], payload: anything };

/** Throws unknown_method, bad_argument, bad_key, bad_payload or too_large for an op that could never apply. */
export function checkOp(op: Intent): void {
  let params = Object.hasOwn(methods, op.method) ? methods[op.method]! : undefined;
  if (params === undefined) {
    throw fault("unknown_method", `there is no method ${JSON.stringify(clip(op.method))}: use one of ${methodList.join(", ")}`);
  }
  if (op.method === "put" && hasOwnKey(op)) params = putOwn;
  const given = new Map<string, Arg>(op.args.map((a) => [a.name, a]));
  for (const [name, p] of Object.entries(params)) {
    const a = given.get(name);
    if (a?.ref || (a && p.check === undefined)) continue;
    const value: unknown = a?.json === undefined ? null : JSON.parse(a.json);
    if (value !== null) p.check!(name, value, a!.json!);
    else if (p.must) bad(`${op.method} needs ${name}`);
  }
  const named = (...names: string[]): number =>
    names.filter((name) => given.get(name)?.ref || (given.get(name)?.json?.trim() ?? "null") !== "null").length;
  if (op.method === "claim") {
    if (named("key", "prefix", "request") === 0) bad("claim needs key or prefix or request");
    if (named("key", "prefix", "request") > 1) bad("claim takes a key, a prefix for the first free key below it, or a request, and one of them alone");
  }
  if (op.method === "release") {
    if (named("key", "request") === 0) bad("release needs key");
    if (named("key", "request") === 2) bad("release takes a key or a request, and not both");
  }
  if (op.method === "ask" && argValue(op, "kind") === "stop" && named("message") === 0) bad("a stop names the turn that it stops: message is the id of its message");
  if (op.method === "answer") {
    const unknown = argValue(op, "state") === "unknown";
    if (unknown && named("choice", "payload", "shown") > 0) bad("what ends as unknown has no answer: leave choice, payload and shown out");
    if (!unknown && named("reason") === 1 && !given.get("state")?.ref) bad("reason says why a request ends as unknown: an answer's own words are its payload");
  }
  if (op.method === "revert") {
    if (named("to", "cursor") === 0) bad("revert needs to or cursor");
    if (named("to", "cursor") === 2) bad("revert takes the message or part to revert to, or a cursor, and not both");
  }
  if (op.method === "create") {
    const has = (name: string): boolean => Boolean(given.get(name)?.ref) || (given.get(name)?.json?.trim() ?? "null") !== "null";
    if (has("parent") && !has("via")) bad("create needs via");
    if (has("origin") && !has("origin_at")) bad("create needs origin_at");
    if (!has("origin") && (has("origin_at") || has("origin_message"))) bad("create needs origin, to which origin_at and origin_message belong");
    if (!has("parent") && (has("via") || has("part"))) bad("create needs parent, to which via and part belong");
  }
  if (op.method === "share" && given.get("children")?.json !== undefined && named("children") === 1) {
    const children = argValue(op, "children") as string[], own = argValue(op, "rights");
    const lacks = Array.isArray(own) ? inChildren.filter((r) => children.includes(r) && !own.includes(r)) : [];
    if (lacks.length > 0) bad(`children: in children the ref would carry ${lacks.join(",")}, which it does not carry itself: add it to its rights, or leave it out`);
    const others = ["message", "from", "read_keys", "write_keys"].filter((name) => {
      const v = argValue(op, name);
      return v !== undefined && v !== null && v !== "" && !(name === "from" && (v as number) <= 1);
    });
    if (others.length > 0) bad(`children and ${others.join(", ")} exclude each other: what these name is of one session alone`);
  }
  if (op.method === "share") checkKinds(op);
  if (op.method === "share" && named("public") === 1 && !given.get("public")?.ref) {
    const own = argValue(op, "rights");
    const limited = ["seal", "redemptions"].some((name) => ![undefined, null, "", 0].includes(argValue(op, name) as never));
    if (limited || (Array.isArray(own) && own.some((r) => r !== "read"))) {
      bad("a public ref carries read and nothing else, is sealed to no key and has no limit of redemptions: a reader does not redeem it");
    }
  }
  for (const name of given.keys()) {
    if (!Object.hasOwn(params, name)) {
      const takes = Object.keys(params).sort().join(", ") || "nothing";
      bad(`${op.method} has no argument ${JSON.stringify(clip(name))}; it takes ${takes}`);
    }
  }
}

/** Checks limits that are given, by the names of the op share's arguments, as that op's are checked. */
export function checkLimits(limits: Readonly<Record<string, unknown>>): void {
  for (const [name, value] of Object.entries(limits)) {
    if (value !== undefined) methods["share"]![name]!.check!(name, value, JSON.stringify(value) ?? "");
  }
}

/** The features that a reader of sessions needs (keys): those of ops that change them so that an older reader misreads them. */
export const features: readonly string[] = ["keys", "revert", "compact", "requests"];

/** Rights that came with the feature keys. */
const laterRights: readonly string[] = ["break", "schema"];

/** The features of a server that ops need: an older one would reject them for good. A reference in place of a key counts as needing none: the server decides it when its value is known. */
export function featuresOf(ops: readonly NamedOp[]): readonly string[] {
  const forks = ops.some((op) => op.method === "fork" && op.args?.some((a) => a.name === "message"));
  const bears = ops.some((op) => op.method === "create" && op.args?.some((a) => a.name === "parent"));
  const reverts = ops.some((op) => op.method === "revert" || op.method === "unrevert" || (op.method === "share" && hasRight(op, "revert")));
  const compacts = ops.some((op) => op.method === "compact" || (op.method === "share" && hasRight(op, "compact")));
  const reaches = ops.some((op) => op.method === "share" && op.args?.some((a) => a.name === "children"));
  const asks = ops.some((op) => aboutRequest(op) || (op.method === "share" && (hasRight(op, "ask") || hasRight(op, "answer") || op.args?.some((a) => a.name === "ask" || a.name === "answer"))));
  const has = (op: NamedOp, name: string): boolean => op.args?.some((a) => a.name === name) === true;
  const syncs = ops.some((op) => ((op.method === "put" || op.method === "remove") && has(op, "sync")) || (op.method === "share" && has(op, "public")) || (op.method === "create" && has(op, "shared_external")));
  return [...(ops.some(needsKeys) ? ["keys"] : []), ...(forks ? ["fork"] : []), ...(bears ? ["children"] : []), ...(reverts ? ["revert"] : []), ...(compacts ? ["compact"] : []), ...(reaches ? ["reach"] : []), ...(asks ? ["requests"] : []), ...(syncs ? ["sync"] : [])];
}

/** An op's method and arguments, as they are stored and sent. */
type NamedOp = { readonly method: string; readonly args?: readonly Arg[] };

function hasRight(op: NamedOp, right: string): boolean {
  const given = argValue(op, "rights");
  return Array.isArray(given) && given.includes(right);
}

/** Whether an op is about a request. */
function aboutRequest(op: NamedOp): boolean {
  return ["ask", "answer", "withdraw"].includes(op.method) || (["claim", "release"].includes(op.method) && op.args?.some((a) => a.name === "request") === true);
}

function needsKeys(op: NamedOp): boolean {
  if (aboutRequest(op)) return false;
  const has = (name: string): boolean => op.args?.some((a) => a.name === name) === true;
  switch (op.method) {
    case "patch": case "add": case "claim": case "release":
      return true;
    case "put": case "remove": case "purge":
      return has("expect") || has("claim") || hasOwnKey(op);
    case "share": {
      const names = argValue(op, "methods");
      return has("read_keys") || has("write_keys") || (Array.isArray(names) && ["patch", "add", "claim", "release"].some((name) => names.includes(name))) ||
        laterRights.some((r) => hasRight(op, r));
    }
  }
  return false;
}

/** Whether an op's key is of its users' kinds, or their schema. */
function hasOwnKey(op: NamedOp): boolean {
  const text = argValue(op, "key");
  return typeof text === "string" && isOwnKey(text, ["own", "schema"]);
}

/** The value of an argument; undefined if it has none, or that is a reference. */
function argValue(op: NamedOp, name: string): unknown {
  const json = op.args?.find((a) => a.name === name)?.json;
  return json === undefined ? undefined : JSON.parse(json);
}
