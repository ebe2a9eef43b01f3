// ULIDs: ids that sort by creation time. A batch's id leaves its last 16 bits free, so that the ids of its ops
// count up from it and identify it.

import { randomBytes } from "./text.js";

const letters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const values = new Map([...letters].map((c, i) => [c, BigInt(i)]));

function write(id: bigint): string {
  const out: string[] = [];
  for (let i = 125n; i >= 0n; i -= 5n) out.push(letters[Number((id >> i) & 31n)]!);
  return out.join("");
}

/** Parses a ULID in its canonical form; undefined for anything else. */
function read(text: string): bigint | undefined {
  if (text.length !== 26 || text[0]! > "7") return undefined;
  let id = 0n;
  for (const c of text) {
    const v = values.get(c);
    if (v === undefined) return undefined;
    id = (id << 5n) | v;
  }
  return id;
}

function random(bytes: number): bigint {
  return randomBytes(bytes).reduce((n, b) => (n << 8n) | BigInt(b), 0n);
}

/** Whether a text is a ULID in its canonical form. */
export const isULID = (text: unknown): text is string => typeof text === "string" && /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/.test(text);

let lastPlain = 0n;
let lastBatch = 0n;

/** A new ULID; those of one process ascend. */
export function newULID(now = Date.now()): string {
  let id = (BigInt(now) << 80n) | (random(10) >> 1n);
  if (id <= lastPlain || id >> 80n === lastPlain >> 80n) id = lastPlain + 1n;
  lastPlain = id;
  return write(id);
}

const opRoom = 16n;

/** A new batch id: a ULID whose last 16 bits are zero; those of one process ascend. */
export function newBatchID(now = Date.now()): string {
  let id = (BigInt(now) << 80n) | ((random(8) >> 1n) << opRoom);
  if (id <= lastBatch || id >> 80n === lastBatch >> 80n) id = lastBatch + (1n << opRoom);
  lastBatch = id;
  return write(id);
}

/** The id of the op at a position (from 0) of a batch with an id from newBatchID; a fresh ULID for other batch ids. */
export const opID = (batch: string, place: number): string => ownID(batch, place) ?? newULID();

const lowBit = 22; // the letter with the highest one of an id's last 16 bits, as its lowest

/** The same; undefined for other batch ids. */
export function ownID(batch: string, place: number): string | undefined {
  const n = place + 1;
  if (batchOf(batch) !== batch || n < 1 || n >= 1 << 16) return undefined;
  const high = letters.indexOf(batch[lowBit]!) | (n >> 15);
  return [batch.slice(0, lowBit), letters[high], letters[(n >> 10) & 31], letters[(n >> 5) & 31], letters[n & 31]].join(""); // in one piece
}

/** The batch id of an op whose id opID made; undefined if it is not a ULID. */
export function batchOf(op: string): string | undefined {
  return isULID(op) ? `${op.slice(0, lowBit)}${letters[letters.indexOf(op[lowBit]!) & 30]!}000` : undefined;
}

/** A ULID with the time of another one and the given bytes instead of random ones; with the time 0 if the other is not a ULID. */
export function derivedULID(from: string, bytes: Uint8Array): string {
  const time = (read(from) ?? 0n) >> 80n;
  return write(bytes.subarray(0, 10).reduce((n, b) => (n << 8n) | BigInt(b), time));
}
