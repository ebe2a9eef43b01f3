# The wire of Mooring: a session as an object that is reached only through a
# capability. Everything here may grow by new fields and methods with higher
# numbers; nothing is ever renumbered or reused. Ids are text (ses_ + ULID and
# so on), times are Unix milliseconds UTC, payloads are JSON text kept byte for
# byte, cursors count a session's events 1, 2, 3 … without gaps.
#
# Business outcomes are data (Outcome, Refusal), never exceptions: exceptions
# are for the link itself and for capabilities that are dead.

@0xd3a8d1b0c6f4e217;

using Go = import "/go.capnp";
using Persistent = import "/capnp/persistent.capnp".Persistent;

$Go.package("wire");
$Go.import("github.com/mooring-rpc/mooring/capnp/wire");

const protocolVersion :UInt32 = 1;
# Raised when a peer that only knows the older one would misunderstand.

struct SturdyRef {
  # A durable name of a capability, as restore takes it and save gives it. The
  # host is not in it: it is the vat one is connected to.
  id @0 :Text;
  secret @1 :Data;      # 32 bytes
}

struct Refusal {
  # Why a call was not done, from the one list of codes.
  code @0 :UInt16;      # fault.Code
  message @1 :Text;     # what was wrong and what to do; no secrets, no paths
  at @2 :UInt64;        # the position the code speaks of (gap: the expected seq, …)
}

struct Limits {
  # What the server takes. A client checks them in Commit.
  messageBytes @0 :UInt64;      # one Cap'n Proto message
  batchOps @1 :UInt32;          # op intents in a batch
  batchBytes @2 :UInt64;        # a batch's argument bytes in all
  payloadBytes @3 :UInt64;      # one payload
  batchesInFlight @4 :UInt32;   # unanswered applies on one stream
}

interface Gateway {
  # The bootstrap object: what a stranger gets. It holds no authority.
  hello @0 (version :UInt32, agent :Text) -> (version :UInt32, limits :Limits, now :Int64, server :Text);
  # Tells protocol version and limits; fails with incompatible if there is no common version.

  restore @1 (ref :SturdyRef, redemption :Text) -> (cap :Capability);
  # A sturdy ref becomes a live Session or Space (the id's prefix tells which).
  # redemption is an id the client makes once and keeps, so that reconnecting
  # does not use a limited ref up. Pipelining on cap before the answer is the
  # normal way. Fails with unknown_ref for unknown and wrong alike, with
  # not_yet_known for a well-formed offline ref whose minting has not arrived.
  # A dead ref with the right secret restores to a Session that repeats
  # recorded outcomes and records denials, and nothing else.
}

interface Space extends(Persistent(SturdyRef, Text)) {
  # A set of sessions.
  create @0 (session :Text, owner :Text) -> (session :Session);
  # The session with this client-made id, about to be created: on its stream,
  # create or fork must be the first op, and that op mints the ref named owner.
  # From then on the object is what restoring that ref would give. Creating
  # nothing by itself, it may be called again after any crash.

  list @1 (after :Text, limit :UInt32) -> (sessions :List(SessionInfo), more :Bool);
  describe @2 () -> (info :GrantInfo);
}

struct SessionInfo {
  id @0 :Text;
  external @1 :Text;
  cursor @2 :UInt64;
  created @3 :Int64;
  updated @4 :Int64;
  title @5 :Text;       # the session info's title, if it has one
  epoch @6 :UInt64;
  base @7 :UInt64;      # the log starts after this cursor
  deleted @8 :Bool;
}

struct GrantInfo {
  # What a ref allows. Never with a secret.
  id @0 :Text;
  target @1 :Text;
  owner @2 :Bool;
  epoch @3 :UInt64;
  rights @4 :UInt16;            # capability.Rights bits
  methods @5 :List(Text);       # empty: all
  expires @6 :Int64;            # 0: never
  from @7 :UInt64;
  limit @8 :UInt32;
  used @9 :UInt32;
  label @10 :Text;
  actor @11 :Text;
  dead @12 :UInt16;             # fault.Code it fails with; 0 alive
  cut @13 :UInt64;              # the session's cursor when it was revoked
}

interface Session extends(Persistent(SturdyRef, Text)) {
  # One session under one ref. Every method checks that ref's authority anew.

  describe @0 () -> (info :SessionInfo, grant :GrantInfo, now :Int64);

  openStream @1 (outbox :Text, secret :Data, incarnation :UInt64) -> (stream :Stream, lastSeq :UInt64, ackedThrough :UInt64);
  # The first opening registers the secret's hash, later ones must match it.
  # The live stream is then the right to speak for that outbox.

