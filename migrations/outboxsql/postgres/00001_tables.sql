-- The outbox's tables. Times are Unix milliseconds; secrets are in
-- mooring_outbox.secret and mooring_outbox_ref.ref and nowhere else.

-- +goose Up

-- One row an outbox.
CREATE TABLE mooring_outbox (
    box         INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        TEXT   COLLATE "C" NOT NULL UNIQUE,
    id          TEXT   COLLATE "C" NOT NULL,     -- obx_ + ULID
    secret      BYTEA  NOT NULL,                 -- 32 bytes
    incarnation BIGINT NOT NULL DEFAULT 0,       -- raised by every takeover
    holder      TEXT   COLLATE "C" NOT NULL DEFAULT '', -- who sends; '' nobody
    lease_until BIGINT NOT NULL DEFAULT 0,
    holder_pid  BIGINT NOT NULL DEFAULT 0,       -- the backend that a living holder listens on; 0 not known
    low         BIGINT NOT NULL DEFAULT 0,       -- rows with a seq and a lower num are finished
    drops       BIGINT NOT NULL DEFAULT 0        -- counts the drops that the sender has to see
) WITH (fillfactor = 50);

-- One row a batch: its ops are one thing from commit to outcome. No column that
-- an index speaks of changes when outcomes are stored, so that Postgres writes
-- a new version in the same page and touches no index.
CREATE TABLE mooring_outbox_batch (
    num           BIGINT GENERATED ALWAYS AS IDENTITY,
    created_at    BIGINT   NOT NULL,
    first_seq     BIGINT,                         -- NULL not given yet, 0 never sent
    finished_at   BIGINT   NOT NULL DEFAULT 0,
    next_retry_at BIGINT   NOT NULL DEFAULT 0,
    bytes         BIGINT   NOT NULL,
    box           INTEGER  NOT NULL,
    ops           INTEGER  NOT NULL,
    failed        INTEGER  NOT NULL DEFAULT 0,    -- of the ops, so many ended so
    skipped       INTEGER  NOT NULL DEFAULT 0,
    voided        INTEGER  NOT NULL DEFAULT 0,
    attempts      INTEGER  NOT NULL DEFAULT 0,
    state         SMALLINT NOT NULL DEFAULT 0,    -- 0 pending, 1 in flight (if it has a seq), 2 finished
    dropping      SMALLINT NOT NULL DEFAULT 0,    -- 1: an op in body is to be dropped
    batch         TEXT COLLATE "C" NOT NULL,
    session       TEXT COLLATE "C" NOT NULL,
    via           TEXT COLLATE "C" NOT NULL DEFAULT '',
    last_error    TEXT  NOT NULL DEFAULT '',
    body          BYTEA NOT NULL,                 -- the ops, outbox/rowcodec.go
    outcomes      BYTEA,
    PRIMARY KEY (box, num)
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX mooring_outbox_batch_id ON mooring_outbox_batch (box, batch);
-- What has no seq yet, in order: small, and all that looking for new rows reads.
CREATE INDEX mooring_outbox_batch_waiting ON mooring_outbox_batch (box, session, num) WHERE first_seq IS NULL;

-- Op ids that do not tell their batch (those of OpID do).
CREATE TABLE mooring_outbox_op (
    box   INTEGER NOT NULL,
    op    TEXT COLLATE "C" NOT NULL,
    batch TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (box, op)
);

-- Which op stands for a failed one.
CREATE TABLE mooring_outbox_retry (
    box  INTEGER NOT NULL,
    op   TEXT COLLATE "C" NOT NULL,
    next TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (box, op)
);

-- One row a stream.
CREATE TABLE mooring_outbox_stream (
    box       INTEGER NOT NULL,
    session   TEXT COLLATE "C" NOT NULL,
    last_seq  BIGINT  NOT NULL DEFAULT 0,         -- of finished rows; unfinished ones may have higher
    space_ref TEXT COLLATE "C" NOT NULL DEFAULT '', -- set while the session's create did not apply
    owner_ref TEXT COLLATE "C" NOT NULL DEFAULT '',
    stopped   INTEGER NOT NULL DEFAULT 0,         -- fault code; 0 runs
    reason    TEXT    NOT NULL DEFAULT '',
    PRIMARY KEY (box, session)
) WITH (fillfactor = 50);

-- Sturdy refs to send through, with their secrets.
CREATE TABLE mooring_outbox_ref (
    box        INTEGER NOT NULL,
    id         TEXT COLLATE "C" NOT NULL,
    target     TEXT COLLATE "C" NOT NULL,
    ref        TEXT   NOT NULL,                   -- the whole text
    role       TEXT   NOT NULL,
    external   TEXT   NOT NULL,
    label      TEXT   NOT NULL,
    redemption TEXT   NOT NULL,
    saved_at   BIGINT NOT NULL,
    PRIMARY KEY (box, id)
);
