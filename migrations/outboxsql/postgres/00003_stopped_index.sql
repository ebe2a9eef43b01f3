-- Which streams stand still: mostly none, of very many.

-- +goose Up

CREATE INDEX mooring_outbox_stream_stopped ON mooring_outbox_stream (box, stopped) WHERE stopped > 0;
