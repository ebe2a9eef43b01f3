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
  hello @0 (version :UInt32, agent :Text) -> (version :UInt32, limits :Limits, now :Int64, server :Text, features :List(Text), history :Text);
  # Tells protocol version and limits; fails with incompatible if there is no common version.
  # features names what the server understands that came after the first version
  # and that Cap'n Web, which refuses what it does not know, must not be sent unasked:
  # resume (the hash beside a cursor), hints (Batch.hints), lifetime (Attenuation.lifetime),
  # understands (that field, where one reads), and the features in use, which ops may need: keys
  # (keys of one's own kinds with any JSON value, patch, add and expect), search (which reads), fork
  # (its argument message), children (create's argument parent), manage (Space.open), reach (Session.open). A feature comes into use
  # when every replica knows it: clients keep ops that need one until hello names it.
  # history is an id of what the database's commits belong to. It is another one since the
  # database was restored from a copy; empty if the server does not know it yet.

  restore @1 (ref :SturdyRef, redemption :Text, proof :Proof) -> (cap :Capability);
  # A sturdy ref becomes a live Session or Space (the id's prefix tells which).
  # redemption is an id the client makes once and keeps, so that reconnecting
  # does not use a limited ref up. Pipelining on cap before the answer is the
  # normal way. Fails with unknown_ref for unknown and wrong alike, with
  # not_yet_known for a well-formed offline ref whose minting has not arrived.
  # A dead ref with the right secret restores to a Session that repeats
  # recorded outcomes and records denials, and nothing else. A sealed ref takes a
  # proof; without one, or with a wrong one, and with the right secret it fails
  # with sealed. Nobody else learns that it is sealed.

  challenge @2 () -> (nonce :Data);
  # A nonce for one proof on this connection, good for a minute: the extra round
  # trip that redeeming a sealed ref costs.
}

struct Proof {
  # That whoever redeems a sealed ref has the private key it is bound to.
  nonce @0 :Data;       # of challenge
  audience @1 :Text;    # HOST:PORT as the client dialled it: the server must know it as its own
  signature @2 :Data;   # Ed25519, over capability.ProofText
}

interface Space extends(Persistent(SturdyRef, Text)) {
  # A set of sessions.
  create @0 (session :Text, owner :Text) -> (session :Session);
  # The session with this client-made id, about to be created: on its stream,
  # create or fork must be the first op, and that op mints the ref named owner.
  # From then on the object is what restoring that ref would give. Creating
  # nothing by itself, it may be called again after any crash.

  list @1 (after :Text, limit :UInt32, order :Text, search :Text, deleted :Bool, parent :Text)
      -> (sessions :List(SessionInfo), more :Bool, next :Text);
  # A page of the sessions. order is oldest (the default), newest, changed (last
  # changed first) or title (without regard to case, then by id; those without one
  # last); search is a part of the title or of an id, its own or that of
  # the session that it was forked from; deleted says that
  # those are listed too; parent, with the order oldest, is the id of a session whose children
  # alone are listed. The next page is after next, in the same order and with
  # the same search: where more is set there is one, though this one may be empty,
  # since only so many sessions are looked at for a page.

  describe @2 () -> (info :GrantInfo, now :Int64);

  attenuate @3 (limits :Attenuation) -> (space :Space);
  # A live capability that allows at most this. It takes no right, since whoever
  # has one could stand in between anyway.

  share @4 (ref :NewRef) -> (refusal :Refusal);
  # Mints a durable ref from this one, with at most its rights and limits. The
  # same again changes nothing. It takes share.

  revoke @5 (ref :Text) -> (refs :UInt64, refusal :Refusal);
  # Revokes a ref of this space, one minted from this one or this one itself, with
  # all below it: sessions created under it are without an owner from then on.
  # refs is how many died.

  refs @6 (query :RefsQuery) -> (refs :List(RefInfo), more :Bool, next :Text);
  audit @7 (after :UInt64, limit :UInt32) -> (page :AuditPage);
  rotate @8 (ref :Text, hash :Data) -> (refusal :Refusal);
  # Puts a new ref in this one's place: it takes over rights, limits and
  # everything minted from this one, which alone is revoked. The same again
  # changes nothing. Only for a space's root ref.

