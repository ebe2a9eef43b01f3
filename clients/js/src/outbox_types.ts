// What callers give to an outbox and get from it.

import { MooringError } from "./fault.js";
import type { Arg, Expect, Limits, Outcome } from "./intent.js";
import type { Window } from "./machine.js";
import { hopeless } from "./reconcile.js";
import type { Ref } from "./ref.js";
import type { OpState } from "./rows.js";

/** One op intent as its author states it. */
export interface Op {
  /** A ULID. Left out, the batch's id and the op's place give one. */
  id?: string | undefined;
  method: string;
  args: readonly Arg[];
  /** Ops without which this one must not apply. */
  dependsOn?: readonly string[] | undefined;
  /** The cursor that the session must be at. */
  expected?: Expect | undefined;
  /** The failed op that this one stands for. */
  retries?: string | undefined;
}

/** What commit makes durable as a whole: ops of one session. */
export interface NewBatch {
  /** A ULID. Committing the same batch under the same id again changes nothing and gives the same names. */
  id?: string | undefined;
  session: string;
  /** The id of the ref to send through; "" is the session's own, or of a session to be made the only space there is. */
  via?: string | undefined;
  /** Refs that the batch names, as its maker has them: unknown_ref if another secret is stored for one of them. */
  held?: readonly Ref[] | undefined;
  atomic?: boolean | undefined;
  ops: readonly Op[];
}

/** The names of a committed batch and of its ops, in order. */
export interface Committed {
  readonly batch: string;
  readonly ops: readonly string[];
}

/** How an outbox behaves. */
export interface OutboxOptions {
  limits?: Partial<Limits> & { rows?: number; bytes?: number };
  window?: Partial<Window>;
  /** Waiting times, in milliseconds, before what failed is tried again: 200, then twice as long each time up to 30,000, ±50 %. */
  backoff?: { initial?: number; max?: number; factor?: number; jitter?: number };
  /** How long tickets last, in milliseconds; default 30 days. */
  keep?: number;
  /**
   * How many bytes of arguments of what has applied are kept, within that time, the newest: what a server that was restored
   * has lost is sent again out of them (Client.reconcile). They are in memory, too. Default 32 MiB.
   */
  keepBytes?: number;
  /** Told what goes wrong in the background, for people. It never holds a secret. */
  log?: (message: string) => void;
  /** Told why whoever waits for outcomes is waiting: each reason once, when there has been one for two seconds. */
  onWaiting?: (reason: string) => void;
}

export interface Settings {
  limits: Limits & { rows: number; bytes: number };
  window: Window;
  backoff: { initial: number; max: number; factor: number; jitter: number };
  keep: number;
  keepBytes: number;
  log: (message: string) => void;
  onWaiting: ((reason: string) => void) | undefined;
}

/** What a program can do about a stream that does not go on by itself. */
export const wayOn = (code: string): string => (hopeless.has(code) ? " (Client.reconcile sends what the session lacks in a new stream, Client.abandon gives it up)" : "");

/** The error of waiting for what is not sent until someone decides: its session's stream has stopped. */
export class Standstill extends MooringError {
  constructor(readonly session: string, err: MooringError) {
    super(err.codeName, `session ${session} cannot go on: ${err.reason}${wayOn(err.codeName)}`, { at: err.at });
  }
}

/** What is left to do in a session, and why it is not done. */
export interface StreamStatus {
  session: string;
  unfinished: number; // ops
  attempts: number;
  lastError: string;
  stopped: boolean; // until someone decides
}

export interface OutboxStatus {
  outbox: string;
  incarnation: number;
  sending: boolean; // this is the one that sends
  pending: number;
  inFlight: number;
  acked: number;
  failed: number;
  skipped: number;
  void: number;
  bytes: number; // of unfinished batches
  streams: StreamStatus[];
}

/** One op in the outbox. */
export interface OutboxRow {
  op: string;
  batch: string;
  place: number;
  session: string;
  method: string;
  seq: number; // 0 while it has none
  state: OpState;
  attempts: number;
  lastError: string;
  outcome: Outcome | undefined;
  retries: string | undefined;
}
