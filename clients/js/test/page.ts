// What runs in the page of the browser's tests.

import { jsonText, open, opID, Ref, reference } from "../src/index.browser.js";

const said: string[] = []; // what was waited for
const client = await open({ name: "agent", onWaiting: (reason) => said.push(reason), reconnect: { initial: 10, max: 100 }, outbox: { backoff: { initial: 10, max: 100 } } });

const letters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

function batchID(place: number): string {
  const id = (1795349005259n << 80n) | (BigInt(place) << 16n);
  let out = "";
  for (let i = 125n; i >= 0n; i -= 5n) out += letters[Number((id >> i) & 31n)]!;
  return out;
}

(globalThis as unknown as { agent: unknown }).agent = {
  /** Commits the batches at these places, the first of which creates the session. Again, they are the same. */
  async write(ref: string, owner: string, from: number, to: number): Promise<string[]> {
    const ids: string[] = [];
    for (let i = from; i <= to; i++) {
      ids.push(batchID(i));
      if (i === 0) {
        const { batch } = (await client.space(ref)).create({ owner: Ref.parse(owner), batchID: batchID(0) });
        batch.begin("m", { role: "assistant" });
        batch.put("part/m/p", { type: "text", text: "" });
        batch.appendText("part/m/p", 0, "0ä ");
        await batch.commit();
        continue;
      }
      const b = (await client.session(owner)).batch(batchID(i));
      b.put(`message/${i}`, jsonText(`{"n":  ${i}}`));
      b.appendText("part/m/p", reference(opID(batchID(i - 1), i === 1 ? 3 : 1), "length"), `${i}ä `);
      await b.commit();
    }
    return ids;
  },
  /** Commits so many ops in batches of one, of so many bytes. */
  async fill(owner: string, ops: number, bytes: number): Promise<void> {
    const session = await client.session(owner), text = "x".repeat(bytes);
    for (let n = 0; n < ops; ) {
      const some: Promise<unknown>[] = [];
      for (let i = 0; i < 1000; i++) some.push(session.put(`message/${n++}`, { text }));
      await Promise.all(some);
    }
  },
  said: () => said,
  drain: () => client.drain(),
  rotating: () => client.outbox.rotations().length,
  /** Rotates the session's ref, and gives the new one with what is wrong with the session's log and state. */
  async rotate(owner: string): Promise<[string, unknown]> {
    const { session } = await (await client.session(owner)).rotate();
    return [session.ref.text, (await session.verify()).error?.message];
  },
  status: () => client.status(),
  async reconcile(owner: string, expecting: boolean): Promise<string[]> {
    return (await client.reconcile(Ref.parse(owner).target, { expecting })).ops.map((o) => o.fate);
  },
  statuses: async (batch: string) => (await client.ticket(batch).wait()).outcomes.map((o) => o.status),
  async follow(owner: string, until: number): Promise<number[]> {
    const seen: number[] = [];
    for await (const e of (await client.session(owner)).follow()) {
      seen.push(e.cursor);
      if (e.cursor === until) break;
    }
    return seen;
  },
  /** What is said of a space's server that cannot be reached. */
  async unreached(ref: string): Promise<string> {
    await using other = await open({ name: "unreached", patience: 0 });
    return await (await other.space(ref)).info().then(() => "reached", (err: Error) => err.message);
  },
  async text(owner: string): Promise<string> {
    const state = await (await client.session(owner)).snapshot();
    return (JSON.parse(state.entries.get("part/m/p")!.payload) as { text: string }).text;
  },
};
