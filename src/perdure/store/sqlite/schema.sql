-- The schema, as the migrations leave it. Nothing executes this file: it is for people, and a test compares it
-- with a migrated database (tests/stores/test_sqlite_migrations.py).
--
-- The tables
--
--   runs ───────┬── journal      the records of a run, one row each; the truth; only finished iterations of loops go
--   (one row    ├── inbox        what arrived for a run and no turn has taken yet
--    per id)    └── inbox_keys   `dedup` keys seen by a run, kept after the item is taken
--   workers                      processes that may own runs; whether one lives is a file lock, not a column
--
-- The flow of calls
--
--   create    runs +1, journal +1 (Started), and with a first turn whatever that turn does
--   claim     runs.owner, epoch + 1        for the runs that are due: unowned, open, ready_at in the past
--   commit    runs (next_seq, status, ...) guarded by key + epoch + generation + next_seq
--             journal +n -pruned, inbox -consumed, inbox of others +sent, runs +spawned: all in one transaction
--   append    inbox +1, runs.ready_at earlier if nobody owns the run
--   release   runs.owner NULL, ready_at    unless the inbox holds something newer: then at once
--   reap      the same for every run of a worker whose lock is free
--   pause     runs.status, epoch + 1       and an item that tells the owner to let go
--   reopen    runs (finished_at NULL ...)  guarded by key + epoch + next_seq; journal +1 (Resumed)
--   restore   runs +1, with journals and inbox: a run that has a past
--   delete    runs -1, and everything of it: ended runs that nobody owns
--
-- Rules
--   Columns are only ever appended: rows are read by position with `SELECT *`, so that a process of the release
--   before goes on working beside a newer one.
--   Times are microseconds since 1970. `ready_at` only matters while `owner` is NULL.
--   An index costs a page in every commit that changes its columns. The UPDATE of a common turn changes no
--   entry of any index of `runs`: an owned, open run stays in `runs_owned` and `runs_open`, whatever its status.

CREATE TABLE runs (
    key               INTEGER PRIMARY KEY AUTOINCREMENT,  -- never reused: a late turn cannot hit a namesake
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
    finished_at       INTEGER,                            -- NULL exactly while the run is open
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
    last_item         INTEGER NOT NULL DEFAULT 0,         -- newest item ever put into the inbox
    pruned            INTEGER NOT NULL DEFAULT 0          -- records of this generation that were deleted
) STRICT;

-- Exactly the claim predicate, oldest first.
CREATE INDEX runs_claimable ON runs (ready_at)
    WHERE owner IS NULL AND status IN ('pending', 'running', 'waiting');
-- What a worker holds: for reaping and for leaving in order.
CREATE INDEX runs_owned ON runs (owner) WHERE owner IS NOT NULL;
-- Runs that were terminated while a worker held them, until that worker lets go (`news(...).ended`).
CREATE INDEX runs_ended_under_owner ON runs (owner) WHERE owner IS NOT NULL AND finished_at IS NOT NULL;
CREATE INDEX runs_children ON runs (parent_key) WHERE parent_key IS NOT NULL;
-- Listing. Open and ended runs apart, so that a change of status of an open run touches neither.
CREATE INDEX runs_open ON runs (key) WHERE finished_at IS NULL;
CREATE INDEX runs_ended ON runs (status, key) WHERE finished_at IS NOT NULL;

-- A rowid table, so that the turns of many runs append to the same few pages; the index finds a run's own.
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
    id      INTEGER PRIMARY KEY AUTOINCREMENT,  -- grows in commit order: there is one writer at a time
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
