-- The server's tables. Every key begins with the session's (or space's) id.
-- Times are Unix milliseconds; payloads are JSON text kept byte for byte.

-- +goose Up

CREATE TABLE meta (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE spaces (
    id      TEXT NOT NULL PRIMARY KEY,
    created INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One row a session: what every append and every change of authority goes
-- through. The defaults are those of a session that nobody managed to create.
CREATE TABLE sessions (
    id       TEXT    NOT NULL PRIMARY KEY,
    space    TEXT    NOT NULL DEFAULT '',
    external TEXT    NOT NULL DEFAULT '',
    life     INTEGER NOT NULL DEFAULT 0,
    cursor   INTEGER NOT NULL DEFAULT 0,
    base     INTEGER NOT NULL DEFAULT 0,
    head     BLOB    NOT NULL DEFAULT x'',
    epoch    INTEGER NOT NULL DEFAULT 0,
    auth_gen INTEGER NOT NULL DEFAULT 0,
    created  INTEGER NOT NULL DEFAULT 0,
    updated  INTEGER NOT NULL DEFAULT 0,
    creator  TEXT    NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_space ON sessions (space, id) WHERE space <> '';

-- Which session an id of another system names.
CREATE TABLE externals (
    space    TEXT NOT NULL,
    external TEXT NOT NULL,
    session  TEXT NOT NULL,
    PRIMARY KEY (space, external)
) STRICT, WITHOUT ROWID;

-- The log. payload is NULL once purged.
CREATE TABLE events (
    session TEXT    NOT NULL,
    cursor  INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    schema  INTEGER NOT NULL,
    method  TEXT    NOT NULL,
    key     TEXT    NOT NULL,
    ref     TEXT    NOT NULL,
    actor   TEXT    NOT NULL,
    outbox  TEXT    NOT NULL,
    op      TEXT    NOT NULL,
    batch   TEXT    NOT NULL,
    sum     BLOB    NOT NULL,
    hash    BLOB    NOT NULL,
    payload BLOB,
    PRIMARY KEY (session, cursor)
) STRICT, WITHOUT ROWID;

-- The folded state. payload is NULL where it is the payload of the event at cursor.
CREATE TABLE entries (
    session  TEXT    NOT NULL,
    key      TEXT    NOT NULL,
    cursor   INTEGER NOT NULL,
    schema   INTEGER NOT NULL,
    text_len INTEGER NOT NULL,
    grown    INTEGER NOT NULL,
    sum      BLOB    NOT NULL,
    payload  BLOB,
    PRIMARY KEY (session, key)
) STRICT, WITHOUT ROWID;

-- Begun turns; status 1 and 2 are open.
CREATE TABLE turns (
    session TEXT    NOT NULL,
    message TEXT    NOT NULL,
    status  INTEGER NOT NULL,
    lease   INTEGER NOT NULL,
    begun   INTEGER NOT NULL,
    ended   INTEGER NOT NULL,
    outbox  TEXT    NOT NULL,
    final   BLOB    NOT NULL,
    PRIMARY KEY (session, message)
) STRICT, WITHOUT ROWID;
CREATE INDEX turns_open ON turns (session, message) WHERE status <= 2;

CREATE TABLE streams (
    session       TEXT    NOT NULL,
    outbox        TEXT    NOT NULL,
    incarnation   INTEGER NOT NULL,
    last_seq      INTEGER NOT NULL,
    acked_through INTEGER NOT NULL,
    acked_op      TEXT    NOT NULL,
    acked_digest  BLOB    NOT NULL,
    secret_hash   BLOB    NOT NULL,
    PRIMARY KEY (session, outbox)
) STRICT, WITHOUT ROWID;

-- Outcomes not yet acknowledged: one row a batch.
CREATE TABLE records (
    session   TEXT    NOT NULL,
    outbox    TEXT    NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq  INTEGER NOT NULL,
    outcomes  BLOB    NOT NULL,
    PRIMARY KEY (session, outbox, first_seq)
) STRICT, WITHOUT ROWID;

-- Sturdy refs: id = target "." tail. Only the secret's hash is here.
CREATE TABLE grants (
    target        TEXT    NOT NULL,
    tail          TEXT    NOT NULL,
    parent_target TEXT    NOT NULL,
    parent_tail   TEXT    NOT NULL,
    owner         INTEGER NOT NULL,
    epoch         INTEGER NOT NULL,
    rights        INTEGER NOT NULL,
    methods       TEXT    NOT NULL,
    expires       INTEGER NOT NULL,
    visible_from  INTEGER NOT NULL,
    redeemable    INTEGER NOT NULL,
    redeemed      INTEGER NOT NULL,
    created       INTEGER NOT NULL,
    revoked       INTEGER NOT NULL,
    cut           INTEGER NOT NULL,
    revoked_by    TEXT    NOT NULL,
    label         TEXT    NOT NULL,
    actor         TEXT    NOT NULL,
    hash          BLOB    NOT NULL,
    PRIMARY KEY (target, tail)
) STRICT, WITHOUT ROWID;
CREATE INDEX grants_parent ON grants (parent_target, parent_tail);

-- Redemption ids that were counted.
CREATE TABLE redemptions (
    target     TEXT    NOT NULL,
    tail       TEXT    NOT NULL,
    redemption TEXT    NOT NULL,
    at         INTEGER NOT NULL,
    PRIMARY KEY (target, tail, redemption)
) STRICT, WITHOUT ROWID;

-- Who did what to whose authority; id is a ULID, so rows lie in order of time.
CREATE TABLE audit (
    target  TEXT    NOT NULL,
    id      TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    act     INTEGER NOT NULL,
    reason  INTEGER NOT NULL,
    cursor  INTEGER NOT NULL,
    times   INTEGER NOT NULL,
    ref     TEXT    NOT NULL,
    actor   TEXT    NOT NULL,
    subject TEXT    NOT NULL,
    op      TEXT    NOT NULL,
    PRIMARY KEY (target, id)
) STRICT, WITHOUT ROWID;
