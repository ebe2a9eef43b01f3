// Changes members of a JSON value without touching the text of the others. The rule is the Go package internal/jsonpatch's, whose
// comment states it, byte for byte and error for error: internal/jsonpatch/testdata/patch.json has the cases that both are held to.

import { fault } from "./fault.js";
import { isJSON, isWellFormed, skipSpace, skipValue } from "./jsontext.js";
import { byteLength } from "./text.js";

/** The value with the patch merged into it; undefined and "" are an absent value. Throws bad_payload. */
export function merge(value: string | undefined, patch: string): string {
  return merged(value, patch);
}

/** The value, which is an object or absent, with a whole number added to one of its members, which counts as 0 if it is absent. Throws bad_payload. */
export function add(value: string | undefined, member: string, by: number): string {
  if (value && isJSON(value) && !isObject(value)) throw fault("bad_payload", "the value is no object: a number is added to a member of one");
  if (!Number.isSafeInteger(by)) throw fault("bad_payload", `what is added is not within ±${Number.MAX_SAFE_INTEGER}`);
  if (!isWellFormed(member)) throw fault("bad_payload", "the member's name is not Unicode text");
  return merged(value, `{${JSON.stringify(member)}:${by}}`, (old, at) => {
    const n = Number(old);
    if (!/^(0|-?[1-9][0-9]*)$/.test(old) || !Number.isSafeInteger(n)) {
      throw fault("bad_payload", `the member at byte ${at()} of the value is no integer within ±${Number.MAX_SAFE_INTEGER}: put one first`);
    }
    if (!Number.isSafeInteger(n + by)) throw fault("bad_payload", `the sum for the member at byte ${at()} of the value is not within ±${Number.MAX_SAFE_INTEGER}`);
    return String(n + by);
  });
}

/** What replaces a member's old value, if that is not the patch's value. */
type Sum = (old: string, at: () => number) => string;

/** A member of the patch. */
interface Member {
  readonly name: string; // as in the patch, with its quotes
  readonly text: string; // its value as in the patch, unless that is an object
  readonly names: Map<string, number> | undefined; // of an object: its members by name, which are the next ones
  next: number; // the index after it and all members in it
  met: boolean; // the value has it too
}

/** An object of the value that is being merged with one of the patch. */
interface Open {
  readonly object: number; // the patch's
  indent: string; // the white space after the opening brace
  kept: boolean; // a member is in the result
  end: number; // where the last member's value ends in the value, or the brace
}

/** Stands in names for members that the patch does not have. */
const unnamed = -1;

function merged(value: string | undefined, patch: string, sum?: Sum): string {
  if (!isJSON(patch)) throw fault("bad_payload", "the patch is not JSON text, or nested too deep");
  if (value && !isJSON(value)) throw fault("bad_payload", "the value is not JSON text, or nested too deep");
  if (!isObject(patch)) return patch;
  return walk(value && isObject(value) ? value : "{}", readPatch(patch), sum);
}

const isObject = (text: string): boolean => text[skipSpace(text, 0)] === "{";

/** The members of a patch, each before those in it; the first is the patch itself. */
function readPatch(patch: string): Member[] {
  const members: Member[] = [{ name: "", text: "", names: new Map(), next: 0, met: false }];
  const open = [members[0]!]; // objects that have begun and not ended
  for (let i = skipSpace(patch, 0); ; ) {
    const from = skipSpace(patch, i + 1);
    if (patch[from] === '"') {
      const to = skipValue(patch, from), at = skipColon(patch, to);
      const name = nameAt(patch, from, to, "patch"), names = open.at(-1)!.names!;
      if (names.has(name)) throw twice("patch", patch, from);
      names.set(name, members.length);
      if (patch[at] === "{") {
        const object = { name: patch.slice(from, to), text: "", names: new Map<string, number>(), next: 0, met: false };
        members.push(object);
        open.push(object);
        i = at;
        continue;
      }
      const end = skipValue(patch, at);
      members.push({ name: patch.slice(from, to), text: patch.slice(at, end), names: undefined, next: members.length + 1, met: false });
      i = skipSpace(patch, end);
    } else i = from;
    while (patch[i] === "}") {
      open.pop()!.next = members.length;
      if (open.length === 0) return members;
      i = skipSpace(patch, i + 1);
    }
  }
}

