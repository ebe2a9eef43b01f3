-- State of any kind.

-- +goose Up

-- In the order in which servers that are at work lock them.
LOCK TABLE sessions, grants, entries IN ACCESS EXCLUSIVE MODE;

-- Keys are listed by first put: those of a kind in the order of their places. (A column of the kind
-- would have the whole table written anew, under its lock.)
CREATE INDEX entries_put ON entries (session, split_part(key, '/', 1), ord, ord_index, key);

-- Who put a value, and when, once the log no longer has its event: before that, the event says it.
ALTER TABLE entries ADD COLUMN put_ref text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN put_actor text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN put_at bigint NOT NULL DEFAULT 0;

-- Who works on a key (session.Claim, as JSON; '' is nobody), until when, and under which ref (its tail).
ALTER TABLE entries ADD COLUMN claim text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN claim_until bigint NOT NULL DEFAULT 0;
ALTER TABLE entries ADD COLUMN claim_ref text COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX entries_claimed ON entries (session, claim_until, claim_ref) WHERE claim_until > 0;

-- Large values that are edited (session/edits.go): the length of such a value, whose base the row has, and
-- the changes of that base.
ALTER TABLE entries ADD COLUMN edited bigint NOT NULL DEFAULT 0;
CREATE TABLE entry_edits (
    session text  COLLATE "C" NOT NULL,
    key     text  COLLATE "C" NOT NULL,
    edits   bytea NOT NULL,
    PRIMARY KEY (session, key)
);

-- The keys that a ref shows, and those that it writes, one a line; '' is no limit.
ALTER TABLE grants ADD COLUMN read_keys text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE grants ADD COLUMN write_keys text COLLATE "C" NOT NULL DEFAULT '';
-- In place of rights, of a ref that is limited to keys or to kinds of requests: a server of the previous version finds none.
ALTER TABLE grants ADD COLUMN key_rights smallint NOT NULL DEFAULT 0;

-- What a ref allows in its session's children, 0 if it does not reach them. Its own rights are then in
-- reach_rights, in place of rights: a server of the previous version finds none.
ALTER TABLE grants ADD COLUMN reach smallint NOT NULL DEFAULT 0;
ALTER TABLE grants ADD COLUMN reach_rights smallint NOT NULL DEFAULT 0;
CREATE INDEX grants_reaching ON grants (target, reach) WHERE reach > 0;

-- The features that a reader of the session needs (session.Features); a server of the previous
-- version reads and keeps 0.
ALTER TABLE sessions ADD COLUMN needs bigint NOT NULL DEFAULT 0;

-- What a session was forked from: '' is nothing, or it was forked by a server of the previous version.
ALTER TABLE sessions ADD COLUMN origin text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN origin_cursor bigint NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN origin_message text COLLATE "C" NOT NULL DEFAULT '';

-- The session that a session is a child of, the key of the message or part of it that started the child, and
-- the ids of all sessions above it, with spaces, its parent's last.
ALTER TABLE sessions ADD COLUMN parent text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN parent_key text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN above text COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX sessions_above ON sessions (above, id) WHERE above <> '';

-- What a session is reverted to (session.Revert, as JSON; '' is nothing), and the settled reverts of which
-- the database has rows yet (a list of them).
ALTER TABLE sessions ADD COLUMN reverted text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN reverts_left text COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX sessions_reverts_left ON sessions (id) WHERE reverts_left <> '';

-- Up to where a session is compacted (session.Compaction, as JSON; '' is nowhere).
ALTER TABLE sessions ADD COLUMN compacted text COLLATE "C" NOT NULL DEFAULT '';

-- Of a session that has no life yet, the fork that it is being made as (session.Forking, as JSON, after 'due' as long
-- as there is something to do for it); of another the forks that are being copied of it (a list of session.Copied).
ALTER TABLE sessions ADD COLUMN forks text COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX sessions_forking ON sessions (id) WHERE substr(forks, 1, 3) = 'due';