  open @9 (session :Text) -> (session :Session);
  # A session of this space, with all rights and under this one's ref, for which manage is
  # needed. The first opening is audited, in the session and in the space. A session that
  # was opened before is opened under a dead ref too: it repeats recorded outcomes, and
  # records denials.

  removeOlder @10 (method :Text, key :Text, age :UInt64, before :Int64, after :Text, limit :UInt32)
      -> (before :Int64, done :UInt32, unchanged :UInt32, sessions :List(OldSession), next :Text, stopped :Refusal);
  # The sessions in which nothing has changed for age, in ms, by id: at most limit of them
  # (0: as many as the server takes at once, 500 at most). method "delete" ends each for good, "purge"
  # removes every payload of key from each, and without a method they are listed. Each is
  # looked at again in the transaction that removes; one that has changed meanwhile, or in
  # which a turn is running, is left. done is how many were deleted or purged, unchanged how
  # many had nothing to purge, and sessions has the others with the reason, or all that are
  # listed. The next page is after next, with before as this one gives it, so that
  # all pages mean the same time: it goes before age. An empty next is the end; a page may be
  # empty and have a next, since only so many sessions are looked at. stopped is why no more
  # was done: what was done before that stands. A repeat does nothing to what is done already.
  # It takes manage.
}

struct OldSession {
  # A session in which nothing has changed for a while.
  id @0 :Text;
  updated @1 :Int64;    # when its last event was committed, Unix ms
  events @2 :UInt64;    # in its log
  bytes @3 :UInt64;     # that it holds
  refusal @4 :Refusal;  # why it was left
}

struct Attenuation {
  # What a narrower capability is to allow. Fields that are not set keep what
  # there is; nothing can be wider.
  rights @0 :UInt16;            # capability.Rights bits; 0: all there are
  methods @1 :List(Text);       # append only these
  expires @2 :Int64;            # Unix ms; 0: never
  from @3 :UInt64;              # first visible cursor
  message @4 :Text;             # one message alone, with its parts and turn
  label @5 :Text;
  actor @6 :Text;               # a path under the present one
  lifetime @7 :UInt64;          # ms from when this is carried out: goes before expires, by
                                # which a server goes that does not know it; 0: none
  readKeys @8 :List(Text);      # show only these keys; a text that ends in "/" is all that is below it.
  writeKeys @9 :List(Text);     # write only these. With one of the two, rights has the bit keyLimits
  children @10 :UInt16;         # rights in the session's children, of all depths, that are there and that come;
                                # 0: it does not reach them, whatever the present one does
  ask @11 :List(Text);          # ask only requests of these kinds
  answer @12 :List(Text);       # claim and answer only these
}

const keyLimits :UInt16 = 0x8000;
# In Attenuation.rights, where readKeys or writeKeys are set: a server that does not know
# these two refuses the bit, and so does not mint a ref without the limits.

struct NewRef {
  # A sturdy ref that a client has made, to be minted.
  id @0 :Text;
  hash @1 :Data;                # SHA-256 of its secret
  limits @2 :Attenuation;
  redemptions @3 :UInt32;       # 0: any number
  seal @4 :Data;                # Ed25519 public key it is bound to; empty: none
}

struct RefsQuery {
  under @0 :Text;               # a ref's id; empty: the one that is asked through
  after @1 :Text;               # next of the page before, or the last id one has; empty: from the start
  limit @2 :UInt32;             # 0: as many as the server gives at once
}

struct RefInfo {
  # A ref of a delegation tree.
  grant @0 :GrantInfo;
  parent @1 :Text;              # the ref it was minted from
  created @2 :Int64;
  lastUsed @3 :Int64;           # 0: never
  uses @4 :UInt64;              # calls and ops under it; redemptions are in grant
  revoked @5 :Int64;            # when; 0: not
  revokedBy @6 :Text;
}

