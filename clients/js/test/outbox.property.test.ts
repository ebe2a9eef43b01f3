// Random batches with references into each other, over links that break, swallow answers and refuse for a while, by
// processes that crash at any point: every op has the outcome that a sequential model gives it, took effect once, and in
// order. A failure prints the seed to run it again with.

import assert from "node:assert/strict";
import * as fs from "node:fs/promises";
import * as os from "node:os";
import * as path from "node:path";
import { test } from "node:test";
import { fault } from "../src/fault.js";
import type { Arg, Outcome, Status } from "../src/intent.js";
import { JournalStore, recover } from "../src/journal.js";
import { Outbox } from "../src/outbox.js";
import type { NewBatch, Op } from "../src/outbox_types.js";
import { Ref } from "../src/ref.js";
import type { Link, LinkStream, StreamRequest } from "../src/link.js";
import { newBatchID, newULID, opID } from "../src/ulid.js";
import { full } from "./full.js";
import { LedgerServer } from "./ledger.js";
import { firstSeed, numbers } from "./seed.js";

interface ModelOp {
  id: string;
  method: string;
  needs: string[];
  atomicWith?: string[];
  dropped: boolean;
}

const base = Ref.parse(`mooring://localhost/spc_01M7XHZXQMGNPZVGCRHFRZXZNW.ocapurnajy5xoc62kp6aymbx4ee#${"A".repeat(43)}`);

/** How much of each file is on the disk: what a power cut leaves. Forcing it takes a moment. */
const synced = new Map<number, number>();
{
  const h = await fs.open(new URL(import.meta.url));
  const proto = Object.getPrototypeOf(h) as { datasync(): Promise<void>; sync(): Promise<void>; stat(): Promise<{ ino: number; size: number }> };
  await h.close();
  for (const how of ["datasync", "sync"] as const) {
    const force = proto[how];
    proto[how] = async function () {
      const { ino, size } = await this.stat();
      await new Promise((r) => setTimeout(r, Math.random() * 4));
      await force.call(this);
      synced.set(ino, size);
    };
  }
}

/** The link of a process that dies: nothing goes out any more. */
class Mortal implements Link {
  dead = false;

  constructor(readonly server: Link) {}

  async openStream(req: StreamRequest): Promise<LinkStream> {
    if (this.dead) throw fault("disconnected", "dead");
    const s = await this.server.openStream(req), { apply, acknowledge } = s;
    s.acknowledge = (through) => { if (!this.dead) acknowledge(through); };
    s.apply = (batch) => (this.dead ? Promise.resolve({ err: fault("disconnected", "dead") }) : apply(batch));
    return s;
  }
}

