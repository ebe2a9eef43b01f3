// Finding the flaws of a hash chain, row by row, as the Go package capability does (chain.go). It serves the audit and
// the log.

import { isHash, sameHash, zeroHash } from "./digest.js";

/** A row of a chain as it was read. */
export interface ChainRow {
  readonly seq: number;
  readonly hash: Uint8Array;
  /** The hash that it would have as row seq after a row with the hash prev; undefined if this client cannot say. */
  sum(prev: Uint8Array, seq: number): Uint8Array | undefined;
}

/** A flaw: row seq was changed, is missing (and all up to through), or was written as row writtenAs (0: unknown); the chain goes on after its end, writtenAs; or its end is not row seq's hash. */
export interface Flaw {
  readonly kind: "changed" | "missing" | "misplaced" | "beyond" | "end";
  readonly seq: number;
  readonly through: number;
  readonly writtenAs: number;
}

/** Describes a flaw; of is the word for a row. */
export function flawText(f: Flaw, of: string): string {
  switch (f.kind) {
    case "missing": return f.through > f.seq ? `${of}s ${f.seq} to ${f.through} are missing` : `${of} ${f.seq} is missing`;
    case "misplaced": return f.writtenAs === 0 ? `${of} ${f.seq} is out of order` : `${of} ${f.seq} is out of order: what stands there was written as ${f.writtenAs}`;
    case "beyond": return `${of} ${f.seq} is beyond the end, which is ${f.writtenAs}`;
    case "end": return `the end was changed: it is not the hash of ${of} ${f.seq}`;
    case "changed": return `${of} ${f.seq} was changed after it was written`;
  }
}

/** A row whose hash does not follow from that of the row before it. */
interface Suspect {
  readonly row: ChainRow;
  readonly prev: Uint8Array;
  readonly unproven: boolean; // the row before it is missing: it may be intact
}

/** How many rows are tried in other positions: each is tried in the position of each. */
const maxSuspects = 32;

const flaw = (kind: Flaw["kind"], seq: number, more: Partial<Flaw> = {}): Flaw => ({ kind, seq, through: 0, writtenAs: 0, ...more });

/** Takes a chain's rows by their numbers. A changed row is recognized by the rows after it. Only flawed rows are kept. */
export class ChainVerifier {
  #seq: number;
  #prev: Uint8Array = zeroHash;
  #known: boolean; // #prev is the hash of the row before
  readonly #flaws: Flaw[] = [];
  readonly #suspects: Suspect[] = [];
  readonly #gaps: number[] = []; // some of the missing rows

  /** The chain's first row is the one after seq. If that is not 0, the rows before are gone, and the link of the first is not checked. */
  constructor(seq = 0) {
    this.#seq = seq;
    this.#known = seq === 0;
  }

  /** The number of the last row, or of the one before the first. */
  get seq(): number {
    return this.#seq;
  }

  /** The last row's hash, as it was read. */
  get head(): Uint8Array {
    return this.#prev;
  }

  /** Adds the next row. */
  add(row: ChainRow): void {
    const { seq } = row;
    if (seq <= this.#seq) {
      this.#flaws.push(flaw("misplaced", seq));
      return;
    }
    if (seq > this.#seq + 1) {
      this.#missing(this.#flaws, this.#gaps, this.#seq + 1, seq - 1);
      this.#known = false;
    }
    if (!this.#known || !fits(row, this.#prev, seq, row.hash)) {
      if (this.#suspects.length < maxSuspects) this.#suspects.push({ row, prev: this.#prev, unproven: !this.#known });
      else if (this.#known) this.#flaws.push(flaw("changed", seq));
    }
    this.#seq = seq;
    this.#prev = row.hash;
    this.#known = true;
  }

  #missing(flaws: Flaw[], gaps: number[], from: number, through: number): void {
    flaws.push(flaw("missing", from, { through }));
    for (let seq = from; seq <= through && gaps.length < maxSuspects; seq++) gaps.push(seq);
  }

  /** The flaws of a chain that is recorded to end with row seq and its hash head. It may be called again. */
  end(seq: number, head: Uint8Array): Flaw[] {
    const flaws = [...this.#flaws], gaps = [...this.#gaps];
    if (this.#seq < seq) this.#missing(flaws, gaps, this.#seq + 1, seq);
    for (const s of this.#suspects) {
      const f = this.#diagnose(s, gaps);
      if (f) flaws.push(f);
    }
    if (this.#seq > seq) flaws.push(flaw("beyond", this.#seq, { writtenAs: seq }));
    else if (this.#seq === seq && this.#known && !sameHash(this.#prev, head) && !flaws.some((f) => f.seq === seq)) flaws.push(flaw("end", seq));
    return flaws;
  }

  /**
   * Tries a suspect in its own position and in the positions of all others, after every hash that any of them may follow. It
   * belongs where its hash fits, or the hash of the row that was left there.
   */
  #diagnose({ row, unproven }: Suspect, gaps: readonly number[]): Flaw | undefined {
    const before = [zeroHash, ...this.#suspects.flatMap((o) => [o.prev, o.row.hash, o.row.sum(o.prev, o.row.seq) ?? zeroHash])];
    if (before.some((prev) => fits(row, prev, row.seq, row.hash))) return undefined; // the flawed row is the one before it
    const belongs = (seq: number, left: Uint8Array): boolean =>
      before.some((prev) => fits(row, prev, seq, row.hash) || (!unproven && fits(row, prev, seq, left)));
    for (const o of this.#suspects) {
      if (o.row.seq !== row.seq && belongs(o.row.seq, o.row.hash)) return flaw("misplaced", row.seq, { writtenAs: o.row.seq });
    }
    for (const seq of gaps) if (belongs(seq, row.hash)) return flaw("misplaced", row.seq, { writtenAs: seq });
    return unproven ? undefined : flaw("changed", row.seq);
  }
}

/** Whether a row has a hash as row seq after a row with the hash prev, as far as this client can say. */
function fits(row: ChainRow, prev: Uint8Array, seq: number, hash: Uint8Array): boolean {
  const sum = row.sum(prev, seq);
  return sum === undefined || sameHash(sum, hash);
}

/** Reads a hash from an answer; the zero hash for none. */
export const readHash = (v: unknown): Uint8Array => (v instanceof Uint8Array && isHash(v) ? v : zeroHash);