struct AuditPage {
  rows @0 :List(AuditRow);      # by seq, consecutive
  seq @1 :UInt64;               # of the last row there is
  head @2 :Data;                # its hash: the chain's end
}

struct AuditRow {
  # Who did what to whose authority (capability.AuditRow).
  seq @0 :UInt64;
  at @1 :Int64;
  act @2 :UInt8;                # capability.AuditAct
  ref @3 :Text;
  actor @4 :Text;
  subject @5 :Text;             # the ref it was done to, or the method
  reason @6 :UInt16;            # fault.Code
  op @7 :Text;
  cursor @8 :UInt64;
  count @9 :UInt32;
  peer @10 :Text;               # address
  hash @11 :Data;               # over the row before and this one
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
  head @9 :Data;        # hash of the event at cursor: the end of the log's chain
  order @10 :Text;      # what ord goes by: "" the log (cursor, and which of the event's values), "time" when it was created, Unix ms
  origin @11 :Origin;   # what it was forked from; null if it was not, or for a ref that does not show the whole session
  parent @12 :Parent;   # the session whose child it is; null as origin
  reverted @13 :Reverted;   # what it is reverted to; null if it is not
  compacted @14 :Compacted; # up to where it is compacted; null if it is not, while a revert hides that, and for a ref
                            # that does not show the whole session
}

struct Parent {
  # What a session was created under, as the run of a sub-agent.
  session @0 :Text;
  key @1 :Text;         # of the parent's message or part that started it; empty if none is named
}

struct Reverted {
  # What a session is reverted to: this and what comes after it is hidden. A ref that does not
  # show the whole session is told the cursor alone.
  to @0 :Text;          # message/ID or part/MESSAGE/ID
  cursor @1 :UInt64;    # of the event
  actor @2 :Text;       # who did it
  at @3 :Int64;         # when, Unix ms
}

struct Compacted {
  # Up to where a session is compacted: the compacted view shows the summary in place of this
  # message and those before it. Others are shown everything.
  upto @0 :Text;        # message/ID
  summary @1 :Text;     # message/ID
  cursor @2 :UInt64;    # of the event
  actor @3 :Text;       # who did it
  at @4 :Int64;         # when, Unix ms
  ord @5 :UInt64;       # the place of upto in the session's order, as of entries
  ordIndex @6 :UInt64;
  place @7 :UInt64;     # the summary's
  placeIndex @8 :UInt64;
}

struct Origin {
  # What a fork began as a copy of.
  session @0 :Text;
  cursor @1 :UInt64;    # of that session, as of which it was copied
  message @2 :Text;     # id of the last message, in the session's order, that was copied; empty for all
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
  message @14 :Text;            # one message alone; empty: all
  seal @15 :Data;               # Ed25519 public key it is bound to; empty: none
  readKeys @16 :List(Text);     # the keys it shows, and those it writes, as in Attenuation;
  writeKeys @17 :List(Text);    # empty: all
  children @18 :UInt16;         # rights in the session's children; 0: it does not reach them
  ask @19 :List(Text);          # the kinds of requests it asks, and those it answers; empty: all
  answer @20 :List(Text);
}

interface Session extends(Persistent(SturdyRef, Text)) {
  # One session under one ref. Every method checks that ref's authority anew.

  describe @0 () -> (info :SessionInfo, grant :GrantInfo, now :Int64);

  openStream @1 (outbox :Text, secret :Data, incarnation :UInt64) -> (stream :Stream, lastSeq :UInt64, ackedThrough :UInt64);
  # The first opening registers the secret's hash, and later ones with that secret
  # open the same stream. Another secret under the same outbox id has a stream of its
  # own: outbox ids stand in events and prove nothing. The live stream is then the
  # right to speak for that outbox. The secret should be good for this session alone:
  # clients derive it from their outbox's own. A new outbox id has no "~" in it.

  snapshot @2 (at :UInt64, sink :EventSink, hash :Data, understands :List(Text), keys :List(Text), compacted :Bool) -> (cursor :UInt64);
  # Streams the folded state to sink.state and returns when it is through. at 0
  # is now; another cursor is folded from the log. hash is that of the event at
  # the cursor: fails with server_behind where another is given. understands, keys and compacted
  # as in SubscribeOptions.

