// A process that writes a session, to be killed at any moment: writer.js HOME REF OWNER BATCHES
//
// Run again it does the same again; batches that are there already are the same ones. Every batch puts a message and
// adds to a text at the place where the batch before left it, which is a reference to that one's result.

import { setTimeout as sleep } from "node:timers/promises";
import { jsonText, open, opID, Ref, reference } from "../src/index.js";

const letters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/** The id of the batch at a place. */
export function batchID(place: number): string {
  const id = (1795349005259n << 80n) | (BigInt(place) << 16n);
  let out = "";
  for (let i = 125n; i >= 0n; i -= 5n) out += letters[Number((id >> i) & 31n)]!;
  return out;
}

export const piece = (place: number): string => `${place}ä `;

if (process.argv[1]?.endsWith("writer.js")) {
  const [, , home, ref, owner, batches] = process.argv as unknown as [string, string, string, string, string, string];
  const client = await open({ home, reconnect: { initial: 5, max: 50 }, outbox: { backoff: { initial: 5, max: 50 }, window: { batches: 8 } } });
  const space = await client.space(ref);
  const { session, batch } = space.create({ owner: Ref.parse(owner), batchID: batchID(0) });
  batch.begin("m", { role: "assistant" });
  batch.put("part/m/p", { type: "text", text: "" });
  batch.appendText("part/m/p", 0, piece(0));
  await batch.commit();
  console.log("committing");
  for (let i = 1; i <= Number(batches); i++) {
    const b = session.batch(batchID(i));
    b.put(`message/${i}`, jsonText(`{"n":  ${i}}`));
    b.put("session", { at: i });
    const before = opID(batchID(i - 1), i === 1 ? 3 : 2);
    b.appendText("part/m/p", reference(before, "length"), piece(i));
    await b.commit();
    if (i % 5 === 0) await sleep(1);
  }
  await client.drain();
  await client.close();
  console.log("done");
}
