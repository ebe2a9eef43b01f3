// Sturdy refs as text:
//
//	mooring://HOST[:PORT][,HOST…][/PREFIX]/ID#SECRET
//
// and moorings:// over TLS. The text is a bearer secret: only Ref.text has it, all other forms of a Ref leave
// it out, and no error repeats any part of the input.

import { fault } from "./fault.js";
import { bytesOf, concat, fromBase64url, hmac, isBase32, randomBytes, sha256, toBase32, toBase64url } from "./text.js";
import { isULID } from "./ulid.js";

/** The default port. */
export const defaultPort = "7600";

const maxRefText = 4096;
const maxHosts = 16;
const maxPrefix = 256;
const secretBytes = 32;
const secretText = 43;
const redacted = "…";

/** Whether a text is a session's id. */
export const isSession = (id: string): boolean => id.startsWith("ses_") && isULID(id.slice(4));
/** Whether a text is a space's id. */
export const isSpace = (id: string): boolean => id.startsWith("spc_") && isULID(id.slice(4));

/** The session or space that a ref's id is for; "" if the id is not well formed. */
export function targetOf(id: string): string {
  const dot = id.indexOf(".");
  if (dot < 0) return "";
  const target = id.slice(0, dot), tail = id.slice(dot + 1);
  if (!isSession(target) && !isSpace(target)) return "";
  const good = tail[0] === "o" || tail[0] === "k" ? isBase32(tail.slice(1), 16) : tail[0] === "s" && isULID(tail.slice(1));
  return good ? target : "";
}

const markOf = (id: string): string => {
  const target = targetOf(id);
  return target === "" ? "" : id[target.length + 1]!;
};

/** Whether a well-formed ref id was made by a client. */
export const isOffline = (id: string): boolean => markOf(id) === "o" || markOf(id) === "k";
/** Whether a well-formed ref id is that of a ref bound to a key. */
export const isSealed = (id: string): boolean => markOf(id) === "k";

/** The id of the ref that a client makes for a target with a secret: a holder of both can check that they fit. */
export function deriveID(target: string, secret: Uint8Array, mark: "o" | "k" = "o"): string {
  const sealed = mark === "k" ? [bytesOf("k\0")] : [];
  const hash = sha256(concat(bytesOf("mooring ref id v1\0"), ...sealed, bytesOf(target), secret));
  return `${target}.${mark}${toBase32(hash.subarray(0, 16))}`;
}

/**
 * The secret that an outbox sends when it opens its stream of a session, as text. It is derived from the outbox's own, so
 * that the session's server cannot speak for the outbox anywhere else.
 */
export function streamSecret(outbox: string, session: string): string {
  return toBase64url(hmac(fromBase64url(outbox)!, bytesOf(`mooring stream secret v1\0${session}`)));
}

/** The parts of a Ref except its secret. */
export interface RefParts {
  readonly tls: boolean;
  /** HOST:PORT each, IPv6 in brackets; tried in this order. */
  readonly hosts: readonly string[];
  /** The path below which the server is mounted, without slashes at its ends. */
  readonly prefix: string;
  /** TARGET.TAIL */
  readonly id: string;
}

/** A sturdy ref with its servers' addresses. It is immutable. */
export class Ref implements RefParts {
  readonly tls: boolean;
  readonly hosts: readonly string[];
  readonly prefix: string;
  readonly id: string;
  readonly #secret: Uint8Array;

  constructor(parts: RefParts, secret: Uint8Array) {
    this.tls = parts.tls;
    this.hosts = Object.freeze([...parts.hosts]);
    this.prefix = parts.prefix;
    this.id = parts.id;
    this.#secret = secret.slice();
    Object.freeze(this);
  }

  /** Parses a ref's text. The error is bad_ref_text, says what is wrong, and repeats nothing of the text. */
  static parse(text: string): Ref {
    return parseRef(text);
  }

