// A process that commits what no server gets, and says how much memory that takes: unsent.js HOME OPS BATCH BYTES. Needs --expose-gc.
//
// How the disk is forced makes no difference to memory, so it is not.

import * as fs from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { JournalStore } from "../src/journal.js";
import { Outbox } from "../src/outbox.js";
import { Ref } from "../src/ref.js";

const [, , home, ops, batch, bytes] = process.argv as unknown as [string, string, string, string, string, string];
const h = await fs.open(fileURLToPath(import.meta.url));
(Object.getPrototypeOf(h) as { datasync(): Promise<void> }).datasync = () => Promise.resolve();
await h.close();

const space = Ref.parse(`mooring://localhost/spc_01M7XHZXQMGNPZVGCRHFRZXZNW.ocapurnajy5xoc62kp6aymbx4ee#${"A".repeat(43)}`);
const ref = space.for("ses_01M81J7GST9DWMXM945JE8CXTV");
let box = await Outbox.open(await JournalStore.open(home));
await box.putRef(ref, { role: "owner" });

/** Heap and external memory in MB, once what nobody refers to is gone. */
async function used(): Promise<number> {
  for (let i = 0; i < 4; i++) {
    (globalThis as unknown as { gc(): void }).gc();
    await new Promise((r) => setTimeout(r, 10));
  }
  const m = process.memoryUsage();
  return (m.heapUsed + m.external) / 1e6;
}

const before = await used(), payload = JSON.stringify({ text: "x".repeat(Number(bytes)) });
for (let n = 0; n < Number(ops); ) {
  const some = [];
  for (let i = 0; i < 500 && n < Number(ops); i++) {
    const put = () => ({ method: "put", args: [{ name: "key", json: `"message/${n++}"` }, { name: "payload", json: payload }] });
    some.push(box.commit({ session: ref.target, ops: Array.from({ length: Number(batch) }, put) }));
  }
  await Promise.all(some);
}
const committed = await used() - before;
await box.close();
box = await Outbox.open(await JournalStore.open(home));
const reopened = await used() - before;
console.log(JSON.stringify({ pending: box.status().pending, committed, reopened }));
await box.close();
