// Waiting for outcomes; callers that wait for more than two seconds can be told why.

import { clip, fault } from "./fault.js";
import type { Outcome } from "./intent.js";
import { finderOf, lastErrorOf, stopOf } from "./lookup.js";
import { type Settings, Standstill } from "./outbox_types.js";
import { resolve } from "./resolve.js";
import { type OpRow, opsOf, travelling } from "./rows.js";
import type { Tables } from "./store.js";

const unsaid = 2000; // how long a wait lasts before its reason is reported

/** Reports why something takes so long: each reason once, after it has lasted two seconds. */
export class Why {
  #since = 0; // 0: there is none
  readonly #said = new Set<string>();

  constructor(readonly say: (reason: string) => void) {}

  /** Sets the present reason; "" for none. */
  now(reason: string): void {
    if (reason === "") this.#since = 0;
    else if (this.#since === 0) this.#since = Date.now();
    else if (Date.now() - this.#since >= unsaid && !this.#said.has(reason)) {
      this.#said.add(reason);
      this.say(reason);
    }
  }
}

interface Waiter {
  batch: string | undefined; // undefined: any batch
  check: () => void;
}

/** The waiters of an outbox. */
export class Waits {
  readonly #tables: Tables;
  readonly #settings: Settings;
  readonly #life: AbortSignal;
  readonly #waiters = new Set<Waiter>();
  readonly #arrived = new Map<string, readonly Outcome[]>(); // received, but not stored yet
  #saying: ReturnType<typeof setInterval> | undefined; // runs while there are waiters

  constructor(tables: Tables, settings: Settings, life: AbortSignal) {
    this.#tables = tables;
    this.#settings = settings;
    this.#life = life;
  }

  /** Waits for a batch's outcomes. */
  wait(batch: string, signal: AbortSignal | undefined): Promise<readonly Outcome[]> {
    return this.#until(batch, signal, () => {
      const early = this.#arrived.get(batch);
      if (early) return early;
      const row = this.#tables.batches.get(batch);
      if (!row) throw fault("not_found", `batch ${clip(batch)} is not in this outbox: tickets last ${Math.round(this.#settings.keep / 86_400_000)} days after the batch is finished`);
      if (row.outcomes) return row.outcomes;
      const still = this.standstill(row.session);
      if (still) throw still;
      return undefined;
    });
  }

  /** Waits until nothing is unfinished. */
  async drain(progress: ((done: number, total: number) => void) | undefined, signal: AbortSignal | undefined): Promise<void> {
    let total = 0, left = 0, shown = -1;
    await this.#until(undefined, signal, () => {
      const now = this.#tables.unfinishedOps;
      total += Math.max(now - left, 0); // committed in the meantime
      left = now;
      if (total - left !== shown) progress?.((shown = total - left), total);
      if (left === 0) return true;
      let still: Standstill | undefined;
      for (const s of this.#tables.unfinishedSessions()) if (!(still = this.standstill(s))) return undefined;
      throw still!;
    });
  }

  /** Why a session's batches are not sent until someone decides: its stream has stopped, or all streams that its next batch waits for. */
  standstill(session: string, seen = new Map<string, Standstill | undefined>()): Standstill | undefined {
    const t = this.#tables, stop = stopOf(t, session);
    if (stop) return new Standstill(session, stop);
    const [head] = t.waiting(session, 1);
    if (seen.has(session)) return seen.get(session);
    seen.set(session, undefined); // a cycle back to here does not count
    if (!head || t.isSending(session)) return undefined;
    // What an op refers to decides, not its other arguments.
    const res = resolve(opsOf(head) as readonly OpRow[], head.atomic, session, finderOf(t), false);
    if (travelling(res.ops) === 0) return undefined; // all its ops have outcomes: it needs no server
    let still: Standstill | undefined;
    for (const batch of res.blockedOn) if (!(still = this.standstill(t.batches.get(batch)!.session, seen))) return undefined;
    seen.set(session, still);
    return still;
  }

  /** Why unfinished batches have no outcomes, as far as known: the last error; "" for none. */
  #trouble(): string {
    const t = this.#tables, sessions = new Set<string>();
    for (const { batch } of this.#waiters) { // batches with waiters come first
      const row = batch === undefined ? undefined : t.batches.get(batch);
      if (row) sessions.add(row.session);
    }
    for (const session of t.unfinishedSessions()) sessions.add(session);
    for (const session of sessions) {
      const why = stopOf(t, session) ? "" : lastErrorOf(t, session);
      if (why !== "") return why;
    }
    return "";
  }

  /** Starts or ends reporting. */
  #say(): void {
    const { onWaiting } = this.#settings;
    if (this.#waiters.size > 0 && onWaiting && this.#saying === undefined) {
      const why = new Why(onWaiting);
      this.#saying = setInterval(() => why.now(this.#trouble()), unsaid / 10);
      (this.#saying as { unref?: () => void }).unref?.();
    } else if (this.#waiters.size === 0) {
      clearInterval(this.#saying);
      this.#saying = undefined;
    }
  }

  #until<T>(batch: string | undefined, signal: AbortSignal | undefined, look: () => T | undefined): Promise<T> {
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        this.#waiters.delete(waiter);
        this.#say();
        signal?.removeEventListener("abort", gone);
      };
      const gone = (): void => {
        leave();
        reject(fault("canceled", "stopped waiting: what is committed stays in the outbox"));
      };
      const check = (): void => {
        if (this.#life.aborted || signal?.aborted) return gone();
        try {
          const v = look();
          if (v === undefined) return;
          leave();
          resolve(v);
        } catch (err) {
          leave();
          reject(err);
        }
      };
      const waiter: Waiter = { batch, check };
      this.#waiters.add(waiter);
      signal?.addEventListener("abort", gone);
      this.#say();
      check();
    });
  }

  /** Passes a batch's outcomes to its waiters. stored: the rows have them. */
  tell(batch: string, outcomes: readonly Outcome[], stored: boolean): void {
    if (stored) this.#arrived.delete(batch);
    else this.#arrived.set(batch, outcomes);
    for (const w of [...this.#waiters]) if (w.batch === undefined || w.batch === batch) w.check();
  }

  /** Forgets a session's outcomes that are not stored. */
  forget(session: string): void {
    for (const id of [...this.#arrived.keys()]) if (this.#tables.batches.get(id)?.session === session) this.#arrived.delete(id);
  }

  /** Makes all waiters check again. */
  lookAgain(): void {
    for (const w of [...this.#waiters]) w.check();
  }
}