  snapshot @2 (at :UInt64, sink :EventSink) -> (cursor :UInt64);
  # Streams the folded state to sink.state and returns when it is through. at 0
  # is now; another cursor is folded from the log.

  subscribe @3 (options :SubscribeOptions, sink :EventSink) -> (subscription :Subscription);
  # Every event after options.from, once, in order, in windows of bytes: the
  # sink's returns are the acknowledgements.

  revoke @4 (ref :Text, epoch :Bool) -> (cut :UInt64, epoch :UInt64, refusal :Refusal);
  # At once and without an outbox: ref and its subtree, or with epoch every
  # share of the session. cut is the cursor after which nothing under that
  # authority commits. The same rules as the ops revoke and bumpEpoch.

  events @5 (from :UInt64, limit :UInt32) -> (events :List(Event), cursor :UInt64);
  # A page of the log after cursor from; cursor is the session's.
}

struct SubscribeOptions {
  from @0 :UInt64;              # the last cursor one has; 0 for all
  snapshot @1 :Bool;            # start with the folded state instead of the log
  windowBytes @2 :UInt32;       # unacknowledged bytes; 0 for the server's default
}

struct Event {
  cursor @0 :UInt64;
  method @1 :Text;
  key @2 :Text;
  schema @3 :UInt32;
  payload @4 :Text;             # JSON object text; empty if purged
  ref @5 :Text;
  actor @6 :Text;
  op @7 :Text;
  batch @8 :Text;
  at @9 :Int64;
  outbox @10 :Text;
  hash @11 :Data;
  purged @12 :Bool;
}

struct Entry {
  key @0 :Text;
  cursor @1 :UInt64;
  schema @2 :UInt32;
  payload @3 :Text;
}

struct Turn {
  message @0 :Text;
  status @1 :UInt8;             # session.TurnStatus
  begun @2 :UInt64;
  ended @3 :UInt64;
  outbox @4 :Text;              # whose stream it is: that stream's next op resumes it
}

interface EventSink {
  # The subscriber's callback. A call that returns gives its bytes back to the window.
  events @0 (events :List(Event));
  # Consecutive cursors.

  state @1 (entries :List(Entry), turns :List(Turn), cursor :UInt64, last :Bool);
  # A piece of the folded state as of cursor.

  ended @2 (refusal :Refusal);
  # The subscription is over: revoked, expired, stale_epoch, cursor_expired, slow_consumer, draining.
}

interface Subscription {
  cancel @0 () -> ();
}

interface Stream {
  # The right to speak for one outbox in one session.
  apply @0 (batch :Batch, with :List(Capability)) -> (reply :ApplyReply);
  # Answers come in the order of the calls. with holds live sessions that ops
  # of the batch refer to by ref id (fork's source): naming one in an op is not
  # enough, one must hold it.

  acknowledge @1 (through :UInt64) -> (refusal :Refusal);
  # acked_through without a batch: the client has stored every outcome up to it.
}

struct ApplyReply {
  union {
    ack @0 :Ack;
    refusal @1 :Refusal;        # nothing was recorded; the batch may come again as it is
  }
}

struct Batch {
  id @0 :Text;
  atomic @1 :Bool;
  ackedThrough @2 :UInt64;
  ops @3 :List(Op);
}

struct OpRef {
  op @0 :Text;
  path @1 :Text;
}

struct Op {
  # An op intent; batch id, atomic and session are the batch's and the stream's.
  id @0 :Text;
  seq @1 :UInt64;
  method @2 :Text;
  args @3 :List(Arg);
  dependsOn @4 :List(Text);
  expected :union {
    none @5 :Void;
    cursor @6 :UInt64;
    ref @7 :OpRef;
  }
}

struct Arg {
  name @0 :Text;
  union {
    json @1 :Text;
    ref @2 :OpRef;
  }
}

struct Ack {
  cursor @0 :UInt64;            # the session's, after the batch
  applied @1 :UInt32;
  duplicates @2 :UInt32;
  rejected @3 :UInt32;          # every recorded outcome that is not applied
  outcomes @4 :List(Outcome);   # one an op, in order
}

struct Outcome {
  op @0 :Text;
  status @1 :UInt8;             # ledger.Status; 0 if pruned
  duplicate @2 :Bool;
  reason @3 :UInt16;            # fault.Code
  message @4 :Text;
  cursor @5 :UInt64;
  result @6 :Text;              # JSON object text
  cause @7 :Text;               # op id
  at @8 :UInt64;
}
