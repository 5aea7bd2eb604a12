-- The first schema. The commented version is ../schema.sql.
CREATE TABLE runs (
    key               INTEGER PRIMARY KEY AUTOINCREMENT,
    id                TEXT    NOT NULL UNIQUE,
    generation        INTEGER NOT NULL,
    workflow          TEXT    NOT NULL,
    version           TEXT    NOT NULL,
    status            TEXT    NOT NULL,
    epoch             INTEGER NOT NULL,
    owner             TEXT,
    ready_at          INTEGER NOT NULL,
    wake_at           INTEGER,
    next_seq          INTEGER NOT NULL,
    created_at        INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL,
    finished_at       INTEGER,
    recoveries        INTEGER NOT NULL,
    input_digest      BLOB    NOT NULL,
    parent_key        INTEGER,
    parent_generation INTEGER,
    parent_location   TEXT,
    cancel_requested  INTEGER NOT NULL,
    frontier          BLOB,
    reason            TEXT,
    custom_status     BLOB,
    state             BLOB,
    last_item         INTEGER NOT NULL DEFAULT 0          -- newest item ever put into the inbox
) STRICT;

CREATE INDEX runs_claimable ON runs (ready_at)
    WHERE owner IS NULL AND status IN ('pending', 'running', 'waiting');
CREATE INDEX runs_owned ON runs (owner) WHERE owner IS NOT NULL;
CREATE INDEX runs_ended_under_owner ON runs (owner) WHERE owner IS NOT NULL AND finished_at IS NOT NULL;
CREATE INDEX runs_children ON runs (parent_key) WHERE parent_key IS NOT NULL;
CREATE INDEX runs_open ON runs (key) WHERE finished_at IS NULL;
CREATE INDEX runs_ended ON runs (status, key) WHERE finished_at IS NOT NULL;

CREATE TABLE journal (
    run_key    INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    kind       TEXT    NOT NULL,
    location   TEXT    NOT NULL,
    data       BLOB    NOT NULL,
    "check"    INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX journal_position ON journal (run_key, generation, seq);

CREATE TABLE inbox (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    run_key INTEGER NOT NULL,
    kind    TEXT    NOT NULL,
    type    TEXT    NOT NULL,
    data    BLOB    NOT NULL,
    sent_at INTEGER NOT NULL,
    previous INTEGER NOT NULL                   -- the item before it in this inbox: a gap shows
) STRICT;
CREATE INDEX inbox_of_run ON inbox (run_key, kind, type);

CREATE TABLE inbox_keys (
    run_key INTEGER NOT NULL,
    dedup   TEXT    NOT NULL,
    PRIMARY KEY (run_key, dedup)
) STRICT, WITHOUT ROWID;

CREATE TABLE workers (
    id         TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    host       TEXT    NOT NULL,
    pid        INTEGER NOT NULL,
    started_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Item ids start at 2: a cursor of 0 means "from now on" to `news`, so no real cursor may be 0.
INSERT INTO sqlite_sequence (name, seq) VALUES ('inbox', 1);

-- "prdu": what makes a file recognisable as ours.
PRAGMA application_id = 1886545013;
PRAGMA user_version = 1;