  subscribe @3 (options :SubscribeOptions, sink :EventSink) -> (subscription :Subscription);
  # Every event after options.from, once, in order, in windows of bytes: the
  # sink's returns are the acknowledgements.

  revoke @4 (ref :Text, epoch :Bool, takeOver :Bool)
      -> (cut :UInt64, epoch :UInt64, refusal :Refusal, children :List(ChildCut), childCount :UInt32);
  # At once and without an outbox: ref and its subtree, or with epoch every
  # share of the session. cut is the cursor after which nothing under that
  # authority commits. The same rules as the ops revoke and bumpEpoch. Through Space.open,
  # the owner's ref of the session is revoked only with takeOver. Where a ref that reaches
  # children has died, children has the cuts in them, by id, the first 1,000 of childCount.

  events @5 (from :UInt64, limit :UInt32, hash :Data, understands :List(Text), keys :List(Text)) -> (events :List(Event), cursor :UInt64);
  # A page of the log after cursor from; cursor is the session's. hash is that of
  # the event at from, and understands and keys, as in SubscribeOptions.

  attenuate @6 (limits :Attenuation) -> (session :Session);
  # A live capability that allows at most this, to be passed in a call. It dies
  # with this one's ref. It takes no right, since whoever has one could stand in
  # between anyway; a durable ref is made by the op share.

  refs @7 (query :RefsQuery) -> (refs :List(RefInfo), more :Bool, next :Text);
  # A page of the tree of refs below one: depth first, children in the order of their
  # making, so each after the one it was minted from. Where more is set, the next page is
  # after next. What is minted or revoked between two pages moves nothing. What is
  # below a ref that was rotated has moved: then next fails with conflict. It takes
  # revoke, and the ref asked for must be this one or below it, but for an owner.

  audit @8 (after :UInt64, limit :UInt32) -> (page :AuditPage);
  # The session's audit after a row. Only for an owner's ref.

  rotate @9 (ref :Text, hash :Data, takeOver :Bool) -> (cut :UInt64, refusal :Refusal);
  # Puts a new owner's ref in this one's place: it takes over everything minted
  # from this one, which alone is revoked. The same again gives the same cut. Through
  # Space.open it puts the new one in the place of the session's owner's, only with takeOver.

  share @10 (ref :NewRef) -> (refusal :Refusal);
  # At once and without an outbox: mints a durable ref from this one, by the same
  # rules as the op share. The same again changes nothing. It takes share.

  stat @11 () -> (stat :SessionStat);
  # How much of the session the ref shows. It takes read.

  get @12 (keys :List(Text)) -> (entries :List(EntryInfo), cursor :UInt64, next :UInt32);
  # The values of 1 to 64 keys, in the order of keys and of one snapshot, that of the
  # session at cursor. A key without a value, or that the ref does not show, has no entry.
  # next is 0 where all keys are answered; else an answer's room was full, and keys[next] is
  # the first to ask for again. It takes read.

  list @13 (prefix :Text, after :Text, limit :UInt32, order :Text, values :Bool, compacted :Bool)
      -> (entries :List(EntryInfo), more :Bool, next :Text, cursor :UInt64);
  # A page of the keys that begin with prefix and are longer: todo/ is all below todo, and
  # an empty prefix is all keys. Any other prefix ends with "/". order is key (by the bytes
  # of the key; the default) or put (by the place in the session's order: by first put, or
  # by time of creation where the session goes by that). limit is 1 to 1,000 entries, 0 is
  # 100; fewer come where an answer's room is full. Without values payload is empty. compacted
  # is as in SubscribeOptions. Where more is set the next page is after next, in the same order and with the same prefix;
  # this one may be empty, since only so many keys are looked at for a page. cursor is the
  # session's. Every page is of a snapshot of its own: a key that is there all the time, and
  # is not removed and put again, comes once. It takes read.

