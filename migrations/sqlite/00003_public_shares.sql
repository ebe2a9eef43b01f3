-- Sessions that are shared under a public id, which stands in URLs and names no
-- session: so it is the key. A row without its refs is a share that was never made.

-- +goose Up

CREATE TABLE public_shares (
    id          TEXT NOT NULL PRIMARY KEY,
    session     TEXT NOT NULL,
    owner_tail  TEXT NOT NULL,
    share_tail  TEXT NOT NULL,
    reader_tail TEXT NOT NULL,
    created     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX public_shares_session ON public_shares (session);
