-- What a server must know of its rows to keep to limits that were not there before.

-- +goose Up

-- Of an entry whose value is in its own row: the event that the value goes on from, which
-- may be before that of the turn's end which took it over. 0: nobody has said so, and the
-- value may be from any time. A value that is its event's is as old as that.
ALTER TABLE entries ADD COLUMN since bigint NOT NULL DEFAULT 0;