/** Merges a patch's members into a value. */
function walk(value: string, members: Member[], sum: Sum | undefined): string {
  let i = skipSpace(value, 0);
  const out = [value.slice(0, i + 1)];
  const open: Open[] = [{ object: 0, indent: "", kept: false, end: i + 1 }];
  for (;;) {
    const from = skipSpace(value, i + 1), o = open.at(-1)!;
    if (value[from] === '"') {
      if (value[i] === "{") o.indent = value.slice(i + 1, from);
      const to = skipValue(value, from), at = skipColon(value, to);
      const k = meet(value, from, to, members, o.object), m = members[k];
      if (m?.text !== "null") {
        out.push(o.kept ? value.slice(o.end, from) : o.indent, value.slice(from, at));
        o.kept = true;
      }
      if (m?.names && value[at] === "{") {
        out.push("{");
        open.push({ object: k, indent: "", kept: false, end: at + 1 });
        i = at;
        continue;
      }
      o.end = skipValue(value, at);
      if (m === undefined) out.push(value.slice(at, o.end));
      else if (sum) out.push(sum(value.slice(at, o.end), () => byteLength(value.slice(0, at))));
      else if (m.text !== "null") write(out, members, k);
      i = skipSpace(value, o.end);
    } else i = from;
    while (value[i] === "}") {
      const done = open.pop()!, parent = open.at(-1);
      for (let k = done.object + 1; k < members[done.object]!.next; k = members[k]!.next) {
        const m = members[k]!;
        if (m.met || m.text === "null") continue;
        out.push(done.kept ? "," : "", m.name, ":");
        write(out, members, k);
        done.kept = true;
      }
      out.push(value.slice(done.end, i + 1));
      if (parent === undefined) return out.join("") + value.slice(i + 1);
      parent.end = i + 1;
      i = skipSpace(value, i + 1);
    }
  }
}

/** The index of the patch's member of the name that the value has at from; unnamed if there is none. */
function meet(value: string, from: number, to: number, members: Member[], object: number): number {
  const name = nameAt(value, from, to, "value"), names = members[object]!.names!;
  const k = names.get(name);
  if (k === undefined) {
    names.set(name, unnamed);
    return unnamed;
  }
  if (k === unnamed || members[k]!.met) throw twice("value", value, from);
  members[k]!.met = true;
  return k;
}

/** Writes the value of the patch's member k, merged into {} if it is an object. */
function write(out: string[], members: Member[], k: number): void {
  if (!members[k]!.names) {
    out.push(members[k]!.text);
    return;
  }
  out.push("{");
  const ends = [members[k]!.next]; // of the objects that are open
  for (k++; ; k++) {
    while (k === ends.at(-1)) {
      out.push("}");
      ends.pop();
      if (ends.length === 0) return;
    }
    const m = members[k]!;
    if (m.text === "null") continue;
    out.push(out.at(-1) === "{" ? "" : ",", m.name, ":", m.names ? "{" : m.text);
    if (m.names) ends.push(m.next);
  }
}

const skipColon = (text: string, i: number): number => skipSpace(text, skipSpace(text, i) + 1);

/** The text that a name stands for. */
function nameAt(text: string, from: number, to: number, where: string): string {
  const raw = text.slice(from + 1, to - 1);
  if (!raw.includes("\\")) return raw;
  const name = JSON.parse(text.slice(from, to)) as string;
  if (!isWellFormed(name)) throw fault("bad_payload", `the ${where} has half a surrogate pair in a name, at byte ${byteLength(text.slice(0, from))}`);
  return name;
}

const twice = (where: string, text: string, at: number) =>
  fault("bad_payload", `the ${where} has a name twice in one object, again at byte ${byteLength(text.slice(0, at))}: name each member once`);
