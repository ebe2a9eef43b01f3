// The machine, by transcripts: what happened, and what it asks for. The Go outbox's machine goes by the same ones, so that the two
// cannot drift apart.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { codes, fault, type CodeName } from "../src/fault.js";
import type { Outcome, Status } from "../src/intent.js";
import { type Backoff, defaultWindow, type Entry, lastSeqOf, Machine, noRoute, type Window } from "../src/machine.js";
import { broken, dropAsked, judge, openedStream, type Verdict, wake } from "../src/machine_open.js";
import { refused } from "../src/machine_refused.js";
import { repo } from "./paths.js";

const begin = 1_000_000_000;

/** Drives a machine by the words that outbox/internal/machine/script_test.go explains. */
class Script {
  readonly m: Machine;
  now = begin;
  readonly pos = new Map<string, Entry>();

  constructor(win: Window) {
    this.m = new Machine(win, doubling);
  }

  entry(name: string, args: string[] = []): Entry {
    const known = this.pos.get(name);
    if (known) return known;
    const after = (word: string): string | undefined => (args.includes(word) ? args[args.indexOf(word) + 1] : undefined);
    const e: Entry = {
      num: this.pos.size + 1, id: name, session: name[0]!, via: after("only") ?? "", atomic: false, first: Number(name.slice(1)), n: 1,
      bytes: Number(after("bytes") ?? 10), marked: !args.includes("pending"), attempts: 0, under: "", unsure: false, hold: Number(after("hold") ?? 0),
      route: { ...noRoute, ref: after("via") ?? `r${name[0]}`, host: "h", space: after("space") ?? "" },
      ops: [{ id: name, method: "put", args: [] }],
    };
    this.pos.set(name, e);
    return e;
  }

  line(line: string): string {
    const w = line.split(/\s+/), m = this.m, { now } = this;
    const session = w[1]?.[0] ?? "", conn = m.streams.get(session)?.conn ?? 0;
    const after = (word: string): string => (w.includes(word) ? (w[w.indexOf(word) + 1] ?? "") : "");
    const blockedOn = (): string[] => (w.includes("blocked") ? w.slice(w.indexOf("blocked") + 1) : []);
    const has = (word: string): boolean => w.includes(word);
    const batches = (): Entry[] => w.slice(2).filter((n) => /^.\d/.test(n) && n[0] === session && after("drop") !== n).map((n) => this.entry(n, w.slice(w.indexOf(n) + 1)));
    const code = (name: string) => (name in codes ? fault(name as CodeName, "told to", Number(after("at") || 0)) : fault("disconnected", name));
    const outcome = (op: string, status: Status): Outcome => ({ op, status, reason: "none", message: "", cursor: 0, result: "", cause: "", at: 0 });
    switch (w[0]) {
      case "found": m.found(w.slice(1), now); break;
      case "sequenced": m.sequenced(this.entry(w[1]!, w.slice(2)), now); break;
      case "looked": case "loaded": {
        let head: Entry | undefined;
        if (has("head")) {
          head = this.entry(`${session}0`, w.slice(2));
          this.pos.delete(`${session}0`);
        }
        m.looked(session, batches(), head, has("more") || head !== undefined, blockedOn(), noRoute, now);
        break;
      }
      case "recovered": {
        const es = batches(), d = after("drop"), drops = new Map<number, null>();
        if (d) {
          es.push(this.entry(d));
          drops.set(this.entry(d).num, null);
        }
        m.recovered(session, es, noRoute, drops, now);
        break;
      }
      case "opened": openedStream(m, session, conn, Number(after("last") || 0), undefined, now); break;
      case "fail": openedStream(m, session, conn, 0, code(w[2] === "something" ? line : w[2]!), now); break;
      case "ok": m.replied(session, conn, { outcomes: [outcome(w[1]!, "applied")] }, now); break;
      case "refused": m.replied(session, conn, { outcomes: [outcome(w[1]!, "rejected")] }, now); break;
      case "nonsense": m.replied(session, conn, { outcomes: [outcome("?", "applied")] }, now); break;
      case "err": m.replied(session, conn, { err: code(w[2]!) }, now); break;
      case "stale": m.replied(session, conn - 1, { err: code(w[2]!) }, now); break;
      case "late": openedStream(m, session, conn - 1, 0, code(w[2]!), now); break;
      case "broken": broken(m, session, conn, now); break;
      case "stored": m.storedThrough(session, lastSeqOf(this.entry(w[1]!)), now); break;
      case "finished": m.finished(w[1]!, now); break;
      case "drop": dropAsked(m, session, this.entry(w[1]!).num, now); break;
      case "heads": m.headsDropped(now); break;
      case "raised": m.raised(now); break;
      case "settled":
        m.settled(session, conn, w.slice(2).map((name) => {
          const e = { ...this.entry(name), ops: [{ id: name, method: "put", args: [], void: true }] };
          this.pos.set(name, e);
          return e;
        }), now);
        break;
      case "given": {
        const of = w[2]!, known = has("known") ? fault("revoked", "told to") : undefined;
        refused(m, of, known);
        if (known) break;
        for (const name of this.pos.keys()) if (name[0] === of) this.pos.delete(name);
        m.looked(of, [], undefined, has("more"), [], noRoute, now);
        break;
      }
      case "through": {
        const e = this.entry(w[1]!);
        e.route = { ...e.route, ref: w[2]! };
        break;
      }
      case "wake": wake(m, now); break;
      case "resume": m.resume(session, now); break;
      case "at": {
        const [, n, unit] = /^(\d+)(ms|s|m|h)$/.exec(w[1]!)!;
        this.now = begin + Number(n) * { ms: 1, s: 1000, m: 60_000, h: 3_600_000 }[unit as "ms" | "s" | "m" | "h"];
        m.tick(this.now);
        break;
      }
      default: return `unknown word ${w[0]}`;
    }
    return this.drain();
  }

