// What the outbox's sender needs of a connection: a stream on which batches are pipelined.

import type { MooringError } from "./fault.js";
import type { Arg, Expect } from "./intent.js";
import type { Reply } from "./machine.js";
import type { Ref } from "./ref.js";

/** A ref with the id under which it is redeemed. */
export interface Held {
  readonly ref: Ref;
  readonly redemption: string;
}

/** What to open, and with what. */
export interface StreamRequest {
  readonly session: string;
  /** The ref to go through; not looked at where space is set. */
  readonly through: Held | undefined;
  /** While the stream's first unanswered op is create or fork: restore this and call create(session, ownerRef). */
  readonly space: Held | undefined;
  readonly ownerRef: string;
  /** Refs that the batches speak of and that must be held live: fork's via. */
  readonly with: readonly Held[];
  readonly outbox: string;
  readonly secret: string; // of the outbox in this session alone (streamSecret)
  readonly incarnation: number;
}

/** An op as it travels. */
export interface WireOp {
  readonly id: string;
  readonly seq: number;
  readonly method: string;
  readonly args?: readonly Arg[];
  readonly dependsOn?: readonly string[];
  readonly expected?: Expect;
}

/** A batch as it travels. */
export interface WireBatch {
  readonly id: string;
  readonly atomic: boolean;
  readonly ackedThrough: number;
  readonly ops: readonly WireOp[];
  /** Arguments that a server may leave out, by the place of their op: for one that knows of them. */
  readonly hints?: readonly { readonly op: number; readonly args: readonly Arg[] }[];
}

/** One opened stream. */
export interface LinkStream {
  /** Sends a batch. The promise is always fulfilled, in the order of the calls, also when the link breaks. */
  apply(batch: WireBatch): Promise<Reply>;
  /** Tells acked_through without a batch; nobody waits for it. */
  acknowledge(through: number): void;
  /** The last seq that the server had recorded when the stream was opened. */
  lastSeq(): Promise<number>;
  /** Called once, when the stream is of no more use. */
  onGone: (err: MooringError) => void;
  close(): void;
}

/** Opens streams. It need not wait for the server's answer: a failure may come out of the first apply as well. */
export interface Link {
  openStream(req: StreamRequest): Promise<LinkStream>;
}
