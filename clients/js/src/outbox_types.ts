// The types of the outbox's API.

import { MooringError } from "./fault.js";
import type { Arg, Expect, Limits, Outcome } from "./intent.js";
import type { Window } from "./machine.js";
import { hopeless } from "./reconcile.js";
import type { Ref } from "./ref.js";
import type { OpState } from "./rows.js";

/** An op intent as given to commit. */
export interface Op {
  /** A ULID. By default it is made of the batch's id and the op's position. */
  id?: string | undefined;
  method: string;
  args: readonly Arg[];
  /** Ops that must apply, or this one is skipped. */
  dependsOn?: readonly string[] | undefined;
  /** The cursor that the session must be at. */
  expected?: Expect | undefined;
  /** The failed op that this one replaces. */
  retries?: string | undefined;
}

/** A batch as given to commit: ops of one session. */
export interface NewBatch {
  /** A ULID. Committing the same batch again under the same id changes nothing and returns the same names. */
  id?: string | undefined;
  session: string;
  /** The id of the ref to send through; "" is the session's own, or the only space for a session to be made. */
  via?: string | undefined;
  /** Refs that the batch names, as its caller has them: unknown_ref if another secret is stored for one of them. */
  held?: readonly Ref[] | undefined;
  atomic?: boolean | undefined;
  ops: readonly Op[];
}

/** The names of a committed batch and of its ops, in order. */
export interface Committed {
  readonly batch: string;
  readonly ops: readonly string[];
}

/** Settings of an outbox. */
export interface OutboxOptions {
  limits?: Partial<Limits> & { rows?: number; bytes?: number };
  window?: Partial<Window>;
  /** Pauses, in milliseconds, before retries: 200, then doubled each time up to 30,000, ±50 %. */
  backoff?: { initial?: number; max?: number; factor?: number; jitter?: number };
  /** How long tickets last, in milliseconds; default 30 days. */
  keep?: number;
  /**
   * How many bytes of arguments of applied ops are kept during that time, the newest first: Client.reconcile sends them again
   * if a restored server has lost them. Default 32 MiB.
   */
  keepBytes?: number;
  /** Called with what goes wrong in the background, as text for people without secrets. */
  log?: (message: string) => void;
  /** Called with the reason why outcomes are waited for, once for each reason that lasts two seconds. */
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

/** The ways to continue after a stream has stopped. */
export const wayOn = (code: string): string => (hopeless.has(code) ? " (Client.reconcile sends what the session lacks in a new stream, Client.abandon gives it up)" : "");

/** Thrown when waiting for a session whose stream has stopped until someone decides. */
export class Standstill extends MooringError {
  constructor(readonly session: string, err: MooringError) {
    super(err.codeName, `session ${session} cannot go on: ${err.reason}${wayOn(err.codeName)}`, { at: err.at });
  }
}

/** A session's unfinished ops, and why they are not done. */
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
  sending: boolean; // this tab or process sends
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