  /** Tells what the machine asked for. */
  drain(): string {
    const out = this.m.out.splice(0);
    return out.map((a) => {
      switch (a.do) {
        case "look": return `look ${a.session}`;
        case "load": return `load ${a.session} ${a.batches}`;
        case "open": return `open ${a.session} ${a.route.ref}${a.route.space && ` in ${a.route.space}`}${a.settle ? " settle" : ""}`;
        case "close": return `close ${a.session}`;
        case "send": return `send ${a.entry.id} acked ${a.through}${a.entry.ops[0]!.void ? " void" : ""}`;
        case "ack": return `ack ${a.session} ${a.through}`;
        case "finish": return `finish ${a.entry.id}`;
        case "note": return `note${a.entries.map((e) => ` ${e.id}/${e.attempts}`).join("")}${a.at === 0 ? "" : ` retry ${duration(a.at - begin)}`}`;
        case "mark": return `mark ${a.entry.id}`;
        case "stop": return `stop ${a.session} ${a.err?.codeName ?? "no more"}`;
        case "raise": return "raise";
        case "settle": return `settle ${a.session} last ${a.through}:${a.entries.map((e) => ` ${e.id}`).join("")}`;
        case "refuse": return `refuse ${a.session} ${a.to.ref} ${a.why.codeName}`;
        case "fenced": return "fenced";
      }
    }).join("; ");
  }

  /** What holds at all times. */
  sound(): void {
    let open = 0;
    for (const s of this.m.streams.values()) {
      if (s.phase !== "closed") open++;
      for (const batch of s.blockedOn) assert.ok(this.m.blockedSessions.get(batch)?.has(s.session), `${s.session} waits for ${batch}, which nobody knows`);
      assert.equal(s.queue.reduce((n, e) => n + e.bytes, 0), s.queued);
      assert.equal(s.queue.filter((e) => e.hold > 0).length, s.holds);
      for (const [i, e] of s.queue.entries()) if (i > 0) assert.equal(e.first, lastSeqOf(s.queue[i - 1]!) + 1);
      assert.ok(s.sent <= s.queue.length && (s.phase !== "closed" || s.sent === 0) && s.ackedTo <= s.stored, s.session);
    }
    for (const [batch, sessions] of this.m.blockedSessions) {
      for (const id of sessions) assert.ok(this.m.streams.get(id)?.blockedOn.includes(batch), `${id} does not wait for ${batch}`);
    }
    assert.equal(open, this.m.openStreams);
  }
}

const duration = (ms: number): string => (ms % 60_000 === 0 && ms > 0 ? `${ms / 60_000}m0s` : ms % 1000 === 0 ? `${ms / 1000}s` : `${ms}ms`);

/** Waits 1 s, 2 s, 4 s … without chance. */
function doubling(): Backoff {
  let n = 0;
  return { next: () => (n = Math.max(2 * n, 1000)), reset: () => { n = 0; } };
}

const stories = readFileSync(repo("testdata/machine.txt"), "utf8").split("\n## ").slice(1).map((part) => part.trim().split("\n"));

test("the transcripts are read", () => {
  assert.ok(stories.length >= 50, String(stories.length));
});

for (const [name, ...lines] of stories) {
  if (lines.includes("Go alone")) continue;
  test(name!, () => {
    const own = Object.fromEntries([...(lines.find((line) => line.startsWith("window ")) ?? "").matchAll(/(\w+) (\d+)/g)].map(([, k, v]) => [k!, Number(v)]));
    const s = new Script({ ...defaultWindow, ...own });
    for (const line of lines.filter((line) => line.includes("→"))) {
      const [what, want] = line.split("→").map((x) => x.trim());
      assert.equal(s.line(what!), want, what);
      s.sound();
    }
  });
}

test("a stream that made room is forgotten, also if its outcomes were stored before", () => {
  const s = new Script({ ...defaultWindow, streams: 1 });
  for (const line of ["recovered A A1", "opened A", "ok A1", "stored A1", "found A", "recovered B B1"]) s.line(line);
  assert.equal(s.line("loaded A"), "ack A 1; close A; open B rB");
  assert.equal(s.m.streams.has("A"), false);
});

test("what an error means", () => {
  const want: Partial<Record<CodeName, Verdict>> = {
    fenced: "leaseLost", gap: "rewind", server_behind: "giveUp", outbox_diverged: "giveUp", overloaded: "tryStream", quota_exceeded: "tryStream", not_yet_known: "tryStream",
    internal: "tryStream", disk_full: "tryStream", unavailable: "tryLink", disconnected: "tryLink", draining: "tryLink", canceled: "tryLink",
    unknown_ref: "giveUp", wrong_outbox: "giveUp", plaintext: "giveUp", incompatible: "giveUp", revoked: "giveUp", too_large: "unsendable",
    malformed: "unsendable",
  };
  for (const [code, verdict] of Object.entries(want)) assert.equal(judge(fault(code as CodeName, "x")), verdict, code);
});
