// The outbox of a Node process: a file to which every write appends one line, forced to the disk before it is acknowledged.
//
// A line is the CRC-32 of a JSON text in eight hexadecimal digits, a space, that text, a newline; the text is a list of
// changes, applied together. A process that dies while it writes leaves at most one incomplete line,
// the last one, which was not acknowledged: it is cut off. A damaged line before the last was
// acknowledged, and is an error. A journal that is mostly history is rewritten into a new file that replaces it.
//
// The arguments of ops are in the file alone: a row knows at which byte its ops begin, wherever in a line that is, and how many bytes
// they have. Reads and writes take turns, so a file that replaces another does so between reads.

import * as fs from "node:fs/promises";
import * as path from "node:path";
import { fault } from "./fault.js";
import { lockFolder } from "./lockfile.js";
import type { JournalOptions } from "./options.js";
import { isWhole, type OpRow, type Packed, type StoredRow } from "./rows.js";
import { type Change, checked, opsIn, type ReadOps, Store, storageError } from "./store.js";

const fileName = "outbox.journal";
const newName = "outbox.journal.new";
const format = { format: "mooring outbox journal", version: 1 };

/** Below this size an open journal is not rewritten. */
const compactFrom = 4 << 20;

/** How much is read at once, at least, and how far apart rows may be that are read together. */
const readMost = 4 << 20, readGap = 16 << 10;

/** About what the file has of a row, besides arguments and outcomes. */
const rowBytes = 400;

const lineRows = 256, lineBytes = 1 << 20; // of a line of a journal written anew

/** Rows in a folder that the process has locked. */
export class JournalStore extends Store {
  readonly #folder: string;
  readonly #unlock: () => Promise<void>;
  readonly #compactFrom: number;
  #file: fs.FileHandle;
  #size: number;
  #whole: number; // its size after it was last rewritten

  private constructor(folder: string, unlock: () => Promise<void>, file: fs.FileHandle, options: JournalOptions) {
    super();
    this.#folder = folder;
    this.#unlock = unlock;
    this.#file = file;
    this.#size = this.#whole = 0;
    this.#compactFrom = options.compactFrom ?? compactFrom;
  }

