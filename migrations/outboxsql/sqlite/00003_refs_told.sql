-- Columns for the things that a server has told of a ref, and for when its row was
-- written: a process that has read the refs later reads only the rows written since. A
-- ref that was dropped leaves a row with its id and nothing else, so that processes
-- which have read the ref before hear that it is gone.

-- +goose Up

ALTER TABLE mooring_outbox_ref ADD COLUMN change    INTEGER NOT NULL DEFAULT 0; -- counts what is written to the table; the highest is never deleted
ALTER TABLE mooring_outbox_ref ADD COLUMN confirmed INTEGER NOT NULL DEFAULT 0; -- when a server last took the secret; 0 none has
ALTER TABLE mooring_outbox_ref ADD COLUMN rights    INTEGER NOT NULL DEFAULT 0; -- what the ref allows; 0 not told
ALTER TABLE mooring_outbox_ref ADD COLUMN narrow    INTEGER NOT NULL DEFAULT 0; -- 1: not with all methods, messages or cursors
ALTER TABLE mooring_outbox_ref ADD COLUMN dead      INTEGER NOT NULL DEFAULT 0; -- fault code: why it is of no use; 0 it is
CREATE INDEX mooring_outbox_ref_change ON mooring_outbox_ref (box, change);
