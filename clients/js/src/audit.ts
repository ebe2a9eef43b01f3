// The audit: the calls and ops under each ref, page by page, and its hash chain.

import { sleep, type Client, type Waiting } from "./client.js";
import { ChainVerifier, type ChainRow, flawText, readHash } from "./chain.js";
import { Digest, isHash, sameHash } from "./digest.js";
import { type CodeName, codeNameOf, codes, fault, faultOf, type MooringError } from "./fault.js";
import { type Held, reached } from "./link.js";
import { num, str } from "./session.js";
import { dispose, type Struct } from "./wire.js";

/** What is audited; a server of a later version may have others. */
const acts = ["redeem", "share", "save", "revoke", "bump", "denial", "stranger", "use", "expiry", "rotate", "delete", "purge", "manage", "webhook", "unhook"] as const;

/** The kind of a row of the audit: use counts calls and ops, and denial and stranger (a wrong secret) what was refused. */
export type AuditAct = (typeof acts)[number] | "unknown";

/** A row of the audit of a session or space: what was done under which ref. */
export interface AuditRow {
  /** 1, 2, 3 … */
  readonly seq: number;
  /** Unix milliseconds. */
  readonly at: number;
  readonly act: AuditAct;
  /** The id of the ref under which it was done; for a redemption the ref itself. */
  readonly ref: string;
  readonly actor: string;
  /** The id of the ref to which it was done; for a use or denial the method. */
  readonly subject: string;
  /** Why it was refused; "none" if it was done. */
  readonly reason: CodeName;
  /** The id of the op, if it was one. */
  readonly op: string;
  /** The session's cursor after it. */
  readonly cursor: number;
  /** How many acts, where a row counts some; 0 is one. */
  readonly count: number;
  /** The caller's address; "" for several callers, or none. */
  readonly peer: string;
  /** Over the row before and this one. */
  readonly hash: Uint8Array;
}

/** Which rows of an audit are read. */
export interface AuditOptions extends Waiting {
  /** The last row that one has; by default from the start. */
  after?: number;
  /** The hash of that row, which detects that the server was restored from a backup and has other rows after it. */
  hash?: Uint8Array;
  /** At most so many rows. */
  limit?: number;
  /** Continues with rows that are added later, until the signal fires. */
  follow?: boolean;
  /** How often it then looks for them, in milliseconds; default 1000. */
  interval?: number;
}

/** The result of verifyAudit. */
export interface AuditVerification {
  /** The number of the last row, and its hash: kept elsewhere, it detects an audit that was rewritten later. */
  seq: number;
  head: Uint8Array;
  /** Rows that were changed, are missing or are out of order, each as a text with the row's number. */
  findings: { row: number; text: string }[];
}

/** A row, and how its hash is made. */
interface Read extends ChainRow {
  readonly row: AuditRow;
}

interface Page {
  readonly rows: Read[];
  /** The audit's last row, and its hash. */
  readonly seq: number;
  readonly head: Uint8Array;
}

async function readPage(client: Client, held: Held, after: number, limit: number, waiting: Waiting): Promise<Page> {
  return client.call(held, async (live) => {
    const answer = (await live["audit"]!(after, limit)) as Struct;
    const page = { rows: ((answer["rows"] ?? []) as Struct[]).map((r) => readRow(reached(held), r)), seq: num(answer["seq"]), head: readHash(answer["head"]) };
    dispose(answer);
    return page;
  }, waiting);
}

function readRow(target: string, r: Struct): Read {
  const row: AuditRow = {
    seq: num(r["seq"]), at: num(r["at"]), act: str(r["act"]) as AuditAct, ref: str(r["ref"]), actor: str(r["actor"]), subject: str(r["subject"]),
    reason: codeNameOf(r["reason"]), op: str(r["op"]), cursor: num(r["cursor"]), count: num(r["count"]), peer: str(r["peer"]), hash: readHash(r["hash"]),
  };
  const code = num((r["reason"] as Struct | null | undefined)?.["code"] ?? codes[row.reason]);
  return { row, seq: row.seq, hash: row.hash, sum: (prev, seq) => hashAuditRow(prev, target, { ...row, seq }, code) };
}

