// A program that does with this client what the lines of its input say, for the random histories of the Go package
// internal/e2e: party.js HOME. Each line is a request with an id, each line of output an answer. What was read is in the form
// of the HTTP API, but that a payload is the text of one.

import * as readline from "node:readline";
import { newHttpBatchRpcSession } from "capnweb";
import { fold, jsonText, MooringError, open, Ref, type Session, type SessionEvent, type SnapshotOptions, type State } from "../src/index.js";

/** How a session is reached: by its ref, or opened by one of its space or of a session above it. */
interface Door {
  readonly ref: string;
  readonly open?: string;
}

/** What is asked for of it. */
interface Sight extends Door {
  readonly keys?: string[];
  readonly compacted: boolean;
  readonly order?: string;
}

interface Op {
  readonly method: string;
  readonly args: { name: string; json: string }[];
  readonly expected?: number;
}

/** A batch. Its first op makes a session, if there is make, which the client's own verb puts there. */
interface Sending extends Door {
  readonly batch: string;
  readonly ops: Op[];
  readonly make?: { owner: string; first?: string; fork: boolean; at?: number; message?: string; part?: string; order?: "time" };
}

/** A batch of another's outbox, as it goes over the wire. */
interface Again {
  readonly url: string;
  readonly ref: string;
  readonly stream: object;
  readonly batch: object;
}

interface Following extends Sight {
  readonly from: { cursor: number; state: boolean };
}

const client = await open({ home: process.argv[2]!, reconnect: { initial: 5, max: 100 }, outbox: { backoff: { initial: 5, max: 100 } } });

async function enter({ ref, open }: Door): Promise<Session> {
  if (!open) return client.session(ref);
  return Ref.parse(ref).target.startsWith("spc_") ? (await client.space(ref)).open(open) : (await client.session(ref)).open(open);
}

async function send({ batch: batchID, ops, make, ...door }: Sending) {
  let batch;
  if (make) {
    const space = await client.space(door.ref), owner = Ref.parse(make.owner), first = make.first === undefined ? undefined : await client.session(make.first);
    const { at, message, part, order } = make;
    ({ batch } = make.fork
      ? space.fork(first!, { owner, batchID, ...(at !== undefined && { at }), ...(message !== undefined && { message }) })
      : space.create({ owner, batchID, ...(first && { parent: first }), ...(part !== undefined && { part }), ...(order && { order }) }));
  } else batch = (await enter(door)).batch(batchID);
  for (const { method, args, expected } of make ? ops.slice(1) : ops) {
    const op = batch.do(method, Object.fromEntries(args.map(({ name, json }) => [name, jsonText(json)])));
    if (expected !== undefined) op.expect(expected);
  }
  return (await (await batch.commit()).wait()).outcomes;
}

/** Sends a batch of another outbox by one HTTP request of Cap'n Web. */
async function again({ url, ref, stream, batch }: Again) {
  const gateway = newHttpBatchRpcSession(url) as any;
  const ack = (await gateway.restore(ref).openStream(stream).apply(batch)) as { outcomes: Record<string, unknown>[]; duplicates: number };
  return { duplicates: ack.duplicates, outcomes: ack.outcomes.map((o) => ({ ...o, reason: (o["reason"] as { name?: string } | null)?.name ?? o["reason"] })) };
}

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");
const options = ({ keys, compacted }: Sight): SnapshotOptions => ({ ...(keys && { keys }), compacted });

const shownEvent = (e: SessionEvent) =>
  e.hidden ? { cursor: e.cursor, hash: hex(e.hash), hidden: true } : {
    cursor: e.cursor, method: e.method, key: e.key, schema_version: e.schema, payload: e.payload, ref: e.ref, actor: e.actor, op: e.op, batch: e.batch,
    outbox: e.outbox, at: e.at, hash: hex(e.hash),
  };

const shownState = (s: State) => ({
  cursor: s.cursor, hash: hex(s.hash), turns: s.turns, left_out: [...(s.view?.leftOut ?? [])],
  entries: [...s.entries].map(([key, { cursor, schema, payload, ord }]) => ({ key, cursor, schema_version: schema, ord, payload, claim: s.claims.get(key) })),
});

async function events(sight: Sight) {
  const session = await enter(sight), all: SessionEvent[] = [];
  for (let after = 0; ; after = all.at(-1)!.cursor) {
    const hash = all.at(-1)?.hash, page = await session.events(after, 13, { ...(sight.keys && { keys: sight.keys }), ...(hash && { hash }) });
    if (page.events.length === 0) return all.map(shownEvent);
    all.push(...page.events);
  }
}

/** Follows a session, and its state if it has one to begin with. */
class Follower {
  readonly #events: SessionEvent[] = [];
  readonly #stop = new AbortController();
  readonly #base: ReturnType<typeof shownState> | undefined;
  readonly #done: Promise<void>;
  #cursor: number;
  #ended = "";
  #more: () => void = () => {};

  constructor(session: Session, sight: Following, readonly state: State | undefined) {
    if (sight.from.state) this.#base = shownState(state!);
    this.#cursor = state?.cursor ?? sight.from.cursor;
    const { keys, compacted } = sight, signal = this.#stop.signal;
    this.#done = session.subscribe({ after: this.#cursor, ...(state && { hash: state.hash }), ...(keys && { keys }), compacted, signal }, async (event) => {
      this.#events.push(event);
      if (this.state) fold(this.state, event, sight.order);
      if (this.state?.stale) Object.assign(this.state, { hidden: undefined, stale: undefined, view: undefined }, await session.snapshot(options(sight)));
      this.#cursor = event.cursor;
      this.#more();
    }).catch((err: unknown) => {
      this.#ended = err instanceof MooringError ? err.codeName : String(err);
      this.#more();
    });
  }

  static async start(sight: Following): Promise<Follower> {
    const session = await enter(sight), { cursor, state } = sight.from;
    const empty: State = { cursor: 0, hash: new Uint8Array(), entries: new Map(), turns: [], claims: new Map(), ...(sight.compacted && { view: { compacted: undefined, leftOut: new Set() } }) };
    return new Follower(session, sight, state ? await session.snapshot(options(sight)) : cursor === 0 ? empty : undefined);
  }

  async finish(at: number) {
    while (this.#cursor < at && this.#ended === "") await new Promise<void>((resolve) => { this.#more = resolve; });
    const ended = this.#ended;
    this.#stop.abort();
    await this.#done;
    return { base: this.#base, events: this.#events.map(shownEvent), state: this.state && shownState(this.state), ended };
  }
}

const followers: Follower[] = [];

async function answer(what: string, request: any): Promise<unknown> {
  switch (what) {
    case "send": return send(request);
    case "again": return again(request);
    case "state": return shownState(await (await enter(request)).snapshot({ at: request.at, ...options(request) }));
    case "events": return events(request);
    case "follow": return followers.push(await Follower.start(request)) - 1;
    default: return followers[request.follower]!.finish(request.at);
  }
}

for await (const line of readline.createInterface(process.stdin)) {
  const { id, what, ...request } = JSON.parse(line);
  answer(what, request).then(
    (result) => ({ id, result }),
    (err: unknown) => ({ id, error: err instanceof MooringError ? { code: err.codeName, message: err.message } : { code: "", message: String(err) } }),
  ).then((reply) => console.log(JSON.stringify(reply, (_, v) => (typeof v === "bigint" ? Number(v) : v))), (err: unknown) => { throw err; });
}
await client.close();
