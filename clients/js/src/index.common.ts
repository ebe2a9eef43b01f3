// The package's exports that are the same everywhere.

export type { AbortedTurns, AbortOptions } from "./aborting.js";
export type { AuditAct, AuditOptions, AuditRow, AuditVerification } from "./audit.js";
export { type AnswerOptions, type AskOptions, type AttenuateOptions, Batch, type ChildRight, type Choice, type Now, type OfClaim, type Payload, Promised, type Reference, reference, Results, type Right, type ShareOptions, Ticket, type Value } from "./batch.js";
export { Client, type ClientOptions, type CreateOptions, type ListOptions, type ParentOptions, Session, Space, type Waiting } from "./client.js";
export { type CodeName, codes, MooringError } from "./fault.js";
export { fold } from "./fold.js";
export type { EntryInfo, EntryPage, KeyOptions, KeyPageOptions } from "./keys.js";
export { JSONText, jsonText, type Limits, type Outcome, type Status } from "./intent.js";
export type { Live, LiveSession } from "./live.js";
export type { JournalOptions, OpenOptions } from "./options.js";
export type { OlderOptions, OldPage, OldSession } from "./older.js";
export { Outbox } from "./outbox.js";
export { type Committed, type NewBatch, type Op, type OutboxOptions, type OutboxRow, type OutboxStatus, Standstill, type StreamStatus } from "./outbox_types.js";
export type { Fate, Reconciled, ReconcileOptions, Reconciliation } from "./reconcile.js";
export { Ref } from "./ref.js";
export type { OpState } from "./rows.js";
export { type Request, type RequestOptions, type RequestState, RequestTicket } from "./requests.js";
export type { Found, FoundPage, SearchPageOptions } from "./search.js";
export type { Child, Claim, Compacted, Cut, Description, Entry, Events, Grant, Hidden, Origin, Parent, RefInfo, RefsOptions, Reverted, SessionEvent, SessionInfo, SnapshotOptions, Stat, State, SubscribeOptions, Turn, View } from "./session.js";
export { newSealKey, type SealKey } from "./seal.js";
export { newBatchID, newULID, opID } from "./ulid.js";
export { type Finding, Verification, type VerifyOptions } from "./verify.js";
