-- A stream that cannot go on is left, and its session goes on in another one: with a
-- secret of its own, under which the server makes a stream of its own, from seq 1.

-- +goose Up

ALTER TABLE mooring_outbox_stream ADD COLUMN life   TEXT    NOT NULL DEFAULT ''; -- goes into the secret that the server is shown; '' in the session's first stream
ALTER TABLE mooring_outbox_stream ADD COLUMN since  INTEGER NOT NULL DEFAULT 0;  -- the incarnation under which it began: what came under a lower one is of another stream
ALTER TABLE mooring_outbox_stream ADD COLUMN halted INTEGER NOT NULL DEFAULT 0;  -- fault code: why it last stopped, if nothing was answered since; a new sender's trying again does not clear it
ALTER TABLE mooring_outbox_stream ADD COLUMN halted_reason TEXT NOT NULL DEFAULT '';
