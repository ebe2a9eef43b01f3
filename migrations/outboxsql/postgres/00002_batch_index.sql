-- An index of batch ids that does not begin with the box. While the table is
-- small, Postgres takes any index with the box for as good as the key, and keeps
-- such a plan: every outcome was then stored by reading all rows of the outbox.

-- +goose Up

DROP INDEX mooring_outbox_batch_id;
CREATE UNIQUE INDEX mooring_outbox_batch_id ON mooring_outbox_batch (batch, box);
