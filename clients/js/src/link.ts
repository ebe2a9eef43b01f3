// The sender's view of a connection: a stream on which batches are pipelined.

import type { MooringError } from "./fault.js";
import type { Arg, Expect } from "./intent.js";
import type { Reply } from "./machine.js";
import type { Ref } from "./ref.js";

/** A ref with the id under which it is redeemed. */
export interface Held {
  readonly ref: Ref;
  readonly redemption: string;
  /** The session that is opened through the ref: one of the space, by the right manage, or below the ref's session, which it reaches. */
  readonly session?: string;
}

/** The session or space that is reached by a ref. */
export const reached = (held: Held): string => held.session ?? held.ref.target;

/** The stream to open, and the capabilities to open it with. */
export interface StreamRequest {
  readonly session: string;
  /** The ref to send through; unused if space is set. */
  readonly through: Held | undefined;
  /** While the stream's first unanswered op is create or fork: restore this and call create(session, ownerRef). */
  readonly space: Held | undefined;
  readonly ownerRef: string;
  /** Refs that the batches name and that must be live: fork's via. */
  readonly with: readonly Held[];
  readonly outbox: string;
  readonly secret: string; // the outbox's secret for this session only (streamSecret)
  readonly incarnation: number;
}

/** An op as it is sent. */
export interface WireOp {
  readonly id: string;
  readonly seq: number;
  readonly method: string;
  readonly args?: readonly Arg[];
  readonly dependsOn?: readonly string[];
  readonly expected?: Expect;
}

/** A batch as it is sent. */
export interface WireBatch {
  readonly id: string;
  readonly atomic: boolean;
  readonly ackedThrough: number;
  readonly ops: readonly WireOp[];
  /** Arguments that a server may leave out, by the position of their op; for servers that know them. */
  readonly hints?: readonly { readonly op: number; readonly args: readonly Arg[] }[];
}

/** One opened stream. */
export interface LinkStream {
  /** Sends a batch. The promise is always fulfilled, in the order of the calls, even if the link breaks. */
  apply(batch: WireBatch): Promise<Reply>;
  /** Sends acked_through without a batch and without waiting. */
  acknowledge(through: number): void;
  /** The last seq that the server had recorded when the stream was opened. */
  lastSeq(): Promise<number>;
  /** Called once, when the stream has ended. */
  onGone: (err: MooringError) => void;
  close(): void;
}

/** Opens streams. It need not wait for the server's answer: the first apply may report the failure. */
export interface Link {
  openStream(req: StreamRequest): Promise<LinkStream>;
}
