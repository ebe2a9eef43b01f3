-- What is known of a batch's ops goes with the batch, however many they are.

-- +goose Up

CREATE INDEX mooring_outbox_op_batch ON mooring_outbox_op (box, batch);
