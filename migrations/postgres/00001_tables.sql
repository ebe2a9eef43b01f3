-- The server's tables. Every key begins with the session's (or space's) id.
-- Times are Unix milliseconds; payloads are JSON text kept byte for byte. What is
-- updated at every commit has room on its page (fillfactor) and no index on the
-- columns that change, so that an update stays on its page.

-- +goose Up

CREATE TABLE meta (
    name  text COLLATE "C" NOT NULL PRIMARY KEY,
    value text COLLATE "C" NOT NULL
);

CREATE TABLE spaces (
    id      text COLLATE "C" NOT NULL PRIMARY KEY,
    created bigint NOT NULL
);

-- One row a session: what every append and every change of authority goes
-- through. The defaults are those of a session that nobody managed to create.
CREATE TABLE sessions (
    id       text COLLATE "C" NOT NULL PRIMARY KEY,
    space    text COLLATE "C" NOT NULL DEFAULT '',
    external text COLLATE "C" NOT NULL DEFAULT '',
    life     smallint NOT NULL DEFAULT 0,
    cursor   bigint NOT NULL DEFAULT 0,
    base     bigint NOT NULL DEFAULT 0,
    head     bytea NOT NULL DEFAULT '',
    epoch    bigint NOT NULL DEFAULT 0,
    auth_gen bigint NOT NULL DEFAULT 0,
    created  bigint NOT NULL DEFAULT 0,
    updated  bigint NOT NULL DEFAULT 0,
    creator  text COLLATE "C" NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
CREATE INDEX sessions_space ON sessions (space, id) WHERE space <> '';

-- Which session an id of another system names.
CREATE TABLE externals (
    space    text COLLATE "C" NOT NULL,
    external text COLLATE "C" NOT NULL,
    session  text COLLATE "C" NOT NULL,
    PRIMARY KEY (space, external)
);

-- The log. payload is NULL once purged.
CREATE TABLE events (
    session text COLLATE "C" NOT NULL,
    cursor  bigint NOT NULL,
    at      bigint NOT NULL,
    schema  bigint NOT NULL,
    method  text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,
    ref     text COLLATE "C" NOT NULL,
    actor   text COLLATE "C" NOT NULL,
    outbox  text COLLATE "C" NOT NULL,
    op      text COLLATE "C" NOT NULL,
    batch   text COLLATE "C" NOT NULL,
    sum     bytea NOT NULL,
    hash    bytea NOT NULL,
    payload bytea,
    PRIMARY KEY (session, cursor)
);

-- The folded state. payload is NULL where it is the payload of the event at cursor.
CREATE TABLE entries (
    session  text COLLATE "C" NOT NULL,
    key      text COLLATE "C" NOT NULL,
    cursor   bigint NOT NULL,
    schema   bigint NOT NULL,
    text_len bigint NOT NULL,
    grown    bigint NOT NULL,
    sum      bytea NOT NULL,
    payload  bytea,
    PRIMARY KEY (session, key)
) WITH (fillfactor = 80);

-- Begun turns; status 1 and 2 are open.
CREATE TABLE turns (
    session text COLLATE "C" NOT NULL,
    message text COLLATE "C" NOT NULL,
    status  smallint NOT NULL,
    lease   bigint NOT NULL,
    begun   bigint NOT NULL,
    ended   bigint NOT NULL,
    outbox  text COLLATE "C" NOT NULL,
    final   bytea NOT NULL,
    PRIMARY KEY (session, message)
) WITH (fillfactor = 50);
CREATE INDEX turns_open ON turns (session, message) WHERE status <= 2;

CREATE TABLE streams (
    session       text COLLATE "C" NOT NULL,
    outbox        text COLLATE "C" NOT NULL,
    incarnation   bigint NOT NULL,
    last_seq      bigint NOT NULL,
    acked_through bigint NOT NULL,
    acked_op      text COLLATE "C" NOT NULL,
    acked_digest  bytea NOT NULL,
    secret_hash   bytea NOT NULL,
    PRIMARY KEY (session, outbox)
) WITH (fillfactor = 50);

-- Outcomes not yet acknowledged: one row a batch.
CREATE TABLE records (
    session   text COLLATE "C" NOT NULL,
    outbox    text COLLATE "C" NOT NULL,
    first_seq bigint NOT NULL,
    last_seq  bigint NOT NULL,
    outcomes  bytea NOT NULL,
    PRIMARY KEY (session, outbox, first_seq)
);

-- Sturdy refs: id = target "." tail. Only the secret's hash is here.
CREATE TABLE grants (
    target        text COLLATE "C" NOT NULL,
    tail          text COLLATE "C" NOT NULL,
    parent_target text COLLATE "C" NOT NULL,
    parent_tail   text COLLATE "C" NOT NULL,
    owner         smallint NOT NULL,
    epoch         bigint NOT NULL,
    rights        smallint NOT NULL,
    methods       text COLLATE "C" NOT NULL,
    expires       bigint NOT NULL,
    visible_from  bigint NOT NULL,
    redeemable    bigint NOT NULL,
    redeemed      bigint NOT NULL,
    created       bigint NOT NULL,
    revoked       bigint NOT NULL,
    cut           bigint NOT NULL,
    revoked_by    text COLLATE "C" NOT NULL,
    label         text COLLATE "C" NOT NULL,
    actor         text COLLATE "C" NOT NULL,
    hash          bytea NOT NULL,
    PRIMARY KEY (target, tail)
);
CREATE INDEX grants_parent ON grants (parent_target, parent_tail);

-- Redemption ids that were counted.
CREATE TABLE redemptions (
    target     text COLLATE "C" NOT NULL,
    tail       text COLLATE "C" NOT NULL,
    redemption text COLLATE "C" NOT NULL,
    at         bigint NOT NULL,
    PRIMARY KEY (target, tail, redemption)
);

-- Who did what to whose authority; id is a ULID, so rows lie in order of time.
CREATE TABLE audit (
    target  text COLLATE "C" NOT NULL,
    id      text COLLATE "C" NOT NULL,
    at      bigint NOT NULL,
    act     smallint NOT NULL,
    reason  smallint NOT NULL,
    cursor  bigint NOT NULL,
    times   bigint NOT NULL,
    ref     text COLLATE "C" NOT NULL,
    actor   text COLLATE "C" NOT NULL,
    subject text COLLATE "C" NOT NULL,
    op      text COLLATE "C" NOT NULL,
    PRIMARY KEY (target, id)
);
