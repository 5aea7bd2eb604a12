-- Published events, dead letters, replies. The commented version is ../schema.sql.
ALTER TABLE runs ADD COLUMN watched INTEGER NOT NULL DEFAULT 0;

ALTER TABLE inbox ADD COLUMN policy TEXT NOT NULL DEFAULT '';
ALTER TABLE inbox ADD COLUMN expires_at INTEGER;
ALTER TABLE inbox ADD COLUMN publication INTEGER NOT NULL DEFAULT 0;
ALTER TABLE inbox ADD COLUMN held INTEGER NOT NULL DEFAULT 0;
ALTER TABLE inbox ADD COLUMN request TEXT NOT NULL DEFAULT '';
CREATE INDEX inbox_expiring ON inbox (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE publications (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    type         TEXT    NOT NULL,
    single       INTEGER NOT NULL,
    data         BLOB    NOT NULL,
    published_at INTEGER NOT NULL,
    policy       TEXT    NOT NULL,
    delivery     TEXT    NOT NULL,
    expires_at   INTEGER,
    last_run     INTEGER NOT NULL,
    holder       INTEGER,
    spread_after INTEGER
) STRICT;
CREATE INDEX publications_free ON publications (type, single, id) WHERE holder IS NULL;
CREATE INDEX publications_spreading ON publications (id) WHERE spread_after IS NOT NULL;
CREATE INDEX publications_expiring ON publications (expires_at) WHERE expires_at IS NOT NULL AND holder IS NULL;
CREATE INDEX publications_by_age ON publications (published_at) WHERE holder IS NULL;

CREATE TABLE publication_keys (
    dedup TEXT    NOT NULL PRIMARY KEY,
    at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX publication_keys_by_age ON publication_keys (at);

CREATE TABLE waits (
    run_key INTEGER NOT NULL,
    type    TEXT    NOT NULL,
    wanted  INTEGER NOT NULL,
    held    INTEGER NOT NULL,
    since   INTEGER NOT NULL,
    shared  INTEGER NOT NULL,
    refused INTEGER NOT NULL,
    PRIMARY KEY (run_key, type)
) STRICT, WITHOUT ROWID;
CREATE INDEX waits_of_type ON waits (type, run_key) WHERE wanted > 0;
CREATE INDEX waits_with_room ON waits (type, run_key) WHERE wanted > held;

CREATE TABLE refusals (
    run_key     INTEGER NOT NULL,
    type        TEXT    NOT NULL,
    publication INTEGER NOT NULL,
    PRIMARY KEY (run_key, type, publication)
) STRICT, WITHOUT ROWID;

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

CREATE TABLE replies (
    request TEXT    NOT NULL PRIMARY KEY,
    data    BLOB    NOT NULL,
    at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX replies_by_age ON replies (at);

CREATE TABLE watches (
    target_key         INTEGER NOT NULL,
    watcher_key        INTEGER NOT NULL,
    watcher_generation INTEGER NOT NULL,
    location           TEXT    NOT NULL,
    PRIMARY KEY (target_key, watcher_key, watcher_generation, location)
) STRICT, WITHOUT ROWID;

CREATE TABLE expired_events (
    type  TEXT    NOT NULL PRIMARY KEY,
    count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Runs that wait for an event at this moment: what for is in their frontier, as 'A' or 'B'.
INSERT INTO waits (run_key, type, wanted, held, since, shared, refused)
WITH RECURSIVE
    receives (run_key, rest) AS (
        SELECT runs.key, json_extract(operation.value, '$.detail') || ' or '
        FROM runs, json_each(CAST(runs.frontier AS TEXT), '$.operations') AS operation
        WHERE runs.finished_at IS NULL AND runs.frontier IS NOT NULL AND json_valid(CAST(runs.frontier AS TEXT))
            AND json_extract(operation.value, '$.kind') = 'receive'
    ),
    names (run_key, name, rest) AS (
        SELECT run_key, '', rest FROM receives
        UNION ALL
        SELECT run_key, substr(rest, 1, instr(rest, ' or ') - 1), substr(rest, instr(rest, ' or ') + 4)
        FROM names WHERE rest <> ''
    )
SELECT run_key, substr(name, 2, length(name) - 2), count(*), 0, 0, 0, 0
FROM names WHERE name <> '' GROUP BY 1, 2;

-- Unread events of runs that have ended, which were left in their inboxes so far.
INSERT INTO dead_letters (type, data, policy, target, target_status, sent_at, died_at, reason)
SELECT inbox.type, inbox.data, '', runs.id, runs.status, inbox.sent_at, runs.finished_at,
    'the run ended before reading it'
FROM inbox CROSS JOIN runs ON runs.key = inbox.run_key
WHERE runs.finished_at IS NOT NULL AND inbox.kind = 'event' ORDER BY inbox.id;
DELETE FROM inbox WHERE run_key IN (SELECT key FROM runs WHERE finished_at IS NOT NULL);

PRAGMA user_version = 4;