  search @14 (query :Text, after :Text, limit :UInt32)
      -> (found :List(Found), next :Text, indexing :Bool, cursor :UInt64);
  # The entries in whose values the words of query are, the last in the session's order first. A
  # word is letters and digits; parts of identifiers, pairs of characters of scripts without spaces
  # and emoji are found, too; words in double quotes are found one after the other. query has up to
  # 1,000 bytes and 64 words. limit is 1 to 100 entries, 0 is 20. Where there is a next, the next
  # page is after it; a page may be empty and have one, since only so much is compared for a page.
  # indexing says that the session's index is not up to date yet, as where a large session is
  # searched first: there may be others, and the next search goes on with it. It takes read.

  children @15 (after :Text, limit :UInt32) -> (sessions :List(SessionInfo), more :Bool, next :Text);
  # A page of the living sessions that were created with this one as their parent, by id: of each its
  # id, parent and time of creation, and nothing else. Where more is set the next page is after
  # next; this one may be empty. A ref that shows some keys alone shows those which these
  # have started, one with a first cursor none. It takes read.

  open @16 (session :Text) -> (session :Session);
  # A session below this one, at any depth, with the rights that this one's ref has in
  # children and under its id. Nothing is recorded by it. One that is below is opened under a
  # dead ref too: it repeats recorded outcomes, and records denials. An attenuated one opens
  # them if its limits name rights in children.

  addWebhook @17 (id :Text, url :Text, secret :Text, kinds :List(Text)) -> (webhook :WebhookInfo);
  # Has the servers send notices of what happens here to url, signed as in Standard Webhooks with
  # secret (whsec_ and base64 of 24 to 64 bytes), which the client makes. kinds are those of the notices: request.open,
  # request.answered, turn.finished; empty: all. The client chooses id; the same again changes nothing, and
  # another one under the same id is already_exists. Only for an owner's ref, and where the
  # operator lets the server call webhooks; else unsupported.

  webhooks @18 () -> (webhooks :List(WebhookInfo), now :Int64);
  # The session's webhooks, without their secrets. Only for an owner's ref.

  removeWebhook @19 (id :Text) -> (removed :Bool);
  # Ends one. It was not there, or was removed before, where removed is false. Only for an owner's ref.
}

struct WebhookInfo {
  # A webhook, and how it does. Times are Unix ms, 0 for never.
  id @0 :Text;
  url @1 :Text;
  kinds @2 :List(Text);
  ref @3 :Text;                 # it was registered under: it ends with that
  created @4 :Int64;
  cursor @5 :UInt64;            # how far it has come in the log
  delivered @6 :Int64;          # when a notice was taken last
  failingSince @7 :Int64;       # 0: the last try did not fail
  failures @8 :UInt32;          # tries since then
  error @9 :Text;               # what kind of failure the last one was, as status_500, timeout, private_address
  next @10 :Int64;              # when it is tried again
  restarted @11 :Int64;         # when it began anew with the open requests, since the log before was gone
  ended @12 :Text;              # why nothing more is sent: gone (410), gave_up (three days), or the code of its ref; else empty
  endedAt @13 :Int64;
}

struct ChildCut {
  # Where a session's ref ended in a child.
  session @0 :Text;
  cut @1 :UInt64;       # nothing under the ref commits there after it
}

struct Found {
  # An entry that a search has found.
  entry @0 :EntryInfo;          # without its payload
  place @1 :Text;               # where: a JSON Pointer into the value, or key: in the key's ids
  excerpt @2 :List(Text);       # of the text there: in turn what is beside a match, and a match
}

struct EntryInfo {
  # A key of the state, its value, and who changed it last.
  key @0 :Text;
  cursor @1 :UInt64;            # of the value's last change; text that was appended is one
  schema @2 :UInt32;            # the payload's schema_version
  payload @3 :Text;             # the value, JSON text
  ord @4 :UInt64;               # its place in the session's order: ord, then ordIndex, then key
  ordIndex @5 :UInt64;
  bytes @6 :UInt64;             # of the value; about so many while text is appended and without payload
  ref @7 :Text;                 # of the event at cursor: the ref it was written under, who wrote it
  actor @8 :Text;               # and when, Unix ms; empty and 0 where the ref does not show that
  at @9 :Int64;                 # event, and where the log no longer has it and it had other values, too
  claim @10 :Claim;             # who works on it; null for nobody
}

