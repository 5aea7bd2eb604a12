-- The schema, as the migrations leave it. Nothing executes this file: it is for people, and a test compares it
-- with a migrated database (tests/stores/test_sqlite_migrations.py).
--
-- The tables
--
--   runs ───────┬── journal      the records of a run, one row each; the truth; only finished iterations of loops go
--   (one row    ├── inbox        what arrived for a run and no turn has taken yet
--    per id)    ├── inbox_keys   `dedup` keys seen by a run, kept after the item is taken
--               ├── waits        which types of events it waits for, and how much it has had of each
--               ├── refusals     which published events it was offered and does not want
--               └── watches      who wants to hear of its end
--   publications                 events for every run that may have them; publication_keys: repeats are known
--   dead_letters, replies        events that did not arrive; answers to requests
--   expired_events               how many went away unread
--   identity, departures,        moving to another store: who this is, where it goes to, what comes from where
--   coming, arrived
--   workers                      processes that may own runs; whether one lives is a file lock, not a column
--
-- The flow of calls
--
--   create    runs +1, journal +1 (Started), and with a first turn whatever that turn does
--   claim     runs.owner, epoch + 1        for the runs that are due: unowned, open, ready_at in the past
--   commit    runs (next_seq, status, ...) guarded by key + epoch + generation + next_seq
--             journal +n -pruned, inbox -consumed, inbox of others +sent, runs +spawned, waits and what was published
--             for them, and at the end of a run its unread events to dead_letters: all in one transaction
--   append    inbox +1, runs.ready_at earlier if nobody owns the run
--   publish   publications +1, inbox +1 of runs that wait (all in one transaction; many: `spread`)
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
    pruned            INTEGER NOT NULL DEFAULT 0,         -- records of this generation that were deleted
    watched           INTEGER NOT NULL DEFAULT 0          -- whether somebody is to be told of its end (`watches`)
) STRICT;

-- Exactly what claims look for: runs that are due, oldest first, and those whose worker died with them, the worst first:
-- of these only a few are tried at a time.
CREATE INDEX runs_due ON runs (ready_at)
    WHERE owner IS NULL AND status IN ('pending', 'running', 'waiting') AND recoveries = 0;