  /** Opens the outbox in a folder, a new one if there is none. in_use if another process has it open. */
  static async open(folder: string, options: JournalOptions = {}): Promise<JournalStore> {
    let unlock: (() => Promise<void>) | undefined, file: fs.FileHandle | undefined;
    try {
      const made = await fs.mkdir(folder, { recursive: true, mode: 0o700 });
      // Every new folder is an entry of its parent, which has to be synced.
      for (let up = path.resolve(folder); made !== undefined && up.length >= path.resolve(made).length; ) await syncFolder(up = path.dirname(up));
      await checkOwners(folder);
      unlock = await lockFolder(folder);
      await fs.rm(path.join(folder, newName), { force: true });
      const name = path.join(folder, fileName);
      file = await fs.open(name, "a+", 0o600);
      await file.chmod(0o600);
      const store = new JournalStore(folder, unlock, file, options), all = (await file.stat()).size;
      await store.#recover(all);
      if (store.#size < all) {
        await file.truncate(store.#size);
        await file.datasync();
      }
      if (store.#size === 0) await store.#append(line(format));
      // A process that died after making or replacing the file may not have synced its folder.
      await syncFolder(folder);
      store.#whole = store.tables.others().reduce((n, c) => n + JSON.stringify(c).length, 0);
      for (const r of store.tables.batches.values()) store.#whole += rowBytes + r.bytes + (r.outcomes ? JSON.stringify(r.outcomes).length : 0);
      if (store.#stale()) await store.#compact();
      return store;
    } catch (err) {
      await file?.close();
      await unlock?.();
      throw storageError("open the outbox", err);
    }
  }

  /** Applies the file's lines, and finds their end. */
  async #recover(all: number): Promise<void> {
    for (let most = readMost; this.#size < all; ) {
      const data = await readAt(this.#file, this.#size, Math.min(most, all - this.#size));
      const { groups, starts, end } = recover(data, this.#size, this.#size + data.length < all);
      for (const [i, g] of groups.entries()) {
        for (const c of g) this.tables.apply(c);
        this.#pack(g, data.subarray(starts[i], starts[i + 1] ?? end), this.#size + starts[i]!);
      }
      this.#size += end;
      if (this.#size + data.length - end === all) return;
      if (end === 0) most *= 2; // a line that is longer, or one that is damaged
    }
  }

  /** Packs the ops of a line that is at a place of the file. */
  #pack(changes: readonly Change[], text: Buffer, at: number): void {
    for (const { k, ops, from, size } of placesOf(changes, text)) this.tables.pack(k, ops, at + from, size);
  }

  protected override async read(rows: readonly StoredRow[]): Promise<ReadOps[]> {
    const out: ReadOps[] = [], place = (r: StoredRow): Packed => r.ops as Packed;
    const sorted = [...rows].sort((a, b) => place(a).at - place(b).at);
    for (let i = 0; i < sorted.length; ) {
      const from = place(sorted[i]!).at;
      let to = from, end = i;
      for (; end < sorted.length; end++) {
        const { at, size } = place(sorted[end]!);
        if (end > i && (at > to + readGap || at + size > from + readMost)) break;
        to = Math.max(to, at + size);
      }
      const data = await readAt(this.#file, from, to - from);
      for (; i < end; i++) {
        const { at, size } = place(sorted[i]!);
        out.push(checked(sorted[i]!, parsed(data.subarray(at - from, at - from + size))));
      }
    }
    return out;
  }

  protected override async write(run: () => Change[]): Promise<void> {
    const changes = run();
    if (changes.length === 0) return;
    const text = line(changes), at = this.#size;
    await this.#append(text);
    this.#pack(changes, text, at);
    if (this.#stale()) {
      // The write is durable: an error of compaction is not the caller's.
      await this.#compact().catch(() => { this.#whole = this.#size; });
    }
  }

  async #append(text: Buffer): Promise<void> {
    try {
      await this.#file.appendFile(text);
    } catch (err) {
      await this.#file.truncate(this.#size).catch(() => this.#giveUp());
      throw storageError("write to the outbox", err);
    }
    try {
      await this.#file.datasync();
    } catch (err) {
      this.#giveUp(); // the file's contents after this point are unknown
      // The caller gets the error and may write again, so the next process must not find this line.
      await this.#file.truncate(this.#size).catch(() => {});
      throw storageError("write to the outbox", err);
    }
    this.#size += text.length;
  }

  #giveUp(): void {
    this.breakWith(fault("unavailable", "the outbox's file failed while it was written: open it again"));
  }

  #stale(): boolean {
    return this.#size > this.#compactFrom && this.#size > 4 * this.#whole;
  }

  /** Writes the rows into a new file that replaces the old one. */
  async #compact(): Promise<void> {
    const name = path.join(this.#folder, newName), file = await fs.open(name, "ax+", 0o600), moved: [Packed, number][] = [];
    let size = 0;
    const put = async (text: Buffer): Promise<void> => {
      await file.appendFile(text);
      size += text.length;
    };
    try {
      await put(line(format));
      for (const some of inLines(this.tables.batches.values())) {
        const ops = new Map((await this.read(some.filter((r) => !isWhole(r)))).map((r) => [r.from, r.ops]));
        const changes = some.map((r): Change => ({ t: "batch", k: r.id, v: { ...r, ops: isWhole(r) ? r.ops : ops.get(r.ops)! } })), text = line(changes);
        for (const [i, { from }] of placesOf(changes, text).entries()) if (!isWhole(some[i]!)) moved.push([some[i]!.ops as Packed, size + from]);
        await put(text);
      }
      const others = this.tables.others();
      for (let i = 0; i < others.length; i += lineRows) await put(line(others.slice(i, i + lineRows)));
      await file.sync();
      await fs.rename(name, path.join(this.#folder, fileName));
    } catch (err) {
      await file.close();
      await fs.rm(name, { force: true });
      throw err;
    }
    const old = this.#file;
    this.#file = file;
    this.#size = this.#whole = size;
    for (const [ops, at] of moved) ops.at = at;
    await old.close().catch(() => {});
    try {
      await syncFolder(this.#folder);
    } catch (err) {
      this.#giveUp(); // which of the files a power cut leaves is unknown, and only the new one would continue
      throw err;
    }
  }

  override async lead(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted(); // the folder's lock is held
  }

  override async close(): Promise<void> {
    await this.idle();
    this.breakWith(fault("canceled", "the outbox is closed"));
    await this.#file.close();
    await this.#unlock();
  }
}

async function syncFolder(folder: string): Promise<void> {
  if (process.platform === "win32") return; // folders cannot be opened there
  const dir = await fs.open(folder, "r");
  try {
    await dir.sync();
  } finally {
    await dir.close();
  }
}

/** One line of a journal. */
export function line(value: unknown): Buffer {
  const text = Buffer.from(JSON.stringify(value), "utf8");
  return Buffer.concat([Buffer.from(`${crc32(text).toString(16).padStart(8, "0")} `, "latin1"), text, Buffer.from("\n")]);
}

const opsKey = '"ops":'; // which in a line nothing else has: a string has other quotes

/** Where in a line the ops of its changes are; none if another program has written it in such a form that they are not found: they stay in memory. */
function placesOf(changes: readonly Change[], text: Buffer): { k: string; ops: readonly OpRow[]; from: number; size: number }[] {
  const out = [];
  let end = 0;
  for (const c of changes) {
    const ops = opsIn(c);
    if (!ops) continue;
    const from = text.indexOf(opsKey, end) + opsKey.length;
    if (from < opsKey.length) return [];
    end = endOf(text, from);
    out.push({ k: c.k, ops, from, size: end - from });
  }
  return out;
}

/** Where the JSON array ends that begins at a place of a text. */
function endOf(text: Buffer, at: number): number {
  for (let depth = 0, quoted = false; at < text.length; at++) {
    const c = text[at];
    if (quoted && c === 0x5c) at++; // a backslash
    else if (c === 0x22) quoted = !quoted;
    else if (quoted) continue;
    else if (c === 0x5b || c === 0x7b) depth++;
    else if ((c === 0x5d || c === 0x7d) && --depth === 0) return at + 1;
  }
  return text.length;
}

/** Rows in as many as are written in a line. */
function* inLines(rows: Iterable<StoredRow>): Generator<StoredRow[]> {
  let some: StoredRow[] = [], bytes = 0;
  for (const r of rows) {
    some.push(r);
    bytes += r.bytes;
    if (some.length < lineRows && bytes < lineBytes) continue;
    yield some;
    some = [];
    bytes = 0;
  }
  if (some.length > 0) yield some;
}

/**
 * Reads a journal, or a part of one that begins at some byte, of which more may follow: its groups of changes, where each line begins, and where its complete
 * lines end. internal if acknowledged lines are damaged.
 */
export function recover(data: Buffer, base = 0, more = false): { groups: Change[][]; starts: number[]; end: number } {
  const groups: Change[][] = [], starts: number[] = [];
  let at = 0;
  while (at < data.length) {
    const newline = data.indexOf(0x0a, at);
    const value = newline < 0 ? undefined : readLine(data.subarray(at, newline));
    if (value === undefined) {
      if (more) break; // what follows decides
      if (newline >= 0 && wholeLineAfter(data, at + 1)) {
        throw fault("internal", `the outbox's journal is damaged at byte ${base + at}, before its end: put the file aside, to look at, and open the outbox again: it begins anew, and what it had and no server has is lost`);
      }
      break;
    }
    if (base + at === 0) {
      const head = value as Partial<typeof format>;
      if (head.format !== format.format) throw fault("internal", "the file is not an outbox's journal");
      if (head.version !== format.version) throw fault("incompatible", `the outbox's journal is of version ${String(head.version)}, this client reads ${format.version}`);
    } else {
      groups.push(value as Change[]);
      starts.push(at);
    }
    at = newline + 1;
  }
  return { groups, starts, end: at };
}

/** Whether a complete line begins anywhere from at on: after a newline or a damaged part. */
function wholeLineAfter(data: Buffer, at: number): boolean {
  for (let space; (space = data.indexOf(" [", at)) >= 0; at = space + 1) {
    const newline = data.indexOf(0x0a, space);
    if (newline < 0) return false;
    if (space - 8 >= at - 1 && readLine(data.subarray(space - 8, newline)) !== undefined) return true;
  }
  return false;
}

function readLine(text: Buffer): unknown {
  if (text.length < 10 || text[8] !== 0x20) return undefined;
  const body = text.subarray(9), sum = text.toString("latin1", 0, 8);
  return /^[0-9a-f]{8}$/.test(sum) && crc32(body) === parseInt(sum, 16) ? parsed(body) : undefined;
}

function parsed(text: Buffer): unknown {
  try {
    return JSON.parse(text.toString("utf8")) as unknown;
  } catch {
    return undefined;
  }
}

const crcTable = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let k = 0; k < 8; k++) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1;
  return n >>> 0;
});

/** CRC-32 as in gzip. */
export function crc32(data: Uint8Array): number {
  let c = 0xffffffff;
  for (let i = 0; i < data.length; i++) c = crcTable[(c ^ data[i]!) & 255]! ^ (c >>> 8);
  return (c ^ 0xffffffff) >>> 0;
}

/** The bytes of a file from a place on; fewer where it ends. */
async function readAt(file: fs.FileHandle, from: number, size: number): Promise<Buffer> {
  const data = Buffer.allocUnsafe(size);
  let at = 0;
  while (at < size) {
    const { bytesRead } = await file.read(data, at, Math.min(size - at, 1 << 28), from + at);
    if (bytesRead === 0) break;
    at += bytesRead;
  }
  return data.subarray(0, at);
}

/** Throws usage for a folder that another user owns or all may write to, or with another user's file or link in it: it will have secrets. */
async function checkOwners(folder: string): Promise<void> {
  const user = process.geteuid?.();
  if (user === undefined) return; // this system has no file owners
  const info = await fs.stat(folder);
  if (info.uid !== user) throw fault("usage", `the home folder belongs to another user (id ${info.uid}, yours is ${user}): name a folder of your own`);
  if (info.mode & 0o002) throw fault("usage", "every user may write to the home folder: run chmod go-w on it, or name another");
  for (const name of [fileName, newName]) {
    const of = await fs.lstat(path.join(folder, name)).catch(() => undefined);
    if (of && of.uid !== user && of.uid !== 0) {
      throw fault("usage", `${name} in the home folder belongs to another user (id ${of.uid}, yours is ${user}), who may have planted it: look at it, and remove it`);
    }
  }
}
