// Sealed refs: bound to an Ed25519 key, so that the text alone is useless. Redeeming one takes a signature over a
// nonce of the server's and the HOST:PORT that was dialled: one round trip more.

import { fault } from "./fault.js";
import type { Held } from "./link.js";
import { bytesOf, concat, toBase64url } from "./text.js";

const domain = "mooring sealed ref v1"; // keeps these signatures apart from all others made with the key
const nonceBytes = 32;

/** The answer to a challenge, as restore takes it. */
export interface Proof {
  nonce: Uint8Array;
  audience: string;
  signature: Uint8Array;
}

/** The signed message: each part is preceded by its length, so that no two tuples give the same message. */
export function proofText(nonce: Uint8Array, audience: string, refID: string, redemption: string): Uint8Array {
  return concat(...[bytesOf(domain), nonce, bytesOf(audience), bytesOf(refID), bytesOf(redemption)].flatMap((part) => {
    const length = new Uint8Array(4);
    new DataView(length.buffer).setUint32(0, part.length);
    return [length, part];
  }));
}

/** Answers a challenge for redeeming a ref at an address. */
export async function prove(key: CryptoKey, nonce: unknown, audience: string, { ref, redemption }: Held): Promise<Proof> {
  if (!(nonce instanceof Uint8Array) || nonce.length !== nonceBytes) throw fault("incompatible", "the server's challenge cannot be read");
  const signature = await crypto.subtle.sign("Ed25519", key, proofText(nonce, audience, ref.id, redemption) as Uint8Array<ArrayBuffer>);
  return { nonce, audience, signature: new Uint8Array(signature) };
}

/** A key for sealed refs: the private one is for open's sealKey, the text for those who share (ShareOptions.seal). */
export interface SealKey {
  privateKey: CryptoKey;
  publicText: string;
}

/**
 * Makes a key for sealed refs. The private key cannot be exported unless it is made extractable; a browser
 * can keep it in IndexedDB as it is.
 */
export async function newSealKey(extractable = false): Promise<SealKey> {
  const pair = (await crypto.subtle.generateKey("Ed25519", extractable, ["sign", "verify"])) as CryptoKeyPair;
  return { privateKey: pair.privateKey, publicText: toBase64url(new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey))) };
}

/** A counting semaphore. */
export class Turns {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(most: number) {
    this.#free = most;
  }

  async take<T>(f: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((r) => this.#waiting.push(r));
    try {
      return await f();
    } finally {
      const next = this.#waiting.shift();
      if (next) next();
      else this.#free++;
    }
  }
}
