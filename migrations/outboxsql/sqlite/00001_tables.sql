-- The outbox's tables. Times are Unix milliseconds; secrets are in
-- mooring_outbox.secret and mooring_outbox_ref.ref and nowhere else.

-- +goose Up

-- One row an outbox; a file has one.
CREATE TABLE mooring_outbox (
    box         INTEGER PRIMARY KEY,
    name        TEXT    NOT NULL UNIQUE,
    id          TEXT    NOT NULL,           -- obx_ + ULID
    secret      BLOB    NOT NULL,           -- 32 bytes
    incarnation INTEGER NOT NULL DEFAULT 0, -- raised by every takeover
    holder      TEXT    NOT NULL DEFAULT '',-- who sends; '' nobody
    lease_until INTEGER NOT NULL DEFAULT 0,
    holder_pid  INTEGER NOT NULL DEFAULT 0, -- 1: the holder has the mark of a living sender
    low         INTEGER NOT NULL DEFAULT 0, -- rows with a seq and a lower num are finished
    drops       INTEGER NOT NULL DEFAULT 0  -- counts the drops that the sender has to see
);

-- One row a batch: its ops are one thing from commit to outcome. No row with the
-- highest num is ever deleted, so that nums only rise.
CREATE TABLE mooring_outbox_batch (
    num           INTEGER PRIMARY KEY,
    box           INTEGER NOT NULL,
    batch         TEXT    NOT NULL,
    session       TEXT    NOT NULL,
    state         INTEGER NOT NULL DEFAULT 0, -- 0 pending, 1 in flight (if it has a seq), 2 finished
    first_seq     INTEGER,                    -- NULL not given yet, 0 never sent
    ops           INTEGER NOT NULL,
    failed        INTEGER NOT NULL DEFAULT 0, -- of the ops, so many ended so
    skipped       INTEGER NOT NULL DEFAULT 0,
    voided        INTEGER NOT NULL DEFAULT 0,
    bytes         INTEGER NOT NULL,
    created_at    INTEGER NOT NULL,
    finished_at   INTEGER NOT NULL DEFAULT 0,
    attempts      INTEGER NOT NULL DEFAULT 0,
    next_retry_at INTEGER NOT NULL DEFAULT 0,
    dropping      INTEGER NOT NULL DEFAULT 0, -- 1: an op in body is to be dropped
    via           TEXT    NOT NULL DEFAULT '',
    last_error    TEXT    NOT NULL DEFAULT '',
    body          BLOB    NOT NULL,           -- the ops, outbox/rowcodec.go
    outcomes      BLOB
);
-- A file has one outbox: box is in no index, or SQLite would prefer it to num.
CREATE UNIQUE INDEX mooring_outbox_batch_id ON mooring_outbox_batch (batch);
-- What has no seq yet, in order: small, and all that looking for new rows reads.
CREATE INDEX mooring_outbox_batch_waiting ON mooring_outbox_batch (session, num) WHERE first_seq IS NULL;

-- Op ids that do not tell their batch (those of OpID do).
CREATE TABLE mooring_outbox_op (
    box   INTEGER NOT NULL,
    op    TEXT    NOT NULL,
    batch TEXT    NOT NULL,
    PRIMARY KEY (box, op)
) WITHOUT ROWID;

-- Which op stands for a failed one.
CREATE TABLE mooring_outbox_retry (
    box  INTEGER NOT NULL,
    op   TEXT    NOT NULL,
    next TEXT    NOT NULL,
    PRIMARY KEY (box, op)
) WITHOUT ROWID;

-- One row a stream.
CREATE TABLE mooring_outbox_stream (
    box       INTEGER NOT NULL,
    session   TEXT    NOT NULL,
    last_seq  INTEGER NOT NULL DEFAULT 0, -- of finished rows; unfinished ones may have higher
    space_ref TEXT    NOT NULL DEFAULT '',-- set while the session's create did not apply
    owner_ref TEXT    NOT NULL DEFAULT '',
    stopped   INTEGER NOT NULL DEFAULT 0, -- fault code; 0 runs
    reason    TEXT    NOT NULL DEFAULT '',
    PRIMARY KEY (box, session)
) WITHOUT ROWID;

-- Sturdy refs to send through, with their secrets.
CREATE TABLE mooring_outbox_ref (
    box        INTEGER NOT NULL,
    id         TEXT    NOT NULL,
    target     TEXT    NOT NULL,
    ref        TEXT    NOT NULL,  -- the whole text
    role       TEXT    NOT NULL,
    external   TEXT    NOT NULL,
    label      TEXT    NOT NULL,
    redemption TEXT    NOT NULL,
    saved_at   INTEGER NOT NULL,
    PRIMARY KEY (box, id)
) WITHOUT ROWID;
