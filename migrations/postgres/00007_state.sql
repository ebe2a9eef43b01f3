-- State of any kind.

-- +goose Up

-- Keys are listed by first put: those of a kind in the order of their places.
ALTER TABLE entries ADD COLUMN kind text COLLATE "C" GENERATED ALWAYS AS (split_part(key, '/', 1)) STORED;
CREATE INDEX entries_put ON entries (session, kind, ord, ord_index, key);

-- Who put a value, and when, once the log no longer has its event: before that, the event says it.
ALTER TABLE entries ADD COLUMN put_ref text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN put_actor text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN put_at bigint NOT NULL DEFAULT 0;