-- Entries of the sources of such forks from before they changed, or as they were at an earlier cursor, by the session
-- that is being made.
CREATE TABLE entries_before (
    session   text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    cursor    bigint NOT NULL,
    schema    bigint NOT NULL,
    text_len  bigint NOT NULL,
    grown     bigint NOT NULL,
    sum       bytea NOT NULL,
    since     bigint NOT NULL,
    ord       bigint NOT NULL,
    ord_index bigint NOT NULL,
    edited    bigint NOT NULL,
    payload   bytea,
    edits     bytea,
    PRIMARY KEY (session, key)
);
CREATE INDEX entries_before_put ON entries_before (session, ord, ord_index, key) WHERE substr(key, 1, 8) = 'message/';

-- The servers of the database: the features that each knows, and when it last said so.
CREATE TABLE replicas (
    id       text COLLATE "C" NOT NULL PRIMARY KEY,
    features bigint NOT NULL,
    seen     bigint NOT NULL
);
CREATE INDEX replicas_seen ON replicas (seen);

-- Servers of the previous version do not say so. While some may run, no feature is in use: until
-- mooring admin upgrade finish removes this row. A new database has none.
INSERT INTO meta (name, value) SELECT 'upgrade', 'pending' WHERE EXISTS (SELECT 1 FROM spaces);

-- The sessions that a ref of a space has opened by the right manage: they get a cut when it ends.
CREATE TABLE managed (
    session text COLLATE "C" NOT NULL,
    target  text COLLATE "C" NOT NULL,
    tail    text COLLATE "C" NOT NULL,
    PRIMARY KEY (session, target, tail)
);
CREATE INDEX managed_ref ON managed (target, tail, session);

-- The root ref of a space that is there already gets that right. A server says so in the space's audit
-- once every one knows it, and removes this row.
INSERT INTO meta (name, value) SELECT 'manage', 'pending' WHERE EXISTS (SELECT 1 FROM spaces);

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

-- Requests that are open or claimed (session.OpenRequest, as JSON), and when something happens to them by itself: 0
-- is never. What they ask, and what became of them, is in entries.
CREATE TABLE requests (
    session text   COLLATE "C" NOT NULL,
    id      text   COLLATE "C" NOT NULL,
    due     bigint NOT NULL,
    request text   COLLATE "C" NOT NULL,
    PRIMARY KEY (session, id)
);
CREATE INDEX requests_due ON requests (due, session) WHERE due > 0;

-- The kinds of requests that a ref asks, and those that it answers, one a line; '' is no limit.
ALTER TABLE grants ADD COLUMN ask_kinds text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE grants ADD COLUMN answer_kinds text COLLATE "C" NOT NULL DEFAULT '';

-- Where the servers send notices of a session (session.Webhook): the ref it was registered under; the secret by which notices are
-- signed, '' once it has ended; the kinds of notices, one a line; how far it has come in the log, and in the requests that were open
-- there (opened, -1: it is through with them); when it is tried again; and which server delivers for it, until when.
CREATE TABLE webhooks (
    session   text   COLLATE "C" NOT NULL,
    id        text   COLLATE "C" NOT NULL,
    ref       text   COLLATE "C" NOT NULL,
    url       text   COLLATE "C" NOT NULL,
    secret    text   COLLATE "C" NOT NULL,
    kinds     text   COLLATE "C" NOT NULL,
    created   bigint NOT NULL,
    cursor    bigint NOT NULL,
    hash      bytea  NOT NULL,
    opened    bigint NOT NULL,
    restarted bigint NOT NULL,
    next_at   bigint NOT NULL,
    failures  bigint NOT NULL,
    since     bigint NOT NULL,
    error     text   COLLATE "C" NOT NULL,
    took      bigint NOT NULL,
    delivered bigint NOT NULL,
    ended     text   COLLATE "C" NOT NULL,
    ended_at  bigint NOT NULL,
    holder    text   COLLATE "C" NOT NULL,
    lease     bigint NOT NULL,
    PRIMARY KEY (session, id)
);
CREATE INDEX webhooks_due ON webhooks (next_at) WHERE ended = '';
