// The closed list of error codes that all clients and servers of Mooring share. It is
// append-only; a code that this version does not know keeps its number and the name it came with.

/** Every code by its name. */
export const codes = {
  none: 0,
  // Outcomes: why a recorded op did not apply.
  skipped: 1, denied: 2, conflict: 3, rejected: 4, voided: 5, batch_aborted: 6,
  // Answers to calls: nothing was recorded, the batch may be sent again.
  fenced: 20, server_behind: 21, outbox_diverged: 22, gap: 23, overloaded: 24, not_yet_known: 25, unavailable: 26,
  disconnected: 27, draining: 28, quota_exceeded: 29, unsupported: 30,
  // Authority.
  unknown_ref: 40, revoked: 41, stale_epoch: 42, expired: 43, missing_right: 44, exhausted: 45, wrong_outbox: 46,
  not_an_owner: 47, sealed: 48,
  // Rules.
  malformed: 60, unknown_method: 61, bad_key: 62, bad_payload: 63, too_large: 64, not_found: 65, already_exists: 66,
  wrong_offset: 67, turn_ended: 68, turn_open: 69, not_your_turn: 70, bad_reference: 71, session_deleted: 72,
  widening: 73, bad_argument: 74, reverted: 75, not_reverted: 76, request_ended: 77,
  // Reading and usage.
  cursor_expired: 90, pruned: 91, bad_ref_text: 92, plaintext: 93, incompatible: 94, usage: 95, outbox_full: 96,
  disk_full: 97, in_use: 98, unsafe_store: 99, canceled: 100, internal: 101, slow_consumer: 102, ambiguous: 103, outbox_damaged: 104,
} as const;

/** The name of a code. */
export type CodeName = keyof typeof codes;

const names = new Map<number, CodeName>(Object.entries(codes).map(([n, c]) => [c, n as CodeName]));

/** The name of a code number; code_N for an unknown one. */
export function nameOf(code: number): CodeName {
  return names.get(code) ?? (`code_${code}` as CodeName);
}

/** Every error of the package. Its message begins with the code's name and has no secret. */
export class MooringError extends Error {
  override readonly name = "MooringError";
  /** The code's name, the same on every wire. */
  readonly codeName: CodeName;
  /** The code's number. */
  readonly code: number;
  /** The position that belongs to the code: for gap the expected seq, for wrong_offset the length. */
  readonly at: number;
  /** What was wrong, without the code. */
  readonly reason: string;
  /** For a refused op its batch, whose id the server's log has too; else "". The message ends with it. */
  readonly batch: string;

  constructor(codeName: CodeName, reason: string, more: { at?: number; code?: number; batch?: string; cause?: unknown } = {}) {
    super(`${codeName}: ${reason}${more.batch ? ` (batch ${more.batch})` : ""}`, more.cause === undefined ? undefined : { cause: more.cause });
    this.codeName = codeName;
    this.code = more.code ?? codes[codeName] ?? 0;
    this.at = more.at ?? 0;
    this.reason = reason;
    this.batch = more.batch ?? "";
  }

  /** Whether a fork waits for what it is a copy of, and is made by the same request when that is copied. */
  get copying(): boolean {
    return this.codeName === "not_yet_known" && this.at > 0;
  }

  /** Whether the same request may succeed later without a change by anyone. */
  get transient(): boolean {
    return isTransient(this.codeName);
  }
}

/** Whether a request that was answered with this code may succeed later without a change by anyone. */
export function isTransient(name: CodeName): boolean {
  switch (name) {
    case "gap": case "overloaded": case "not_yet_known": case "unavailable": case "disconnected": case "draining":
    case "quota_exceeded": case "unsupported":
      return true;
  }
  return false;
}

export const fault = (name: CodeName, reason: string, at = 0): MooringError => new MooringError(name, reason, { at });

/** A code's forms on the wire: {code, name}, a number, or a name. */
export function codeNameOf(v: unknown): CodeName {
  if (typeof v === "number" || typeof v === "bigint") return nameOf(Number(v));
  if (typeof v === "string") return v as CodeName;
  if (v && typeof v === "object") {
    const o = v as { name?: unknown; code?: unknown };
    if (typeof o.name === "string") return o.name as CodeName;
    if (o.code !== undefined) return codeNameOf(o.code);
  }
  return "none";
}

/** A refusal inside a longer answer ({code, name, message, at}) as an error; undefined for none. */
export function refusalOf(v: unknown): MooringError | undefined {
  if (!v || typeof v !== "object") return undefined;
  const o = v as { code?: unknown; name?: unknown; message?: unknown; at?: unknown };
  const name = codeNameOf(o.name ?? o.code);
  if (name === "none") return undefined;
  return new MooringError(name, stripped(name, String(o.message ?? "")), { at: Number(o.at ?? 0), ...codeNumber(o.code) });
}

/**
 * The MooringError for a call's rejection. Errors without a code come from the link (disconnected), except for
 * TypeErrors, which mean that the two sides' methods differ (incompatible).
 */
export function faultOf(err: unknown): MooringError {
  if (err instanceof MooringError) return err;
  const e = (err ?? {}) as { code?: unknown; codeName?: unknown; at?: unknown; message?: unknown };
  const message = String(e.message ?? err);
  if (typeof e.codeName === "string" && (typeof e.code === "number" || typeof e.code === "bigint")) {
    const name = e.codeName as CodeName;
    return new MooringError(name, stripped(name, message), { at: Number(e.at ?? 0), code: Number(e.code) });
  }
  // Servers send clients that cannot read errors' properties only the message.
  const word = /^([a-z_]+): /.exec(message)?.[1];
  if (word !== undefined && word in codes) {
    return new MooringError(word as CodeName, message.slice(word.length + 2));
  }
  if (err instanceof TypeError) return new MooringError("incompatible", message);
  return new MooringError("disconnected", message);
}

function stripped(name: string, message: string): string {
  return message.startsWith(`${name}: `) ? message.slice(name.length + 2) : message;
}

function codeNumber(v: unknown): { code?: number } {
  const n = typeof v === "object" && v ? (v as { code?: unknown }).code : v;
  return typeof n === "number" || typeof n === "bigint" ? { code: Number(n) } : {};
}

/** Shortens input that a message repeats, to 64 bytes of UTF-8. */
export function clip(s: string): string {
  let bytes = 0, end = 0;
  for (const c of s) {
    const n = c.codePointAt(0)!;
    bytes += n < 0x80 ? 1 : n < 0x800 ? 2 : n < 0x10000 ? 3 : 4;
    if (bytes > 64) return `${s.slice(0, end)}…`;
    end += c.length;
  }
  return s;
}
