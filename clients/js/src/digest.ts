// The hashes of the server's chains, as the Go packages internal/digest, internal/session and capability make them.

import { bytesOf, concat, sha256 } from "./text.js";

/** A hash over a name and fields, each of which tells where it ends. */
export class Digest {
  readonly #parts: Uint8Array[] = [];

  /** what: what is hashed, as in "mooring event v1". */
  constructor(what: string) {
    this.text(what);
  }

  /** Adds a whole number, as eight bytes. */
  num(v: number): this {
    const b = new Uint8Array(8), view = new DataView(b.buffer);
    view.setUint32(0, Math.floor(v / 2 ** 32));
    view.setUint32(4, v % 2 ** 32);
    this.#parts.push(b);
    return this;
  }

  /** Adds a text, after its length in bytes. */
  text(s: string): this {
    const b = bytesOf(s);
    this.num(b.length).#parts.push(b);
    return this;
  }

  /** Adds another hash as it is. */
  hash(h: Uint8Array): this {
    this.#parts.push(h);
    return this;
  }

  sum(): Uint8Array {
    return sha256(concat(...this.#parts));
  }
}

/** The hash before the first row of a chain. */
export const zeroHash: Uint8Array = new Uint8Array(32);

/** The hash of a text's UTF-8 bytes. */
export const sumOf = (text: string): Uint8Array => sha256(bytesOf(text));

/** Whether two hashes are the same. */
export const sameHash = (a: Uint8Array, b: Uint8Array): boolean => a.length === b.length && a.every((v, i) => v === b[i]);

/** Whether a hash is set. */
export const isHash = (h: Uint8Array | undefined): h is Uint8Array => h !== undefined && h.some((v) => v !== 0);
