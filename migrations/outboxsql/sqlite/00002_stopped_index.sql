-- Which streams stand still: mostly none, of very many. SQLite would take the
-- primary key for as good if stopped were no column of the index.

-- +goose Up

CREATE INDEX mooring_outbox_stream_stopped ON mooring_outbox_stream (box, stopped) WHERE stopped > 0;
