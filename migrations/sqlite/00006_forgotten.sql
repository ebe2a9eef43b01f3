-- What is left of deleted sessions when their time is over.

-- +goose Up

-- Of a deleted session: 1 once all that comes for it is answered from this row and its owner's
-- ref alone, so that the rest may go; 2 when that has gone.
ALTER TABLE sessions ADD COLUMN forgotten INTEGER NOT NULL DEFAULT 0;

-- Those of which something is left are gone through.
DROP INDEX sessions_deleted;
CREATE INDEX sessions_forgettable ON sessions (id) WHERE life = 2 AND forgotten < 2;
