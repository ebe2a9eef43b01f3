-- Finding words in a session's state.

-- +goose Up

-- Sessions that were searched, and how far their index goes: upto is the last key that it has while
-- it is made; then built is 1, and it has the changes up to cursor. Its words are hashed with salt:
-- those of a session without a row say nothing to anybody.
CREATE TABLE search_sessions (
    session text     COLLATE "C" NOT NULL PRIMARY KEY,
    version bigint   NOT NULL,
    salt    bytea    NOT NULL,
    cursor  bigint   NOT NULL,
    upto    text     COLLATE "C" NOT NULL DEFAULT '',
    built   smallint NOT NULL DEFAULT 0
);

-- The words of values: their hashes.
CREATE TABLE search_rows (
    session text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,
    words   tsvector NOT NULL,
    PRIMARY KEY (session, key)
);
CREATE INDEX search_words ON search_rows USING gin (words);
