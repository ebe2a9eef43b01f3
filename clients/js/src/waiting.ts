// Waiting for outcomes, and what is waited for: whoever waits for more than two seconds may have that said.

import { clip, fault } from "./fault.js";
import type { Outcome } from "./intent.js";
import { finderOf, lastErrorOf, stopOf } from "./lookup.js";
import { type Settings, Standstill } from "./outbox_types.js";
import { resolve } from "./resolve.js";
import { travelling } from "./rows.js";
import type { Tables } from "./store.js";

const unsaid = 2000; // how long is waited without a word

/** Says why something takes so long: each reason once, when there has been one for two seconds. */
export class Why {
  #since = 0; // 0: there is none
  readonly #said = new Set<string>();

  constructor(readonly say: (reason: string) => void) {}

  /** Takes what the reason is now; "" for none. */
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
  batch: string | undefined; // undefined: of any
  check: () => void;
}

/** Those who wait on an outbox. */
export class Waits {
  readonly #tables: Tables;
  readonly #settings: Settings;
  readonly #life: AbortSignal;
  readonly #waiters = new Set<Waiter>();
  readonly #arrived = new Map<string, readonly Outcome[]>(); // told, and not stored yet
  #saying: ReturnType<typeof setInterval> | undefined; // while somebody waits

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
      total += Math.max(now - left, 0); // committed meanwhile
      left = now;
      if (total - left !== shown) progress?.((shown = total - left), total);
      if (left === 0) return true;
      let still: Standstill | undefined;
      for (const s of this.#tables.unfinishedSessions()) if (!(still = this.standstill(s))) return undefined;
      throw still!;
    });
  }

  /** Why a session's batches are not sent until someone decides: its stream has stopped, or all that its next one waits for. */
  standstill(session: string, seen = new Map<string, Standstill | undefined>()): Standstill | undefined {
    const t = this.#tables, stop = stopOf(t, session);
    if (stop) return new Standstill(session, stop);
    const [head] = t.waiting(session, 1);
    if (seen.has(session)) return seen.get(session);
    seen.set(session, undefined); // what is led back here is not held up by that
    if (!head || t.isSending(session)) return undefined;
    const res = resolve(head.ops, head.atomic, session, finderOf(t), false);
    if (travelling(res.ops) === 0) return undefined; // it is decided: what is left to do needs no server
    let still: Standstill | undefined;
    for (const batch of res.blockedOn) if (!(still = this.standstill(t.batches.get(batch)!.session, seen))) return undefined;
    seen.set(session, still);
    return still;
  }

  /** Why nothing of what is unfinished has its outcome, as far as that is known: what was said last; "" for nothing. */
  #trouble(): string {
    const t = this.#tables, sessions = new Set<string>();
    for (const { batch } of this.#waiters) { // what is waited for comes first
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

  /** Begins to say why it takes so long, or ends that. */
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

  /** Gives a batch's outcomes to those who wait. stored says that the rows have them. */
  tell(batch: string, outcomes: readonly Outcome[], stored: boolean): void {
    if (stored) this.#arrived.delete(batch);
    else this.#arrived.set(batch, outcomes);
    for (const w of [...this.#waiters]) if (w.batch === undefined || w.batch === batch) w.check();
  }

  /** Forgets what has arrived of a session and is not stored. */
  forget(session: string): void {
    for (const id of [...this.#arrived.keys()]) if (this.#tables.batches.get(id)?.session === session) this.#arrived.delete(id);
  }

  /** Makes those who wait look again. */
  lookAgain(): void {
    for (const w of [...this.#waiters]) w.check();
  }
}
