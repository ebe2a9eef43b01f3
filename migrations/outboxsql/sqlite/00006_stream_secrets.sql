-- Each session's server is shown a secret of its own, derived from the outbox's. Those
-- that were shown that one itself go on with it, and it is replaced: nothing that is
-- derived from the new one can be found out with it.

-- +goose Up

ALTER TABLE mooring_outbox ADD COLUMN old_secret BLOB; -- NULL: none was ever shown
ALTER TABLE mooring_outbox_stream ADD COLUMN old_secret INTEGER NOT NULL DEFAULT 0; -- 1: its server knows the outbox by that
INSERT INTO mooring_outbox_stream (box, session)
    SELECT DISTINCT box, session FROM mooring_outbox_batch WHERE first_seq > 0
    ON CONFLICT (box, session) DO NOTHING;
UPDATE mooring_outbox_stream SET old_secret = 1;
UPDATE mooring_outbox SET old_secret = secret, secret = randomblob(32);
