-- State of any kind.

-- +goose Up

-- Keys are listed by first put: those of a kind in the order of their places.
ALTER TABLE entries ADD COLUMN kind TEXT GENERATED ALWAYS AS (substr(key, 1, instr(key || '/', '/') - 1)) VIRTUAL;
CREATE INDEX entries_put ON entries (session, kind, ord, ord_index, key);

-- Who put a value, and when, once the log no longer has its event: before that, the event says it.
ALTER TABLE entries ADD COLUMN put_ref TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN put_actor TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN put_at INTEGER NOT NULL DEFAULT 0;

-- Who works on a key (session.Claim, as JSON; '' is nobody), until when, and under which ref (its tail).
ALTER TABLE entries ADD COLUMN claim TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN claim_until INTEGER NOT NULL DEFAULT 0;
ALTER TABLE entries ADD COLUMN claim_ref TEXT NOT NULL DEFAULT '';
CREATE INDEX entries_claimed ON entries (session, claim_until, claim_ref) WHERE claim_until > 0;

-- The keys that a ref shows, and those that it writes, one a line; '' is no limit.
ALTER TABLE grants ADD COLUMN read_keys TEXT NOT NULL DEFAULT '';
ALTER TABLE grants ADD COLUMN write_keys TEXT NOT NULL DEFAULT '';
-- In place of rights, of a ref that is limited to keys: a server of the previous version finds none.
ALTER TABLE grants ADD COLUMN key_rights INTEGER NOT NULL DEFAULT 0;

-- The features that a reader of the session needs (session.Features); a server of the previous
-- version reads and keeps 0.
ALTER TABLE sessions ADD COLUMN needs INTEGER NOT NULL DEFAULT 0;

-- The servers of the database: the features that each knows, and when it last said so. It stays
-- empty here, where a database has one server.
CREATE TABLE replicas (
    id       TEXT    NOT NULL PRIMARY KEY,
    features INTEGER NOT NULL,
    seen     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX replicas_seen ON replicas (seen);
