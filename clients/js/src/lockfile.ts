// Lock files for one process at a time: a dead holder's lock can be taken over without a race.
//
// They are numbered, FOLDER/outbox.lock.N; the highest one holds the lock. It is made by linking a
// complete file to its name, which succeeds for one process only. A dead holder's number is not reused while its
// file exists: its successor makes the next one, checks that no higher one has appeared, and then removes the
// older ones.

import * as fs from "node:fs/promises";
import * as os from "node:os";
import * as path from "node:path";
import { fault } from "./fault.js";
import { newULID } from "./ulid.js";

interface Holder {
  pid: number;
  start: string; // when that process began, if the system says
  host: string;
  token: string;
}

const prefix = "outbox.lock.";
const unfinished = "outbox.locking."; // before it is linked

/** Takes the lock of a folder and gives what releases it. in_use if another process, or this one, holds it. */
export async function lockFolder(folder: string): Promise<() => Promise<void>> {
  const me: Holder = { pid: process.pid, start: (await startOf(process.pid)) ?? "", host: os.hostname(), token: newULID() };
  const mine = path.join(folder, unfinished + me.token);
  try {
    // It is forced to the disk: a lock that is empty after a power cut would have to be removed by hand.
    await fs.writeFile(mine, JSON.stringify(me), { flag: "wx", mode: 0o600, flush: true });
    for (;;) {
      const numbers = await numbersIn(folder);
      const highest = numbers.at(-1) ?? 0;
      if (highest > 0) {
        const holder = await readHolder(folder, highest);
        if (holder === undefined) continue; // it was removed meanwhile
        if (await alive(holder)) {
          const away = holder.host === os.hostname() ? "" : `; if it has ended, which cannot be seen from here, remove ${prefix}${highest} in home`;
          throw fault("in_use", `another process (${holder.pid} on ${holder.host}) has this outbox open: close it, or give this one a home folder of its own${away}`);
        }
      }
      const name = path.join(folder, prefix + String(highest + 1));
      if (!(await make(name, mine, me))) continue;
      const now = await numbersIn(folder);
      if (now.at(-1) !== highest + 1) {
        await remove(name); // another process has a higher one
        continue;
      }
      for (const n of now) if (n <= highest) await remove(path.join(folder, prefix + String(n)));
      await removeUnfinished(folder);
      return () => remove(name);
    }
  } finally {
    await remove(mine);
  }
}

/** Links a complete file to a lock file's name; false if that exists. */
async function make(name: string, mine: string, me: Holder): Promise<boolean> {
  try {
    await fs.link(mine, name);
    return true;
  } catch (err) {
    const { code } = err as NodeJS.ErrnoException;
    if (code === "EEXIST") return false;
    if (code !== "EPERM" && code !== "ENOTSUP" && code !== "ENOSYS") throw err;
  }
  // A file system without links: the file is incomplete for a moment, and counts as held then.
  try {
    await fs.writeFile(name, JSON.stringify(me), { flag: "wx", mode: 0o600 });
    return true;
  } catch (err) {
    if ((err as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw err;
  }
}

/** Removes files of processes that died while they took the lock. */
async function removeUnfinished(folder: string): Promise<void> {
  for (const name of await fs.readdir(folder)) {
    if (!name.startsWith(unfinished)) continue;
    const text = await fs.readFile(path.join(folder, name), "utf8").catch(() => undefined);
    if (text === undefined) continue;
    let holder: Holder | undefined;
    try {
      holder = JSON.parse(text) as Holder;
    } catch {
      // its process died while writing it, or is about to write it
      const { mtimeMs } = await fs.stat(path.join(folder, name)).catch(() => ({ mtimeMs: Date.now() }));
      if (Date.now() - mtimeMs < 60_000) continue;
    }
    if (holder === undefined || !(await alive(holder))) await remove(path.join(folder, name));
  }
}

async function numbersIn(folder: string): Promise<number[]> {
  const names = await fs.readdir(folder);
  const numbers = names.filter((n) => n.startsWith(prefix)).map((n) => Number(n.slice(prefix.length)));
  return numbers.filter((n) => Number.isSafeInteger(n) && n > 0).sort((a, b) => a - b);
}

async function readHolder(folder: string, n: number): Promise<Holder | undefined> {
  try {
    return JSON.parse(await fs.readFile(path.join(folder, prefix + String(n)), "utf8")) as Holder;
  } catch (err) {
    if ((err as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw fault("in_use", `the lock file ${prefix}${n} cannot be read: if no process uses this outbox, remove it`);
  }
}

/** Whether a lock's holder is running. Holders on other machines count as running. */
async function alive(h: Holder): Promise<boolean> {
  if (h.host !== os.hostname()) return true;
  try {
    process.kill(h.pid, 0);
  } catch (err) {
    if ((err as NodeJS.ErrnoException).code === "ESRCH") return false;
  }
  const start = await startOf(h.pid);
  return start === undefined || h.start === "" || start === h.start; // else another process has the number now
}

/** When a process began, where the system tells (Linux). Zombies have ended. */
async function startOf(pid: number): Promise<string | undefined> {
  try {
    const [stat, boot] = await Promise.all([fs.readFile(`/proc/${pid}/stat`, "latin1"), fs.readFile("/proc/sys/kernel/random/boot_id", "latin1")]);
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return fields[0] === "Z" ? "ended" : `${boot.trim()} ${fields[19]}`;
  } catch {
    return undefined;
  }
}

async function remove(name: string): Promise<void> {
  await fs.rm(name, { force: true });
}
