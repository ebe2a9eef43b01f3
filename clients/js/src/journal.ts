// The outbox of a Node process: a file to which every write appends one line, forced to the disk before it is acknowledged.
//
// A line is the CRC-32 of a JSON text in eight hexadecimal digits, a space, that text, a newline; the text is a list of
// changes, applied together. A process that dies while it writes leaves at most one incomplete line,
// the last one, which was not acknowledged: it is cut off. A damaged line before the last was
// acknowledged, and is an error. A journal that is mostly history is rewritten into a new file that replaces it.

import * as fs from "node:fs/promises";
import * as path from "node:path";
import { fault } from "./fault.js";
import { lockFolder } from "./lockfile.js";
import type { JournalOptions } from "./options.js";
import { type Change, Store, storageError } from "./store.js";

const fileName = "outbox.journal";
const newName = "outbox.journal.new";
const format = { format: "mooring outbox journal", version: 1 };

/** Below this size an open journal is not rewritten. */
const compactFrom = 4 << 20;

/** Rows in a folder that the process has locked. */
export class JournalStore extends Store {
  readonly #folder: string;
  readonly #unlock: () => Promise<void>;
  readonly #compactFrom: number;
  #file: fs.FileHandle;
  #size: number;
  #whole: number; // its size after it was last rewritten

  private constructor(folder: string, unlock: () => Promise<void>, file: fs.FileHandle, size: number, options: JournalOptions) {
    super();
    this.#folder = folder;
    this.#unlock = unlock;
    this.#file = file;
    this.#size = this.#whole = size;
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
      const data = await readAll(file);
      const { groups, end } = recover(data);
      if (end < data.length) {
        await file.truncate(end);
        await file.datasync();
      }
      const store = new JournalStore(folder, unlock, file, end, options);
      for (const g of groups) for (const c of g) store.tables.apply(c);
      if (end === 0) await store.#append(line(format));
      // A process that died after making or replacing the file may not have synced its folder.
      await syncFolder(folder);
      store.#whole = store.tables.all().reduce((n, c) => n + JSON.stringify(c).length, 0);
      if (store.#stale()) await store.#compact();
      return store;
    } catch (err) {
      await file?.close();
      await unlock?.();
      throw storageError("open the outbox", err);
    }
  }

  protected override async write(run: () => Change[]): Promise<void> {
    const changes = run();
    if (changes.length === 0) return;
    await this.#append(line(changes));
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
    const lines = [line(format)];
    const rows = this.tables.all();
    for (let i = 0; i < rows.length; i += 256) lines.push(line(rows.slice(i, i + 256)));
    const text = Buffer.concat(lines);
    const name = path.join(this.#folder, newName);
    const file = await fs.open(name, "ax", 0o600);
    try {
      await file.appendFile(text);
      await file.sync();
      await fs.rename(name, path.join(this.#folder, fileName));
    } catch (err) {
      await file.close();
      await fs.rm(name, { force: true });
      throw err;
    }
    const old = this.#file;
    this.#file = file;
    this.#size = this.#whole = text.length;
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

/** Reads a journal: its groups of changes, and where its complete lines end. internal if acknowledged lines are damaged. */
export function recover(data: Buffer): { groups: Change[][]; end: number } {
  const groups: Change[][] = [];
  let at = 0;
  while (at < data.length) {
    const newline = data.indexOf(0x0a, at);
    const value = newline < 0 ? undefined : readLine(data.subarray(at, newline));
    if (value === undefined) {
      if (newline >= 0 && wholeLineAfter(data, at + 1)) {
        throw fault("internal", `the outbox's journal is damaged at byte ${at}, before its end: put the file aside, to look at, and open the outbox again: it begins anew, and what it had and no server has is lost`);
      }
      break;
    }
    if (at === 0) {
      const head = value as Partial<typeof format>;
      if (head.format !== format.format) throw fault("internal", "the file is not an outbox's journal");
      if (head.version !== format.version) throw fault("incompatible", `the outbox's journal is of version ${String(head.version)}, this client reads ${format.version}`);
    } else groups.push(value as Change[]);
    at = newline + 1;
  }
  return { groups, end: at };
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
  if (!/^[0-9a-f]{8}$/.test(sum) || crc32(body) !== parseInt(sum, 16)) return undefined;
  try {
    return JSON.parse(body.toString("utf8")) as unknown;
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

/** A file's contents, also above the 2 GiB that readFile can read. */
async function readAll(file: fs.FileHandle): Promise<Buffer> {
  const data = Buffer.allocUnsafe((await file.stat()).size);
  let at = 0;
  while (at < data.length) {
    const { bytesRead } = await file.read(data, at, Math.min(data.length - at, 1 << 28), at);
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
