-- What capabilities are said to have done and allowed: refs for one message, refs
-- bound to a key, their uses, and an audit whose rows are a chain for each target.

-- +goose Up

ALTER TABLE grants ADD COLUMN message TEXT NOT NULL DEFAULT '';
-- In place of rights, of a ref for one message: a server of the version before finds none.
ALTER TABLE grants ADD COLUMN message_rights INTEGER NOT NULL DEFAULT 0;
ALTER TABLE grants ADD COLUMN seal BLOB NOT NULL DEFAULT x'';
ALTER TABLE grants ADD COLUMN noted INTEGER NOT NULL DEFAULT 0; -- its expiry is in the audit
CREATE INDEX grants_expiring ON grants (expires, target, tail) WHERE expires > 0 AND noted = 0;

-- Space refs may be shared and revoked now, by who had the root.
UPDATE grants SET rights = rights | 12 WHERE target LIKE 'spc%' AND parent_target = '';

-- How often refs were used, and when last: not in grants, which change under
-- their session's lock.
CREATE TABLE uses (
    target TEXT NOT NULL,
    tail   TEXT NOT NULL,
    uses   INTEGER NOT NULL,
    last   INTEGER NOT NULL,
    PRIMARY KEY (target, tail)
) STRICT, WITHOUT ROWID;

-- Who did what to whose authority. The table audit has what was written before
-- there was a chain, and what a server of the version before writes.
CREATE TABLE audit_log (
    target  TEXT NOT NULL,
    seq     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    act     INTEGER NOT NULL,
    reason  INTEGER NOT NULL,
    cursor  INTEGER NOT NULL,
    times   INTEGER NOT NULL,
    ref     TEXT NOT NULL,
    actor   TEXT NOT NULL,
    subject TEXT NOT NULL,
    op      TEXT NOT NULL,
    peer    TEXT NOT NULL,
    hash    BLOB NOT NULL,
    PRIMARY KEY (target, seq)
) STRICT, WITHOUT ROWID;

-- The ends of the chains: locked by whoever adds to one.
CREATE TABLE audit_heads (
    target TEXT NOT NULL PRIMARY KEY,
    seq    INTEGER NOT NULL DEFAULT 0,
    head   BLOB NOT NULL DEFAULT x''
) STRICT, WITHOUT ROWID;
