-- Sessions that are shared under a public id, which stands in URLs and names no
-- session: so it is the key. A row without its refs is a share that was never made.

-- +goose Up

CREATE TABLE public_shares (
    id          text COLLATE "C" NOT NULL PRIMARY KEY,
    session     text COLLATE "C" NOT NULL,
    owner_tail  text COLLATE "C" NOT NULL,
    share_tail  text COLLATE "C" NOT NULL,
    reader_tail text COLLATE "C" NOT NULL,
    created     bigint NOT NULL
);
CREATE INDEX public_shares_session ON public_shares (session);