/** The hash of a row of a target's audit over that of the row before it; undefined if this client does not know its act. code: the reason's. */
export function hashAuditRow(prev: Uint8Array, target: string, r: Omit<AuditRow, "hash">, code: number): Uint8Array | undefined {
  const act = (acts as readonly string[]).indexOf(r.act) + 1;
  if (act === 0) return undefined;
  return new Digest("mooring audit v1").hash(prev).text(target).num(r.seq).num(r.at).num(act).text(r.ref).text(r.actor).text(r.subject)
    .num(code).text(r.op).num(r.cursor).num(r.count).text(r.peer).sum();
}

/** Why a page does not continue the audit from which row seq, of that hash if one is known, was read; undefined if it does. */
function astray(page: Page, seq: number, hash: Uint8Array | undefined): MooringError | undefined {
  if (page.seq < seq) return fault("server_behind", `the audit ends at row ${page.seq}: the server was restored to before row ${seq}`, page.seq);
  if (!isHash(hash)) return undefined;
  const first = page.rows[0], sum = first?.sum(hash, first.seq);
  if ((page.seq !== seq || sameHash(page.head, hash)) && (first === undefined || sum === undefined || sameHash(sum, first.hash))) return undefined;
  return fault("server_behind", `the audit does not go on from the row ${seq} that was seen: the server was restored to before it, or rows were changed by hand (verifyAudit)`);
}

/** Session.audit and Space.audit. */
export async function* readAudit(client: Client, held: Held, options: AuditOptions): AsyncGenerator<AuditRow, void, void> {
  const { after = 0, limit = Infinity, follow = false, interval = 1000, ...waiting } = options;
  const whole = (name: string, v: number, least: number): void => {
    if (!Number.isSafeInteger(v) || v < least) throw fault("bad_argument", `${name} is a whole number, and at least ${least}`);
  };
  whole("after", after, 0);
  if (limit !== Infinity) whole("limit", limit, 1);
  whole("interval", interval, 1);
  if (options.hash !== undefined && options.hash.length !== 32) throw fault("bad_argument", "hash is the hash of the row after which to read: 32 bytes");
  let at = after, hash = options.hash, left = limit, end = follow ? Infinity : -1;
  while (left > 0) {
    let page: Page;
    try {
      page = await readPage(client, held, at, left < 1000 ? left : 0, waiting);
    } catch (err) {
      if (follow && waiting.signal?.aborted) return;
      if (!follow || client.life.aborted || !faultOf(err).transient) throw err;
      await sleep(interval, client.outbox, waiting.signal);
      continue;
    }
    const wrong = astray(page, at, hash);
    if (wrong) throw wrong;
    if (end === -1) end = page.seq; // without follow, what is there now
    for (const { row } of page.rows) {
      if (row.seq > end || left === 0) break;
      left--;
      ({ seq: at, hash } = row);
      yield row;
    }
    if (left === 0 || at >= end) return;
    if (page.rows.length > 0 && at < page.seq) continue;
    if (!follow) return;
    await sleep(interval, client.outbox, waiting.signal);
  }
}

/** Session.verifyAudit and Space.verifyAudit. */
export async function verifyAudit(client: Client, held: Held, waiting: Waiting): Promise<AuditVerification> {
  const chain = new ChainVerifier();
  for (;;) {
    const before = chain.seq, page = await readPage(client, held, before, 0, waiting);
    for (const r of page.rows) chain.add(r);
    if (chain.seq > before && chain.seq < page.seq) continue;
    return { seq: page.seq, head: page.head, findings: chain.end(page.seq, page.head).map((f) => ({ row: f.seq, text: flawText(f, "audit row") })) };
  }
}
