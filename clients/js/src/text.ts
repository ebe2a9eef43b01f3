// Texts and bytes: UTF-8, base64url, base32, and SHA-256 without waiting (Web Crypto's needs a promise, and an id that is
// derived from a secret must be there when the call returns).

const utf8 = new TextEncoder();

/** A text's UTF-8 bytes. */
export const bytesOf = (s: string): Uint8Array => utf8.encode(s);

/** How many UTF-8 bytes a text has. */
export function byteLength(s: string): number {
  let n = s.length;
  for (let i = 0; i < s.length; i++) {
    const c = s.charCodeAt(i);
    if (c < 0x80) continue;
    if (c < 0x800) n += 1;
    else if (c >= 0xd800 && c < 0xdc00 && i + 1 < s.length && (s.charCodeAt(i + 1) & 0xfc00) === 0xdc00) {
      n += 2;
      i++;
    } else n += 2;
  }
  return n;
}

const base64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/** Base64url, unpadded. */
export function toBase64url(bytes: Uint8Array): string {
  let out = "";
  for (let i = 0; i < bytes.length; i += 3) {
    const left = bytes.length - i;
    const v = (bytes[i]! << 16) | ((bytes[i + 1] ?? 0) << 8) | (bytes[i + 2] ?? 0);
    out += base64[v >> 18]! + base64[(v >> 12) & 63]!;
    if (left > 1) out += base64[(v >> 6) & 63]!;
    if (left > 2) out += base64[v & 63]!;
  }
  return out;
}

/** Reads unpadded base64url in its one canonical spelling; undefined for anything else. */
export function fromBase64url(text: string): Uint8Array | undefined {
  if (text.length % 4 === 1) return undefined;
  const out = new Uint8Array(Math.floor((text.length * 3) / 4));
  let bits = 0, held = 0, n = 0;
  for (const c of text) {
    const v = base64.indexOf(c);
    if (v < 0) return undefined;
    held = ((held << 6) | v) & 0xffff;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out[n++] = (held >> bits) & 0xff;
    }
  }
  return (held & ((1 << bits) - 1)) === 0 ? out : undefined;
}

const base32 = "abcdefghijklmnopqrstuvwxyz234567";

/** Base32 in small letters, unpadded. */
export function toBase32(bytes: Uint8Array): string {
  let out = "", bits = 0, held = 0;
  for (const b of bytes) {
    held = ((held << 8) | b) & 0xffff;
    bits += 8;
    while (bits >= 5) {
      bits -= 5;
      out += base32[(held >> bits) & 31]!;
    }
  }
  if (bits > 0) out += base32[(held << (5 - bits)) & 31]!;
  return out;
}

/** Whether a text is the base32 of so many bytes in its one canonical spelling. */
export function isBase32(text: string, bytes: number): boolean {
  const chars = Math.ceil((bytes * 8) / 5);
  if (text.length !== chars || !/^[a-z2-7]*$/.test(text)) return false;
  const spare = chars * 5 - bytes * 8;
  return (base32.indexOf(text[chars - 1]!) & ((1 << spare) - 1)) === 0;
}

const rounds = /* fractions of the cube roots of the first 64 primes */ (() => {
  const k = new Int32Array(64), h = new Int32Array(8);
  for (let n = 2, i = 0; i < 64; n++) {
    let prime = true;
    for (let d = 2; d * d <= n; d++) if (n % d === 0) { prime = false; break; }
    if (!prime) continue;
    k[i] = fraction(Math.cbrt(n));
    if (i < 8) h[i] = fraction(Math.sqrt(n));
    i++;
  }
  return { k, h };
})();

function fraction(x: number): number {
  return Math.floor((x - Math.floor(x)) * 2 ** 32);
}

/** SHA-256 (FIPS 180-4). */
export function sha256(data: Uint8Array): Uint8Array {
  const padded = new Uint8Array((((data.length + 8) >> 6) + 1) << 6);
  padded.set(data);
  padded[data.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 8, Math.floor(data.length / 2 ** 29));
  view.setUint32(padded.length - 4, (data.length << 3) >>> 0);
  // Signed numbers of 32 bits: those alone are kept as such by JavaScript's machines.
  const h = rounds.h.slice(), w = new Int32Array(64), k = rounds.k;
  const turn = (x: number, n: number): number => (x >>> n) | (x << (32 - n));
  for (let at = 0; at < padded.length; at += 64) {
    for (let i = 0; i < 16; i++) w[i] = view.getInt32(at + 4 * i);
    for (let i = 16; i < 64; i++) {
      const a = w[i - 15]!, b = w[i - 2]!;
      w[i] = w[i - 16]! + (turn(a, 7) ^ turn(a, 18) ^ (a >>> 3)) + w[i - 7]! + (turn(b, 17) ^ turn(b, 19) ^ (b >>> 10));
    }
    let a = h[0]!, b = h[1]!, c = h[2]!, d = h[3]!, e = h[4]!, f = h[5]!, g = h[6]!, z = h[7]!;
    for (let i = 0; i < 64; i++) {
      const t1 = (z + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + k[i]! + w[i]!) | 0;
      const t2 = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      z = g; g = f; f = e; e = (d + t1) | 0; d = c; c = b; b = a; a = (t1 + t2) | 0;
    }
    h[0]! += a; h[1]! += b; h[2]! += c; h[3]! += d; h[4]! += e; h[5]! += f; h[6]! += g; h[7]! += z;
  }
  const out = new Uint8Array(32), o = new DataView(out.buffer);
  h.forEach((v, i) => o.setInt32(4 * i, v));
  return out;
}

/** HMAC-SHA256 (RFC 2104) under a key of at most 64 bytes. */
export function hmac(key: Uint8Array, data: Uint8Array): Uint8Array {
  const padded = new Uint8Array(64);
  padded.set(key);
  return sha256(concat(padded.map((b) => b ^ 0x5c), sha256(concat(padded.map((b) => b ^ 0x36), data))));
}

/** Joins byte strings. */
export function concat(...parts: Uint8Array[]): Uint8Array {
  const out = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const p of parts) {
    out.set(p, at);
    at += p.length;
  }
  return out;
}

/** So many random bytes. */
export const randomBytes = (n: number): Uint8Array => crypto.getRandomValues(new Uint8Array(n));