CREATE INDEX runs_suspect ON runs (recoveries DESC, ready_at)
    WHERE owner IS NULL AND status IN ('pending', 'running', 'waiting') AND recoveries > 0;
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
    previous INTEGER NOT NULL,                  -- the item before it in this inbox: a gap shows
    policy TEXT NOT NULL DEFAULT '',            -- how an event travels, as JSON; empty: the defaults
    expires_at INTEGER,                         -- from then on nobody gets it
    publication INTEGER NOT NULL DEFAULT 0,     -- the published event that this is a copy of; 0: sent to this run
    held INTEGER NOT NULL DEFAULT 0,            -- 1: the only copy; `publications.holder` is this run
    request TEXT NOT NULL DEFAULT ''            -- somebody waits for a reply under this name
) STRICT;
CREATE INDEX inbox_of_run ON inbox (run_key, kind, type);
CREATE INDEX inbox_expiring ON inbox (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE inbox_keys (
    run_key INTEGER NOT NULL,
    dedup   TEXT    NOT NULL,
    PRIMARY KEY (run_key, dedup)
) STRICT, WITHOUT ROWID;

-- Events for every run that may have them. `single` ones are for one run: free until a run that waits holds it in its inbox,
-- gone when it takes it, free again when it does not. The others are copied to every run that may have them, a few
-- hundred in one transaction (`spread_after`: the last run so far; NULL: all that waited).
CREATE TABLE publications (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    type         TEXT    NOT NULL,
    single       INTEGER NOT NULL,
    data         BLOB    NOT NULL,
    published_at INTEGER NOT NULL,
    policy       TEXT    NOT NULL,
    delivery     TEXT    NOT NULL,
    expires_at   INTEGER,
    last_run     INTEGER NOT NULL,                   -- the newest run when it was published
    holder       INTEGER,
    spread_after INTEGER
) STRICT;
CREATE INDEX publications_free ON publications (type, single, id) WHERE holder IS NULL;
CREATE INDEX publications_spreading ON publications (id) WHERE spread_after IS NOT NULL;
CREATE INDEX publications_expiring ON publications (expires_at) WHERE expires_at IS NOT NULL AND holder IS NULL;
CREATE INDEX publications_by_age ON publications (published_at) WHERE holder IS NULL;

-- `key=` of publish, so that a repeat is known.
CREATE TABLE publication_keys (
    dedup TEXT    NOT NULL PRIMARY KEY,
    at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX publication_keys_by_age ON publication_keys (at);

-- Which run has to do with which type of events. Written by turns in which a receive came or went, so a run that never
-- receives has no row. Kept while the run is open, because `shared` must not be lost.
CREATE TABLE waits (
    run_key INTEGER NOT NULL,
    type    TEXT    NOT NULL,
    wanted  INTEGER NOT NULL,                        -- how many it could take now; 0: it does not wait
    held    INTEGER NOT NULL,                        -- single ones in its inbox
    since   INTEGER NOT NULL,                        -- the newest publication when it began to wait
    shared  INTEGER NOT NULL,                        -- it has had the copies up to this publication
    refused INTEGER NOT NULL,                        -- whether there are `refusals`
    PRIMARY KEY (run_key, type)
) STRICT, WITHOUT ROWID;
CREATE INDEX waits_of_type ON waits (type, run_key) WHERE wanted > 0;
CREATE INDEX waits_with_room ON waits (type, run_key) WHERE wanted > held;

-- Single publications that a run held and handed back, as long as it waits for the same.
CREATE TABLE refusals (
    run_key     INTEGER NOT NULL,
    type        TEXT    NOT NULL,
    publication INTEGER NOT NULL,
    PRIMARY KEY (run_key, type, publication)
) STRICT, WITHOUT ROWID;

-- Events that did not reach their run, until somebody replays or removes them.
CREATE TABLE dead_letters (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    type          TEXT    NOT NULL,
    data          BLOB    NOT NULL,
    policy        TEXT    NOT NULL,
    target        TEXT    NOT NULL,
    target_status TEXT    NOT NULL,
    sent_at       INTEGER NOT NULL,
    died_at       INTEGER NOT NULL,
    reason        TEXT    NOT NULL
) STRICT;
CREATE INDEX dead_letters_of_type ON dead_letters (type, id);

-- Answers to requests, for the caller to pick up.
CREATE TABLE replies (
    request TEXT    NOT NULL PRIMARY KEY,
    data    BLOB    NOT NULL,
    at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX replies_by_age ON replies (at);

-- Runs that wait for the end of another (`wait_for_run`).
CREATE TABLE watches (
    target_key         INTEGER NOT NULL,
    watcher_key        INTEGER NOT NULL,
    watcher_generation INTEGER NOT NULL,
    location           TEXT    NOT NULL,
    PRIMARY KEY (target_key, watcher_key, watcher_generation, location)
) STRICT, WITHOUT ROWID;

-- How many events of each type went away unread because their time was over.
CREATE TABLE expired_events (
    type  TEXT    NOT NULL PRIMARY KEY,
    count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Which data this is: another file has another one, a copy of this file the same.
CREATE TABLE identity (id TEXT NOT NULL) STRICT;

-- Where everything here goes to (`gone`: has gone): at most one row. While there is one, triggers refuse every change of
-- runs and events (`refuse_changes` in queries.sql): also those of processes that know nothing of it.
CREATE TABLE departures (
    target    TEXT    NOT NULL,
    target_id TEXT    NOT NULL,
    at        INTEGER NOT NULL,
    gone      INTEGER NOT NULL
) STRICT;

-- Runs that are on their way here from another store, until everything has come.
CREATE TABLE coming (
    run_key   INTEGER PRIMARY KEY,
    source    TEXT    NOT NULL,                      -- `identity` of that store
    old_key   INTEGER NOT NULL,
    brought   TEXT    NOT NULL,                      -- `mark_of` the original when it was brought
    mark      TEXT,                                  -- NULL: not compared with the original yet
    status    TEXT    NOT NULL,                      -- how it will stand then
    relations BLOB                                   -- its parent, waits and watchers, by names that mean something here
) STRICT;
CREATE INDEX coming_from ON coming (source, run_key);

-- From where everything has come.
CREATE TABLE arrived (
    source TEXT    NOT NULL PRIMARY KEY,
    at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE workers (
    id         TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    host       TEXT    NOT NULL,
    pid        INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    release    TEXT    NOT NULL DEFAULT '',               -- of perdure
    definitions TEXT   NOT NULL DEFAULT '[]',             -- the workflows that it runs: [[name, version], ...]
    draining_since INTEGER                                -- when it began to leave
) STRICT, WITHOUT ROWID;
