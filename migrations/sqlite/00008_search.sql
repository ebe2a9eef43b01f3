-- Finding words in a session's state.

-- +goose Up

-- Sessions that were searched, and how far their index goes: 'upto' is the last key that it has while
-- it is made; then 'built' is 1, and it has the changes up to 'cursor'. Its words are hashed with
-- 'salt': those of a session without a row say nothing to anybody.
CREATE TABLE search_sessions (
    session TEXT    NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    salt    BLOB    NOT NULL,
    cursor  INTEGER NOT NULL,
    upto    TEXT    NOT NULL DEFAULT '',
    built   INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- The words of values: their hashes, separated by spaces.
CREATE TABLE search_rows (
    id      INTEGER NOT NULL PRIMARY KEY,
    session TEXT    NOT NULL,
    key     TEXT    NOT NULL,
    words   TEXT    NOT NULL,
    UNIQUE (session, key)
) STRICT;

-- The index of search_rows. What is deleted leaves its pages at once, not when they are merged.
CREATE VIRTUAL TABLE search_words USING fts5 (
    words, content = 'search_rows', content_rowid = 'id', tokenize = 'ascii', detail = 'none', columnsize = 0);
INSERT INTO search_words (search_words, rank) VALUES ('secure-delete', 1);
-- +goose StatementBegin
CREATE TRIGGER search_rows_new AFTER INSERT ON search_rows BEGIN
    INSERT INTO search_words (rowid, words) VALUES (new.id, new.words);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER search_rows_gone AFTER DELETE ON search_rows BEGIN
    INSERT INTO search_words (search_words, rowid, words) VALUES ('delete', old.id, old.words);
END;
-- +goose StatementEnd