  /** A new ref for a target at this one's address, made offline. sealed: to be bound to a key. */
  for(target: string, sealed = false): Ref {
    const secret = randomBytes(secretBytes);
    return new Ref({ ...this.#parts(), id: deriveID(target, secret, sealed ? "k" : "o") }, secret);
  }

  #parts(): RefParts {
    return { tls: this.tls, hosts: this.hosts, prefix: this.prefix, id: this.id };
  }

  /** The session or space that the ref is for. */
  get target(): string {
    return targetOf(this.id);
  }

  /** The ref's whole text with its secret: anyone who has it has the capability. */
  get text(): string {
    return `${this.#public()}#${this.secretText}`;
  }

  /** The secret as text. Anyone who has it and the id has the capability. */
  get secretText(): string {
    return toBase64url(this.#secret);
  }

  /** SHA-256 of the secret in base64url, as the ops create and share carry it. */
  get hashText(): string {
    return toBase64url(sha256(this.#secret));
  }

  /** Whether an id made offline belongs to this secret; true for ids that a server made. */
  get fits(): boolean {
    return !isOffline(this.id) || deriveID(this.target, this.#secret, isSealed(this.id) ? "k" : "o") === this.id;
  }

  /** Whether both are the same capability at the same place. */
  equals(other: Ref): boolean {
    return this.text === other.text;
  }

  /** The text without id and secret. */
  get address(): string {
    const hosts = this.hosts.map((h) => (h.endsWith(`:${defaultPort}`) ? h.slice(0, -defaultPort.length - 1) : h));
    return `mooring${this.tls ? "s" : ""}://${hosts.join(",")}${this.prefix && `/${this.prefix}`}`;
  }

  /** The URL of the server's Cap'n Web endpoint at each host. */
  get urls(): string[] {
    return this.hosts.map((h) => `${this.tls ? "wss" : "ws"}://${h}/${this.prefix && `${this.prefix}/`}rpc`);
  }

  /** The first host, other than this machine, to which the secret would be sent in clear; "" for none. */
  get clearTextHost(): string {
    return this.tls ? "" : (this.hosts.find((h) => !isLoopback(h)) ?? "");
  }

  /** Throws plaintext for a ref whose secret would be sent in clear to another machine, unless allowed. */
  checkPlaintext(allowed: boolean): void {
    const h = this.clearTextHost;
    if (h !== "" && !allowed) {
      throw fault("plaintext", `this would send a secret in clear to ${h}: use a moorings:// ref, or say that plain text is allowed`);
    }
  }

  #public(): string {
    return `${this.address}/${this.id}`;
  }

  /** The text with a placeholder for the secret, like all the forms below. */
  toString(): string {
    return `${this.#public()}#${redacted}`;
  }
  toJSON(): string {
    return this.toString();
  }
  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return `Ref(${this.toString()})`;
  }
  get [Symbol.toStringTag](): string {
    return "Ref";
  }
}

function isLoopback(hostport: string): boolean {
  const host = hostport.slice(0, hostport.lastIndexOf(":")).replace(/^\[|\]$/g, "");
  return host === "localhost" || /^127\.\d+\.\d+\.\d+$/.test(host) || host === "::1" || /^::ffff:(127\.|7f[0-9a-f]{2}:)/.test(host);
}

function bad(reason: string): never {
  throw fault("bad_ref_text", reason);
}

function parseRef(text: string): Ref {
  if (typeof text !== "string") bad("the ref is not text");
  if (bytesOf(text).length > maxRefText) bad(`the ref is longer than ${maxRefText} bytes`);
  const scheme = /^moorings?:\/\//.exec(text)?.[0] ?? bad("it does not start with mooring:// or moorings://");
  const rest = text.slice(scheme.length);
  const hash = rest.indexOf("#");
  if (hash < 0) bad("the ref has no #SECRET: quote it in a shell, where # begins a comment");
  const open = rest.slice(0, hash), secret = rest.slice(hash + 1);
  const slash = open.indexOf("/");
  if (slash < 0) bad("the ref has no /ID after its hosts");
  const hosts = parseHosts(open.slice(0, slash));
  const path = open.slice(slash + 1), last = path.lastIndexOf("/");
  const prefix = last < 0 ? "" : path.slice(0, last), id = path.slice(last + 1);
  if (last >= 0) checkPrefix(prefix);
  if (targetOf(id) === "") bad("the ref's id is not ses_… or spc_… with its tail: was the ref cut off or mistyped?");
  return new Ref({ tls: scheme === "moorings://", hosts, prefix, id }, parseSecret(secret));
}

function parseSecret(text: string): Uint8Array {
  const length = bytesOf(text).length;
  if (length !== secretText) bad(`the secret has ${length} characters, not ${secretText}: was the ref cut off?`);
  const bytes = fromBase64url(text);
  if (bytes === undefined || bytes.length !== secretBytes) bad("the secret is not base64url text: was the ref mistyped?");
  return bytes;
}

function parseHosts(list: string): string[] {
  const parts = list.split(",");
  if (parts.length > maxHosts) bad(`more than ${maxHosts} hosts`);
  return parts.map((p, i) => parseHost(p) ?? bad(`host ${i + 1} is not HOST, HOST:PORT or [IPv6]:PORT`));
}

/** HOST:PORT in a canonical form; undefined if it is invalid. */
function parseHost(text: string): string | undefined {
  let host: string, port = defaultPort;
  if (text.startsWith("[")) {
    const end = text.indexOf("]");
    const v6 = end < 0 ? undefined : canonicalIPv6(text.slice(1, end));
    if (v6 === undefined) return undefined;
    host = `[${v6}]`;
    const after = text.slice(end + 1);
    if (after !== "") {
      if (!after.startsWith(":")) return undefined;
      port = after.slice(1);
    }
  } else {
    const colon = text.indexOf(":");
    host = colon < 0 ? text : text.slice(0, colon);
    if (colon >= 0) port = text.slice(colon + 1);
    if (host.length > 253 || !host.split(".").every((l) => /^[A-Za-z0-9_-]{1,63}$/.test(l))) return undefined;
    host = host.toLowerCase();
  }
  return /^[1-9]\d{0,4}$/.test(port) && Number(port) <= 65535 ? `${host}:${port}` : undefined;
}

function canonicalIPv6(text: string): string | undefined {
  if (!/^[0-9A-Fa-f:.]+$/.test(text) || !text.includes(":")) return undefined;
  let groups: string;
  try {
    groups = new URL(`http://[${text}]/`).hostname.slice(1, -1);
  } catch {
    return undefined;
  }
  // An IPv4-mapped address is written as IPv4.
  const v4 = /^::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/.exec(groups);
  if (v4 === null) return groups;
  const hi = parseInt(v4[1]!, 16), lo = parseInt(v4[2]!, 16);
  return `::ffff:${hi >> 8}.${hi & 255}.${lo >> 8}.${lo & 255}`;
}

function checkPrefix(p: string): void {
  if (bytesOf(p).length > maxPrefix) bad(`the path before the id is longer than ${maxPrefix} bytes`);
  for (const seg of p.split("/")) {
    if (seg === "" || seg === "." || seg === "..") bad("the path before the id has an empty or dotted segment");
    if (!/^[A-Za-z0-9_.~-]+$/.test(seg)) bad("the path before the id has a character other than letters, digits, - _ . ~");
  }
}
