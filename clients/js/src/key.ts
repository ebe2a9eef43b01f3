// The grammar of keys, as the Go package internal/session/key.go has it:
//
//	session            the session's info
//	message/ID         a message
//	part/MID/PID       a part of message MID
//	session_diff       the diff
//	model/ID           a model; its ID may hold slashes
//	KIND[/ID…]         a value of the session's users, of a kind of their own: any JSON
//	schema/KIND        a JSON Schema, which values of such a kind are checked by
//	request/ID         a request, and below it request/ID/state: changed by ops of their own alone

import { clip, fault } from "./fault.js";
import { byteLength } from "./text.js";

/** What a key names: something of Mooring's, or a value of its users' kinds. */
export type KeyKind = "session" | "message" | "part" | "session_diff" | "model" | "own" | "schema" | "request";

const maxIDBytes = 200, maxKeyBytes = 512, maxKindBytes = 64, maxOwnIDs = 6;

/** Kinds that have a meaning of their own, now or in a later version. */
const reserved: readonly string[] = ["ref", "turn"];
const known: readonly string[] = ["session", "message", "part", "session_diff", "model", "schema", "request"];

export const idRule = `use 1 to ${maxIDBytes} letters, digits and _.:@+-`;

export const isID = (s: string): boolean => s.length <= maxIDBytes && /^[A-Za-z0-9_.:@+-]+$/.test(s);

/** The kind of a key. Throws bad_key with what is wrong. */
export function keyKind(text: string): KeyKind {
  if (text === "session" || text === "session_diff") return text;
  const [kind, ...ids] = text.split("/") as [string, ...string[]];
  switch (kind) {
    case "message":
      if (ids.length === 1 && isID(ids[0]!)) return kind;
      break;
    case "part":
      if (ids.length === 2 && ids.every(isID)) return kind;
      break;
    case "model": {
      const id = ids.join("/");
      if (id !== "" && id.length <= maxIDBytes && /^[A-Za-z0-9_.:@+/-]+$/.test(id)) return kind;
      break;
    }
    case "schema":
      if (ids.length === 1 && isKind(ids[0]!) && !reserved.includes(ids[0]!) && !known.includes(ids[0]!)) return kind;
      throw fault("bad_key", `${quoted(text)} is not a key: schema/KIND is the schema of the values of a kind of your own, as in schema/todo`);
    case "request":
      if (isID(ids[0] ?? "") && (ids.length === 1 || (ids.length === 2 && ids[1] === "state"))) return kind;
      break;
    case "session": case "session_diff":
      break;
    default:
      checkOwn(text, kind, ids);
      return "own";
  }
  throw fault("bad_key", `${quoted(text)} is not a key: use session, message/ID, part/MESSAGE/ID, session_diff, model/ID, request/ID or KIND/ID of your own kinds, with ids of 1 to ${maxIDBytes} letters, digits and _.:@+-`);
}

const isKind = (s: string): boolean => s.length <= maxKindBytes && /^[a-z][a-z0-9_-]*$/.test(s);

function checkOwn(text: string, kind: string, ids: readonly string[]): void {
  const bad = (reason: string) => fault("bad_key", reason);
  if (!isKind(kind)) {
    throw bad(`${quoted(text)} is not a key: it begins with a kind, 1 to ${maxKindBytes} letters a to z, digits, _ and - (the first a letter), as in todo/1`);
  }
  if (reserved.includes(kind)) throw bad(`${quoted(text)}: keys of the kind ${kind} are reserved: use another kind`);
  const bytes = byteLength(text);
  if (bytes > maxKeyBytes) throw bad(`the key ${quoted(text)} has ${bytes} bytes, the limit is ${maxKeyBytes}`);
  for (const [i, id] of ids.entries()) {
    if (i === maxOwnIDs) throw bad(`${quoted(text)} has more than ${maxOwnIDs} ids after its kind`);
    if (!isID(id)) throw bad(`${quoted(text)} is not a key: id ${i + 1} after its kind is not 1 to ${maxIDBytes} letters, digits and _.:@+-`);
  }
}

/** Whether a text is a key of its users' kinds, or of some kinds that are named. */
export function isOwnKey(text: string, kinds: readonly KeyKind[] = ["own"]): boolean {
  try {
    return kinds.includes(keyKind(text));
  } catch {
    return false;
  }
}

const quoted = (text: string): string => JSON.stringify(clip(text));
