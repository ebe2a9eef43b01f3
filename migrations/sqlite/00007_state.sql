-- State of any kind.

-- +goose Up

-- Keys are listed by first put: those of a kind in the order of their places. (With a generated column of
-- the kind in it, SQLite reads the table's row for each entry of the index.)
CREATE INDEX entries_put ON entries (session, substr(key, 1, instr(key || '/', '/') - 1), ord, ord_index, key);

-- Who put a value, and when, once the log no longer has its event: before that, the event says it.
ALTER TABLE entries ADD COLUMN put_ref TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN put_actor TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN put_at INTEGER NOT NULL DEFAULT 0;

-- Who works on a key (session.Claim, as JSON; '' is nobody), until when, and under which ref (its tail).
ALTER TABLE entries ADD COLUMN claim TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN claim_until INTEGER NOT NULL DEFAULT 0;
ALTER TABLE entries ADD COLUMN claim_ref TEXT NOT NULL DEFAULT '';
CREATE INDEX entries_claimed ON entries (session, claim_until, claim_ref) WHERE claim_until > 0;

-- Large values that are edited (session/edits.go): the length of such a value, whose base the row has, and
-- the changes of that base.
ALTER TABLE entries ADD COLUMN edited INTEGER NOT NULL DEFAULT 0;
CREATE TABLE entry_edits (
    session TEXT NOT NULL,
    key     TEXT NOT NULL,
    edits   BLOB NOT NULL,
    PRIMARY KEY (session, key)
) STRICT, WITHOUT ROWID;

-- The keys that a ref shows, and those that it writes, one a line; '' is no limit.
ALTER TABLE grants ADD COLUMN read_keys TEXT NOT NULL DEFAULT '';
ALTER TABLE grants ADD COLUMN write_keys TEXT NOT NULL DEFAULT '';
-- In place of rights, of a ref that is limited to keys or to kinds of requests: a server of the previous version finds none.
ALTER TABLE grants ADD COLUMN key_rights INTEGER NOT NULL DEFAULT 0;

-- What a ref allows in its session's children, 0 if it does not reach them. Its own rights are then in
-- reach_rights, in place of rights: a server of the previous version finds none.
ALTER TABLE grants ADD COLUMN reach INTEGER NOT NULL DEFAULT 0;
ALTER TABLE grants ADD COLUMN reach_rights INTEGER NOT NULL DEFAULT 0;
CREATE INDEX grants_reaching ON grants (target, reach) WHERE reach > 0;

-- The features that a reader of the session needs (session.Features); a server of the previous
-- version reads and keeps 0.
ALTER TABLE sessions ADD COLUMN needs INTEGER NOT NULL DEFAULT 0;

-- What a session was forked from: '' is nothing, or it was forked by a server of the previous version.
ALTER TABLE sessions ADD COLUMN origin TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN origin_cursor INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN origin_message TEXT NOT NULL DEFAULT '';

-- The session that a session is a child of, the key of the message or part of it that started the child, and
-- the ids of all sessions above it, with spaces, its parent's last.
ALTER TABLE sessions ADD COLUMN parent TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN parent_key TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN above TEXT NOT NULL DEFAULT '';
CREATE INDEX sessions_above ON sessions (above, id) WHERE above <> '';

-- What a session is reverted to (session.Revert, as JSON; '' is nothing), and the settled reverts of which
-- the database has rows yet (a list of them).
ALTER TABLE sessions ADD COLUMN reverted TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN reverts_left TEXT NOT NULL DEFAULT '';
CREATE INDEX sessions_reverts_left ON sessions (id) WHERE reverts_left <> '';

-- Up to where a session is compacted (session.Compaction, as JSON; '' is nowhere).
ALTER TABLE sessions ADD COLUMN compacted TEXT NOT NULL DEFAULT '';

-- Of a session that has no life yet, the fork that it is being made as (session.Forking, as JSON, after 'due' as long
-- as there is something to do for it); of another the forks that are being copied of it (a list of session.Copied).
ALTER TABLE sessions ADD COLUMN forks TEXT NOT NULL DEFAULT '';
CREATE INDEX sessions_forking ON sessions (id) WHERE substr(forks, 1, 3) = 'due';

-- Entries of the sources of such forks from before they changed, or as they were at an earlier cursor, by the session
-- that is being made.
CREATE TABLE entries_before (
    session   TEXT NOT NULL,
    key       TEXT NOT NULL,
    cursor    INTEGER NOT NULL,
    schema    INTEGER NOT NULL,
    text_len  INTEGER NOT NULL,
    grown     INTEGER NOT NULL,
    sum       BLOB NOT NULL,
    since     INTEGER NOT NULL,
    ord       INTEGER NOT NULL,
    ord_index INTEGER NOT NULL,
    edited    INTEGER NOT NULL,
    payload   BLOB,
    edits     BLOB,
    PRIMARY KEY (session, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX entries_before_put ON entries_before (session, ord, ord_index, key) WHERE substr(key, 1, 8) = 'message/';

-- The servers of the database: the features that each knows, and when it last said so. It stays
-- empty here, where a database has one server.
CREATE TABLE replicas (
    id       TEXT    NOT NULL PRIMARY KEY,
    features INTEGER NOT NULL,
    seen     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX replicas_seen ON replicas (seen);

-- The sessions that a ref of a space has opened by the right manage: they get a cut when it ends.
CREATE TABLE managed (
    session TEXT NOT NULL,
    target  TEXT NOT NULL,
    tail    TEXT NOT NULL,
    PRIMARY KEY (session, target, tail)
) STRICT, WITHOUT ROWID;
CREATE INDEX managed_ref ON managed (target, tail, session);

-- The root ref of a space that is there already gets that right. A server says so in the space's audit
-- once every one knows it, and removes this row.
INSERT INTO meta (name, value) SELECT 'manage', 'pending' WHERE EXISTS (SELECT 1 FROM spaces);

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

-- Requests that are open or claimed (session.OpenRequest, as JSON), and when something happens to them by itself: 0
-- is never. What they ask, and what became of them, is in entries.
CREATE TABLE requests (
    session TEXT    NOT NULL,
    id      TEXT    NOT NULL,
    due     INTEGER NOT NULL,
    request TEXT    NOT NULL,
    PRIMARY KEY (session, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX requests_due ON requests (due, session) WHERE due > 0;

-- The kinds of requests that a ref asks, and those that it answers, one a line; '' is no limit.
ALTER TABLE grants ADD COLUMN ask_kinds TEXT NOT NULL DEFAULT '';
ALTER TABLE grants ADD COLUMN answer_kinds TEXT NOT NULL DEFAULT '';

-- Where the servers send notices of a session (session.Webhook): the ref it was registered under; the secret by which notices are
-- signed, '' once it has ended; the kinds of notices, one a line; how far it has come in the log, and in the requests that were open
-- there (opened, -1: it is through with them); when it is tried again; and which server delivers for it, until when.
CREATE TABLE webhooks (
    session   TEXT    NOT NULL,
    id        TEXT    NOT NULL,
    ref       TEXT    NOT NULL,
    url       TEXT    NOT NULL,
    secret    TEXT    NOT NULL,
    kinds     TEXT    NOT NULL,
    created   INTEGER NOT NULL,
    cursor    INTEGER NOT NULL,
    hash      BLOB    NOT NULL,
    opened    INTEGER NOT NULL,
    restarted INTEGER NOT NULL,
    next_at   INTEGER NOT NULL,
    failures  INTEGER NOT NULL,
    since     INTEGER NOT NULL,
    error     TEXT    NOT NULL,
    took      INTEGER NOT NULL,
    delivered INTEGER NOT NULL,
    ended     TEXT    NOT NULL,
    ended_at  INTEGER NOT NULL,
    holder    TEXT    NOT NULL,
    lease     INTEGER NOT NULL,
    PRIMARY KEY (session, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX webhooks_due ON webhooks (next_at) WHERE ended = '';
