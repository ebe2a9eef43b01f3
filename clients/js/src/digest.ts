// The hashes of the server's chains, as the Go packages internal/digest, internal/session and capability make them.

import { bytesOf, sha256 } from "./text.js";

/** A hash over a name and fields, each of which tells where it ends. */
export class Digest {
  #room = new Uint8Array(512);
  #size = 0;

  /** what: what is hashed, as in "mooring event v1". */
  constructor(what: string) {
    this.text(what);
  }

  /** Makes room for so many more bytes. */
  #fit(n: number): void {
    if (this.#size + n <= this.#room.length) return;
    const room = new Uint8Array(2 * (this.#size + n));
    room.set(this.#room);
    this.#room = room;
  }

  /** Adds a whole number, as eight bytes. */
  num(v: number): this {
    this.#fit(8);
    const room = this.#room, at = this.#size, high = Math.floor(v / 2 ** 32), low = v >>> 0;
    for (let i = 0; i < 4; i++) {
      room[at + i] = high >>> (24 - 8 * i);
      room[at + 4 + i] = low >>> (24 - 8 * i);
    }
    this.#size += 8;
    return this;
  }

  /** Adds a text, after its length in bytes. */
  text(s: string): this {
    const b = bytesOf(s);
    return this.num(b.length).hash(b);
  }

  /** Adds another hash as it is. */
  hash(h: Uint8Array): this {
    this.#fit(h.length);
    this.#room.set(h, this.#size);
    this.#size += h.length;
    return this;
  }

  sum(): Uint8Array {
    return sha256(this.#room.subarray(0, this.#size));
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