struct Claim {
  # Who works on a key, by the op claim: no other changes it meanwhile.
  cursor @0 :UInt64;            # of the event that made the claim: what the owner's ops name
  renewed @1 :UInt64;           # of its last event
  until @2 :Int64;              # when its lease is over, by the server's clock, Unix ms
  outbox @3 :Text;              # whose stream it is
  worker @4 :Text;              # of the stream, as it named itself
  ref @5 :Text;                 # it was last claimed under, and by whom
  actor @6 :Text;
}

struct SessionStat {
  cursor @0 :UInt64;            # of the last event
  events @1 :UInt64;            # that the log has and the ref shows, without cursor marks
  first @2 :Int64;              # when the first and the last of them were committed, Unix ms;
  last @3 :Int64;               # 0 if there is none
  kinds @4 :List(KindStat);     # of the keys that the ref shows, by name: 256 at most
}

struct KindStat {
  kind @0 :Text;                # message, part, model, session, session_diff, or one of the session's users
  keys @1 :UInt64;
  bytes @2 :UInt64;             # of their values
}

struct SubscribeOptions {
  from @0 :UInt64;              # the last cursor one has; 0 for all
  snapshot @1 :Bool;            # start with the folded state instead of the log
  windowBytes @2 :UInt32;       # unacknowledged bytes; 0 for the server's default
  hash @3 :Data;                # Event.hash at from: refused with server_behind if the log has
                                # another there, since it is not the one that one has; empty: not compared
  understands @4 :List(Text);   # features that the subscriber knows, as hello names them: a session that
                                # needs another is refused with incompatible, before its first event
  keys @5 :List(Text);          # send only these keys, as in Attenuation.readKeys; cursor marks stand for all
                                # else. Not set: all that the ref shows
  compacted @6 :Bool;           # the compacted view: of a session that is compacted, the state has the summary and the
                                # messages after the mark. Events are sent as they are: a subscriber leaves out
                                # what is of the messages in EventSink.state's leftOut
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
  hash @11 :Data;               # what a resume names beside the cursor: the chain's, but for a ref of some keys
  purged @12 :Bool;
  hidden @13 :Bool;             # a cursor mark: what is between the last event and cursor is not shown; all else but hash is empty
  sum @14 :Data;                # the payload's hash as the chain has it; in pages alone (Session.events)
}

struct Entry {
  key @0 :Text;
  cursor @1 :UInt64;
  schema @2 :UInt32;
  payload @3 :Text;
  ord @4 :UInt64;               # the entry's place in the session's order: ord, then ordIndex, then key;
  ordIndex @5 :UInt64;          # both 0 from a server that keeps none
  claim @6 :Claim;              # who works on it; null for nobody
}

struct Turn {
  message @0 :Text;
  status @1 :UInt8;             # session.TurnStatus
  begun @2 :UInt64;
  ended @3 :UInt64;
  outbox @4 :Text;              # whose stream it is: that stream's next op resumes it
  ref @5 :Text;                 # it was begun under; empty if no row says so any more
}

interface EventSink {
  # The subscriber's callback. A call that returns gives its bytes back to the window.
  events @0 (events :List(Event));
  # Consecutive cursors, but where one stands for others that are hidden.

  state @1 (entries :List(Entry), turns :List(Turn), cursor :UInt64, last :Bool, hash :Data, compacted :Compacted, leftOut :List(Text));
  # A piece of the folded state as of cursor. hash is that of the event there, in the last piece. compacted
  # is set in the compacted view of a session that is compacted, and leftOut are the ids of the
  # messages that it leaves out.

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
  hints @4 :List(Hints);
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

struct Hints {
  # Arguments of an op that a server may leave out which does not know them: it
  # then does what it did before there were any. They are in no digest.
  op @0 :UInt32;                # its place in the batch
  args @1 :List(Arg);
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
