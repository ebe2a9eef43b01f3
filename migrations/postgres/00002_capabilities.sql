-- What capabilities are said to have done and allowed: refs for one message, refs
-- bound to a key, their uses, and an audit whose rows are a chain for each target.

-- +goose Up

ALTER TABLE grants
    ADD COLUMN message text COLLATE "C" NOT NULL DEFAULT '',
    -- In place of rights, of a ref for one message: a server of the version before finds none.
    ADD COLUMN message_rights smallint NOT NULL DEFAULT 0,
    ADD COLUMN seal    bytea NOT NULL DEFAULT '',
    ADD COLUMN noted   smallint NOT NULL DEFAULT 0; -- its expiry is in the audit
-- A revocation changes many at once: there is room for it on their pages.
ALTER TABLE grants SET (fillfactor = 50);
CREATE INDEX grants_expiring ON grants (expires, target, tail) WHERE expires > 0 AND noted = 0;

-- Space refs may be shared and revoked now, by who had the root.
UPDATE grants SET rights = rights | 12 WHERE target LIKE 'spc%' AND parent_target = '';

-- How often refs were used, and when last: not in grants, which change under
-- their session's lock.
CREATE TABLE uses (
    target text COLLATE "C" NOT NULL,
    tail   text COLLATE "C" NOT NULL,
    uses   bigint NOT NULL,
    last   bigint NOT NULL,
    PRIMARY KEY (target, tail)
) WITH (fillfactor = 50);

-- Who did what to whose authority. The table audit has what was written before
-- there was a chain, and what a server of the version before writes.
CREATE TABLE audit_log (
    target  text COLLATE "C" NOT NULL,
    seq     bigint NOT NULL,
    at      bigint NOT NULL,
    act     smallint NOT NULL,
    reason  smallint NOT NULL,
    cursor  bigint NOT NULL,
    times   bigint NOT NULL,
    ref     text COLLATE "C" NOT NULL,
    actor   text COLLATE "C" NOT NULL,
    subject text COLLATE "C" NOT NULL,
    op      text COLLATE "C" NOT NULL,
    peer    text COLLATE "C" NOT NULL,
    hash    bytea NOT NULL,
    PRIMARY KEY (target, seq)
);

-- The ends of the chains: locked by whoever adds to one.
CREATE TABLE audit_heads (
    target text COLLATE "C" NOT NULL PRIMARY KEY,
    seq    bigint NOT NULL DEFAULT 0,
    head   bytea NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
