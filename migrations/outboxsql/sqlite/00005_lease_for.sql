-- How long a lease lasts without renewal: whoever waits for it goes by a clock of its
-- own as well, which nobody sets.

-- +goose Up

ALTER TABLE mooring_outbox ADD COLUMN lease_for INTEGER NOT NULL DEFAULT 0; -- ms; 0 not known
