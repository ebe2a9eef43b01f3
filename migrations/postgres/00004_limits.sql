-- What a server must know of its rows to keep to limits that were not there before.

-- +goose Up

-- Of an entry whose value is in its own row: the event that the value goes on from, which
-- may be before that of the turn's end which took it over. 0: nobody has said so, and the
-- value may be from any time. A value that is its event's is as old as that.
ALTER TABLE entries ADD COLUMN since bigint NOT NULL DEFAULT 0;

-- Sessions that bear one external id are told apart by who made them. The table
-- externals has the first of them alone, for servers of the version before.
CREATE INDEX sessions_external ON sessions (space, external, id) WHERE external <> '';

-- Who asked for a public share, as a digest: the same, asking again soon, is given
-- the same share. Shares of before have none, and are given to nobody again.
ALTER TABLE public_shares ADD COLUMN asked bytea NOT NULL DEFAULT '';
CREATE INDEX public_shares_asked ON public_shares (asked, created) WHERE length(asked) > 0;

-- What browsers show for pages in place of a ref's secret: hashes of random tokens, each of
-- one page's origin, and for a while.
CREATE TABLE page_tokens (
    target  text COLLATE "C" NOT NULL,
    tail    text COLLATE "C" NOT NULL,
    hash    bytea NOT NULL,
    origin  text NOT NULL,
    expires bigint NOT NULL,
    PRIMARY KEY (target, tail, hash)
);
CREATE INDEX page_tokens_expires ON page_tokens (expires);

-- Of a stream that was made under a ref which could change nothing: that ref, which may
-- make few of them.
ALTER TABLE streams ADD COLUMN idle_ref text NOT NULL DEFAULT '';
CREATE INDEX streams_idle ON streams (idle_ref) WHERE idle_ref <> '';

-- The key of the hashes that a ref of one message is shown (session.HashKey).
INSERT INTO meta (name, value) VALUES ('hash_key', replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''));

-- What a session lacks of what was synced to it and could not be stored; key '' is
-- what is not known.
CREATE TABLE share_refusals (
    session text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,
    why     text COLLATE "C" NOT NULL,
    at      bigint NOT NULL,
    PRIMARY KEY (session, key)
);

-- How much sessions hold, and what is held of what was written under a ref that is no
-- owner's; spared is what was there when that was first measured, beyond which all of the
-- quota is left. -1: not measured yet, as of what servers of the version before make.
ALTER TABLE sessions ADD COLUMN bytes bigint NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN spared bigint NOT NULL DEFAULT -1;
CREATE INDEX sessions_unmeasured ON sessions (id) WHERE spared < 0;
ALTER TABLE grants ADD COLUMN bytes bigint NOT NULL DEFAULT 0;
ALTER TABLE grants ADD COLUMN spared bigint NOT NULL DEFAULT 0;

-- A space's sessions are listed by their last change. An index on the time itself would have
-- every commit write to it, and no update of a session's row would stay on its page: the
-- minute changes once a minute.
ALTER TABLE sessions ADD COLUMN minute bigint GENERATED ALWAYS AS (updated / 60000) STORED;
CREATE INDEX sessions_changed ON sessions (space, minute) WHERE space <> '';

-- An entry's place in its session's order, fixed when its key is first put. 0: nobody has
-- given it one, as a server of the version before does not; whoever reads does.
ALTER TABLE entries ADD COLUMN ord bigint NOT NULL DEFAULT 0;
ALTER TABLE entries ADD COLUMN ord_index bigint NOT NULL DEFAULT 0;
CREATE INDEX entries_unordered ON entries (session, key) WHERE ord = 0;
-- What a session's order goes by: 0 its log, 1 the times at which things were created.
ALTER TABLE sessions ADD COLUMN ordered_by bigint NOT NULL DEFAULT 0;

-- Of a turn: the rest of the ref that it was begun under, '' where a server of the version
-- before has not said so (its event does), and whether that ref was found dead while the turn
-- was open. Open turns are gone through by where they began, those that stream, and those that
-- count, each by an index of its own: of those that do not count there may be very many.
ALTER TABLE turns ADD COLUMN ref text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE turns ADD COLUMN orphan bigint NOT NULL DEFAULT 0;
DROP INDEX turns_open;
CREATE INDEX turns_open ON turns (session, begun) WHERE status <= 2;
CREATE INDEX turns_streaming ON turns (session, message) WHERE status = 1;
CREATE INDEX turns_counted ON turns (session, message) WHERE status <= 2 AND orphan = 0;

-- The refs that were made from one are listed in the order of their making.
DROP INDEX grants_parent;
CREATE INDEX grants_parent ON grants (parent_target, parent_tail, created, target, tail);

-- A space's sessions are listed by title, too: 't' and the title as it is sorted (session.TitleKey),
-- 'u' where there is none. Whoever writes a session's info, a server of the version before as well,
-- leaves it in titles_due, from which the title is taken before the next such list.
ALTER TABLE sessions ADD COLUMN title text COLLATE "C" NOT NULL DEFAULT 'u';
CREATE INDEX sessions_titled ON sessions (space, title, id) WHERE space <> '';
CREATE TABLE titles_due (
    session text COLLATE "C" NOT NULL PRIMARY KEY
);
INSERT INTO titles_due (session) SELECT session FROM entries WHERE key = 'session';
-- +goose StatementBegin
CREATE FUNCTION title_due() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO titles_due (session) VALUES (NEW.session) ON CONFLICT (session) DO NOTHING;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER entries_title_new AFTER INSERT ON entries
    FOR EACH ROW WHEN (NEW.key = 'session') EXECUTE FUNCTION title_due();
CREATE TRIGGER entries_title_put AFTER UPDATE OF cursor ON entries
    FOR EACH ROW WHEN (NEW.key = 'session') EXECUTE FUNCTION title_due();
-- What is removed or purged is gone at once.
-- +goose StatementBegin
CREATE FUNCTION title_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE sessions SET title = 'u' WHERE id = OLD.session AND title <> 'u';
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER entries_title_gone AFTER DELETE ON entries
    FOR EACH ROW WHEN (OLD.key = 'session') EXECUTE FUNCTION title_gone();

-- What is held of what was made under a ref of a space has a quota too. -1: what there was
-- before is not added up yet.
UPDATE grants SET spared = -1 WHERE target LIKE 'spc%' AND parent_target <> '';

-- The generated column has Postgres write the table sessions anew, and show it without a row to each transaction that began
-- before and comes to it afterwards: it would refuse what is there. Those that wait for the table, or are between two
-- statements, are ended; who made them does them again, as after any lost connection.
SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
    WHERE a.datname = current_database() AND a.usename = current_user AND a.pid <> pg_backend_pid() AND a.backend_xmin IS NOT NULL
    AND (a.state = 'idle in transaction' OR EXISTS (SELECT 1 FROM pg_locks l WHERE l.pid = a.pid AND l.relation = 'sessions'::regclass AND NOT l.granted));
