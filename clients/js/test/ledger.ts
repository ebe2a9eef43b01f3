// A server by the ledger's rules, in memory, for the outbox's property test: what arrives is answered by the first rule
// that fits. The tests of the whole run against the real one.

import { fault, MooringError } from "../src/fault.js";
import { type Outcome, resolvePath } from "../src/intent.js";
import type { Link, LinkStream, StreamRequest, WireBatch, WireOp } from "../src/link.js";
import type { Reply } from "../src/machine.js";
import { rejectedOutcome, skippedBy, voidedOutcome } from "../src/rows.js";

interface StreamState {
  incarnation: number;
  last: number;
  acked: number;
  recorded: Map<number, { text: string; outcome: Outcome }>;
}

/** What goes wrong: each is asked before or after a batch is applied. */
export interface Chaos {
  /** Refuses the batch, or breaks the link before it arrives. */
  before(): MooringError | undefined;
  /** Breaks the link after it was applied. */
  after(): boolean;
  /** How long a batch is on its way, in milliseconds. */
  delay(): number;
  /** Refuses to open a stream. */
  open(): MooringError | undefined;
}

/** One server. Ops: put applies, reject and deny do not. */
export class LedgerServer implements Link {
  readonly log: { session: string; op: string; args: string }[] = [];
  readonly #streams = new Map<string, StreamState>();
  readonly #outcomes = new Map<string, Outcome>(); // of every op, for references
  readonly #chaos: Chaos;
  /** What the outbox must never do, and did. */
  violation: unknown;
  readonly batches = new Map<string, string>(); // the shape in which each batch first came

  constructor(chaos: Chaos) {
    this.#chaos = chaos;
  }

  async openStream(req: StreamRequest): Promise<LinkStream> {
    const refused = this.#chaos.open();
    if (refused) throw refused;
    const key = `${req.session} ${req.outbox}`;
    let s = this.#streams.get(key);
    if (!s) this.#streams.set(key, (s = { incarnation: 0, last: 0, acked: 0, recorded: new Map() }));
    const state = s;
    if (req.incarnation < state.incarnation) throw fault("fenced", "a newer one sends");
    state.incarnation = req.incarnation;
    const lastAtOpen = state.last;
    let gone = false, late = false, order: Promise<unknown> = Promise.resolve();
    const stream: LinkStream = {
      onGone: () => {},
      apply: (batch) => {
        const answer = order.then(async (): Promise<Reply> => {
          await new Promise((r) => setTimeout(r, this.#chaos.delay()));
          if (gone && !late) return { err: fault("disconnected", "gone") };
          const err = this.#chaos.before();
          if (err?.codeName === "disconnected") {
            gone = true;
            stream.onGone(err);
          }
          if (err) return { err };
          let r: Reply;
          try {
            r = this.#apply(req, state, batch);
          } catch (e) {
            this.violation ??= e;
            return { err: fault("rejected", String(e)) };
          }
          if (!this.#chaos.after()) return r;
          gone = true;
          stream.onGone(fault("disconnected", "cut"));
          return { err: fault("disconnected", "cut") };
        });
        order = answer;
        return answer;
      },
      acknowledge: (through) => {
        try {
          if (!gone) this.#acknowledge(state, through);
        } catch (e) {
          this.violation ??= e;
        }
      },
      lastSeq: async () => lastAtOpen,
      close: () => {
        gone = true;
        late = true; // what is on its way still arrives
      },
    };
    return stream;
  }

  #acknowledge(s: StreamState, through: number): void {
    if (through > s.last) throw new Error(`acked_through ${through} is beyond ${s.last}`);
    for (; s.acked < through; s.acked++) {
      const r = s.recorded.get(s.acked + 1);
      if (r) this.#outcomes.delete(r.outcome.op); // nobody may refer to it any more
      s.recorded.delete(s.acked + 1);
    }
  }

  #apply(req: StreamRequest, s: StreamState, batch: WireBatch): Reply {
    if (req.incarnation < s.incarnation) return { err: fault("fenced", "a newer one sends") };
    const first = batch.ops[0]!.seq, texts = batch.ops.map((o) => JSON.stringify([o, batch.id, batch.atomic]));
    if (batch.ackedThrough > s.last) return { err: fault("server_behind", "restored") };
    this.#acknowledge(s, batch.ackedThrough);
    if (first <= s.last) {
      const known = batch.ops.map((o) => s.recorded.get(o.seq));
      if (known.some((k, i) => k && k.text !== texts[i])) return { err: fault("outbox_diverged", `batch ${batch.id} differs`) };
      return { outcomes: batch.ops.map((o, i) => known[i]?.outcome ?? { ...rejectedOutcome(o.id, "pruned", "pruned"), status: "pruned" }) };
    }
    if (first !== s.last + 1) return { err: fault("gap", "a gap", s.last + 1) };
    const shape = batch.ops.map((o) => o.id).join();
    if ((this.batches.get(batch.id) ?? shape) !== shape) throw new Error("a batch was split or merged");
    this.batches.set(batch.id, shape);
    const results = this.#decide(req.session, batch);
    batch.ops.forEach((o, i) => s.recorded.set(o.seq, { text: texts[i]!, outcome: results[i]! }));
    s.last += batch.ops.length;
    for (const o of results) this.#outcomes.set(o.op, o);
    return { outcomes: results };
  }

  #decide(session: string, batch: WireBatch): Outcome[] {
    const inside = new Map<string, Outcome>(), wrote: { session: string; op: string; args: string }[] = [];
    const results = batch.ops.map((op): Outcome => {
      const o = this.#decideOp(session, op, (id) => inside.get(id) ?? this.#outcomes.get(id), wrote);
      inside.set(op.id, o);
      return o;
    });
    const bad = results.find((o) => o.status !== "applied");
    if (batch.atomic && bad) {
      return results.map((o) => (o === bad && o.status === "voided" && results.length === 1 ? o
        : { ...rejectedOutcome(o.op, bad.reason, "aborted"), status: "batch_aborted", cause: bad.op }));
    }
    this.log.push(...wrote);
    return results;
  }

  #decideOp(session: string, op: WireOp, find: (id: string) => Outcome | undefined, wrote: { session: string; op: string; args: string }[]): Outcome {
    if (op.method === "void") return voidedOutcome(op.id);
    const refs = [...(op.dependsOn ?? []).map((id) => ({ op: id, path: "" })), ...(op.args ?? []).flatMap((a) => (a.ref ? [a.ref] : []))];
    for (const r of refs) {
      const o = find(r.op);
      if (o === undefined) throw new Error(`op ${op.id} refers to ${r.op}, which was forgotten or never came`);
      if (o.status !== "applied") return skippedBy(op.id, o);
    }
    if (op.method === "reject") return rejectedOutcome(op.id, "bad_key", "rejected");
    if (op.method === "deny") return { ...rejectedOutcome(op.id, "revoked", "denied"), status: "denied" };
    const args = (op.args ?? []).map((a) => (a.ref ? resolvePath(find(a.ref.op)!.result, a.ref.path) : a.json)).join("|");
    wrote.push({ session, op: op.id, args });
    return { op: op.id, status: "applied", reason: "none", message: "", cursor: 1, result: JSON.stringify({ cursor: op.seq, args: [op.id] }), cause: "", at: 0 };
  }
}
