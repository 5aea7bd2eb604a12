-- Moving to another store: who this is, where it goes to, what comes, and from where everything has come.

CREATE TABLE identity (id TEXT NOT NULL) STRICT;
INSERT INTO identity VALUES (lower(hex(randomblob(16))));

CREATE TABLE departures (
    target    TEXT    NOT NULL,
    target_id TEXT    NOT NULL,
    at        INTEGER NOT NULL,
    gone      INTEGER NOT NULL
) STRICT;

CREATE TABLE coming (
    run_key   INTEGER PRIMARY KEY,
    source    TEXT    NOT NULL,
    old_key   INTEGER NOT NULL,
    brought   TEXT    NOT NULL,
    mark      TEXT,
    status    TEXT    NOT NULL,
    relations BLOB
) STRICT;
CREATE INDEX coming_from ON coming (source, run_key);

CREATE TABLE arrived (
    source TEXT    NOT NULL PRIMARY KEY,
    at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 8;