async function history(seed: number, dir: string): Promise<void> {
  const random = numbers(seed), pick = (n: number): number => Math.floor(random() * n), happens = (percent: number): boolean => random() * 100 < percent;
  let calm = false;
  const server = new LedgerServer({
    open: () => (calm ? undefined : happens(5) ? fault("unavailable", "away") : happens(3) ? fault("overloaded", "busy") : undefined),
    before: () => (calm ? undefined : happens(6) ? fault("disconnected", "cut") : happens(4) ? fault("overloaded", "busy") : happens(2) ? fault("unavailable", "away") : undefined),
    delay: () => pick(8),
    after: () => !calm && happens(8),
  });
  const refs = [0, 1, 2].map(() => base.for(`ses_${newULID()}`));
  const model: ModelOp[] = [], batches: { id: string; session: string; atomic: boolean; ops: ModelOp[] }[] = [];
  const options = { backoff: { initial: 1, max: 8 }, window: { batches: 2, bytes: 2000, streams: 2 } };

  let todo: { batch: NewBatch; ops: ModelOp[] }[] = [], open: Outbox | undefined;
  const make = (): void => {
    const ref = refs[pick(3)]!, id = newBatchID(), atomic = happens(20), ops: Op[] = [], mine: ModelOp[] = [];
    for (let i = 0; i <= pick(4); i++) {
      const own = opID(id, i), needs: string[] = [], args: Arg[] = [], earlier = [...model, ...mine];
      const someone = (): string => earlier[earlier.length - 1 - pick(Math.min(earlier.length, 8))]!.id;
      for (let k = 0; k < pick(3); k++) {
        if (earlier.length > 0 && happens(50)) {
          const op = someone();
          needs.push(op);
          args.push({ name: `a${k}`, ref: { op, path: ["", "cursor", "args"][pick(3)]! } });
        } else args.push({ name: `a${k}`, json: `[${pick(100)},  "${own}"]` });
      }
      const dependsOn = earlier.length > 0 && happens(12) ? [someone()] : undefined;
      needs.push(...(dependsOn ?? []));
      const method = happens(10) ? ["reject", "deny"][pick(2)]! : "put";
      ops.push({ method, args, dependsOn });
      mine.push({ id: own, method, needs, dropped: false });
    }
    todo.push({ batch: { id, session: ref.target, atomic, ops }, ops: mine });
    model.push(...mine);
    batches.push({ id, session: ref.target, atomic, ops: mine });
  };

  const image = path.join(dir, "image");
  for (let life = 0; life < 6; life++) try {
    const home = path.join(dir, String(life));
    await fs.mkdir(home);
    if (life > 0) {
      const file = path.join(home, "outbox.journal");
      await fs.copyFile(image, file);
      const { ino, size } = await fs.stat(file);
      synced.set(ino, size); // the number may be that of a file which is gone
    }
    const box = await Outbox.open(await JournalStore.open(home, { compactFrom: 20_000 }), options);
    open = box;
    for (const r of refs) if (!box.refRow(r.id)) await box.putRef(r);
    calm = life === 5;
    const link = new Mortal(server), durable = new Set<string>();
    box.run(link);
    for (let i = 0; i < 24; i++) make();
    // Committed in order: references name what was committed before. What the last life did not get told of comes again.
    const committing = (async () => {
      for (const t of todo) {
        if (link.dead) return;
        try {
          await box.commit(t.batch);
        } catch (err) {
          if ((err as { codeName?: string }).codeName === "canceled") return;
          throw err;
        }
        durable.add(t.batch.id!);
        if (happens(6)) {
          const victim = t.ops[pick(t.ops.length)]!;
          victim.dropped = true;
          await box.drop(victim.id).catch((err: unknown) => { if (!["usage", "canceled"].includes((err as { codeName: string }).codeName)) throw err; });
        }
        if (happens(20)) await new Promise((r) => setTimeout(r, pick(4)));
      }
    })();
    if (life < 5) {
      // A crash: from one moment on nothing of this process reaches the server, and the next life finds the file as it is
      // then, perhaps in the middle of a line. What was sent before may still arrive.
      await new Promise((r) => setTimeout(r, pick(150)));
      link.dead = true;
      const promised = [...durable];
      const file = path.join(home, "outbox.journal"), power = happens(50);
      const { ino } = await fs.stat(file), certain = synced.get(ino)!;
      let data = await fs.readFile(file);
      if (power) data = data.subarray(0, certain);
      await fs.writeFile(image, power ? data : Buffer.concat([data, data.subarray(0, pick(30) + 1)]));
      await box.close();
      await committing;
      const { groups } = recover(await fs.readFile(image));
      const kept = new Set(groups.flat().filter((c) => c.t === "batch").map((c) => c.k));
      for (const id of promised) assert.ok(kept.has(id), `batch ${id} was said to be durable`);
      todo = todo.filter((t) => !kept.has(t.batch.id!));
      continue;
    }
    await committing;
    await box.drain(undefined, AbortSignal.timeout(15_000)).catch((err: unknown) => {
      throw server.violation ?? new Error(JSON.stringify([box.status(), box.list({ states: ["pending", "in_flight"] })], null, 1), { cause: err });
    });
    assert.equal(server.violation, undefined);
    check(box);
    await box.close();
  } finally {
    await open?.close();
  }

  function check(box: Outbox): void {
    const got = new Map<string, Outcome>(), expected = new Map<string, Status>();
    for (const r of box.list()) got.set(r.op, r.outcome!);
    for (const b of batches) {
      const inside = b.ops.map((o): Status => {
        let status: Status = ({ put: "applied", reject: "rejected", deny: "denied" } as const)[o.method as "put"];
        for (const n of o.needs) if ((expected.get(n) ?? "applied") !== "applied") status = "skipped";
        const is = got.get(o.id)!.status;
        if (o.dropped && (is === "voided" || (b.atomic && b.ops.length > 1 && is === "batch_aborted"))) status = "voided";
        expected.set(o.id, status);
        return status;
      });
      const aborted = b.atomic && inside.some((s) => s !== "applied");
      if (aborted && !(b.ops.length === 1 && inside[0] === "voided")) for (const o of b.ops) expected.set(o.id, "batch_aborted");
      for (const o of b.ops) assert.equal(got.get(o.id)?.status, expected.get(o.id), `op ${o.id} of batch ${b.id} (${o.method})`);
    }
    const applied = server.log.map((l) => l.op);
    assert.equal(new Set(applied).size, applied.length, "an op took effect twice");
    assert.deepEqual([...applied].sort(), [...expected].filter(([, s]) => s === "applied").map(([id]) => id).sort());
    for (const r of refs) {
      const order = batches.filter((b) => b.session === r.target).flatMap((b) => b.ops.map((o) => o.id));
      const log = server.log.filter((l) => l.session === r.target).map((l) => order.indexOf(l.op));
      // Batches of a session go in the order in which they are in the outbox, which is that of their commits.
      assert.deepEqual(log, [...log].sort((a, b) => a - b), "out of order");
    }
  }
}

test("random histories end as a sequential model says", async () => {
  const first = firstSeed(), rounds = Number(process.env["ROUNDS"] ?? full(6, 12));
  const one = async (seed: number): Promise<void> => {
    const dir = await fs.mkdtemp(path.join(os.tmpdir(), "mooring-history-"));
    try {
      await history(seed, dir);
    } catch (err) {
      console.error(`SEED=${seed} ROUNDS=1 is the same again`);
      throw err;
    } finally {
      await fs.rm(dir, { recursive: true, force: true });
    }
  };
  for (let n = 0; n < rounds; n += 6) {
    await Promise.all(Array.from({ length: Math.min(6, rounds - n) }, (_, i) => one(first + n + i)));
  }
});
