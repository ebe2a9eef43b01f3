-- What those who run a server need of its rows.

-- +goose Up

-- The history that this database's commits belong to. A restore from a copy begins another, and
-- whoever restores says so (mooring admin restored).
INSERT INTO meta (name, value) VALUES ('history', lower(hex(randomblob(16))));

-- Deleted sessions are gone through, for what is left of them.
CREATE INDEX sessions_deleted ON sessions (id) WHERE life = 2;
