-- What `perdure doctor` asks a PostgreSQL server: see health.py. Nothing here writes, and nothing needs more than a role
-- that may read; what such a role is not shown comes as NULL. Split by `store/sql/queries.py` like queries.sql.

-- fragment: now
-- The database's time in microseconds: the one clock of a fleet.
(extract(epoch FROM clock_timestamp()) * 1000000)::bigint

-- fragment: due_since
-- When a run became due: what is due at once is stored as a time before every other (`at_once` in queries.sql).
CASE WHEN at < 0 THEN at + 4611686018427387904 ELSE at END

-- name: bounds
-- For the transaction of one check: how long a statement and a lock may take, and where our tables are.
SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true),
    set_config('search_path', $3, true);

-- name: server
-- Which server this is, and as whom we are there.
SELECT current_setting('server_version'), current_setting('server_version_num')::int,
    current_setting('server_encoding'), current_database()::text, current_user::text, pg_is_in_recovery()::int;

-- name: schema
-- Whether our schema is there, what this role may do with it, and whether it might make it.
SELECT (SELECT count(*) FROM pg_namespace WHERE nspname = $1),
    coalesce((SELECT has_schema_privilege(oid, 'USAGE')::int FROM pg_namespace WHERE nspname = $1), 0),
    coalesce((SELECT has_schema_privilege(oid, 'CREATE')::int FROM pg_namespace WHERE nspname = $1), 0),
    has_database_privilege(current_database(), 'CREATE')::int,
    (SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = $1 AND c.relname = 'perdure_schema');

-- name: privileges
-- Tables and sequences of ours, and whether this role may read and change them.
SELECT c.relname::text, (c.relkind = 'S')::int, CASE WHEN c.relkind = 'S'
        THEN has_sequence_privilege(c.oid, 'SELECT') ELSE has_table_privilege(c.oid, 'SELECT') END::int,
    CASE WHEN c.relkind = 'S' THEN has_sequence_privilege(c.oid, 'USAGE') ELSE has_table_privilege(c.oid, 'INSERT')
        AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE') END::int
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'S') ORDER BY 1;

-- name: holders
-- Everything that keeps vacuum from removing rows which died after it began: sessions of this database and of standbys,
-- prepared transactions, replication slots. Of other roles' sessions only name and age are shown without pg_read_all_stats.
SELECT 'session', pid::text, usename::text, coalesce(application_name, ''), coalesce(host(client_addr), ''),
    coalesce(state, ''), extract(epoch FROM clock_timestamp() - xact_start)::bigint,
    to_char(xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'),
    greatest(age(backend_xmin), age(backend_xid))::bigint AS passed
FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND usename IS NOT NULL AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
    AND (datid IS NULL OR datid = 0 OR datname = current_database())
UNION ALL
SELECT 'prepared', gid, owner::text, '', '', '', extract(epoch FROM clock_timestamp() - prepared)::bigint,
    to_char(prepared AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), age(transaction)::bigint
FROM pg_prepared_xacts WHERE database = current_database()
UNION ALL
SELECT 'slot', slot_name::text, '', '', '', CASE WHEN active THEN 'active' ELSE 'inactive' END, NULL, NULL,
    age(xmin)::bigint
FROM pg_replication_slots WHERE xmin IS NOT NULL
ORDER BY passed DESC LIMIT 20;

-- name: idle
-- Sessions of this database that do nothing within a transaction, the longest first; and how many are hidden from this role.
SELECT pid::text, usename::text, coalesce(application_name, ''), coalesce(host(client_addr), ''),
    coalesce(state, ''), extract(epoch FROM clock_timestamp() - state_change)::bigint
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND usename IS NOT NULL
    AND (state IS NULL OR (state LIKE 'idle in transaction%' AND state_change < clock_timestamp() - make_interval(secs => $1::float8)))
ORDER BY state_change LIMIT 1000;

-- name: tables
-- Our tables: rows, dead rows, seconds since a vacuum, bytes with indexes, and whether autovacuum may come.
SELECT s.relname::text, s.n_live_tup::bigint, s.n_dead_tup::bigint,
    extract(epoch FROM clock_timestamp() - greatest(s.last_autovacuum, s.last_vacuum))::bigint,
    pg_total_relation_size(s.relid)::bigint, coalesce('autovacuum_enabled=false' = ANY(c.reloptions), false)::int
FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
WHERE s.schemaname = $1 ORDER BY s.n_dead_tup DESC;

-- name: autovacuum
-- Whether it comes at all, and how near the transaction numbers are to their end.
SELECT (current_setting('autovacuum')::bool AND current_setting('track_counts')::bool)::int,
    (SELECT age(datfrozenxid)::bigint FROM pg_database WHERE datname = current_database());

-- name: clock
-- The database's time.
SELECT {now};

-- name: standbys
-- Who gets the WAL from here. What they lag behind is shown to pg_read_all_stats only.
SELECT coalesce(application_name, ''), coalesce(state, ''), coalesce(sync_state, ''),
    extract(epoch FROM replay_lag)::bigint,
    CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::bigint END
FROM pg_stat_replication ORDER BY 1;

-- name: slots
-- Places in the WAL that are kept for somebody.
SELECT slot_name::text, active::int, coalesce(wal_status, ''),
    CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint END
FROM pg_replication_slots ORDER BY 1;

-- name: durability
-- What a commit that was acknowledged survives.
SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('data_checksums'),
    current_setting('synchronous_standby_names');

-- name: connections
-- Sessions of clients, what the server allows, and what of it is reserved for administrators; then the same of this role and
-- of this database, with -1 for no limit of their own.
SELECT (SELECT count(*) FROM pg_stat_activity WHERE usename IS NOT NULL),
    current_setting('max_connections')::int,
    current_setting('superuser_reserved_connections')::int
        + coalesce(current_setting('reserved_connections', true), '0')::int,
    (SELECT count(*) FROM pg_stat_activity WHERE usename = current_user),
    (SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user),
    (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename IS NOT NULL),
    (SELECT datconnlimit FROM pg_database WHERE datname = current_database());

-- name: disk
-- The database, and what its statements have put into temporary files since the statistics were reset; whether this role may
-- look at the WAL.
SELECT pg_database_size(current_database())::bigint,
    (SELECT temp_bytes FROM pg_stat_database WHERE datname = current_database()),
    has_function_privilege('pg_ls_waldir()', 'EXECUTE')::int;

-- name: wal_bytes
-- All of the WAL that is on the disk.
SELECT coalesce(sum(size), 0)::bigint FROM pg_ls_waldir();

-- == what is in the store ================================================================================

-- name: workers
-- Registered workers: milliseconds since they renewed, whether that is longer than they may be silent, and whether they are
-- dead by now, whether they leave, and what they run.
SELECT w.id, w.name, w.host, w.pid, (extract(epoch FROM clock_timestamp() - w.renewed_at) * 1000)::bigint,
    CASE WHEN w.reaped OR w.expires_at < clock_timestamp() THEN 'dead'
        WHEN w.renewed_at + w.silence < clock_timestamp() THEN 'silent'
        WHEN w.draining_since IS NOT NULL THEN 'draining' ELSE 'alive' END, coalesce(s.definitions, '[]')
FROM workers w LEFT JOIN served s ON s.worker = w.id ORDER BY w.started_at, w.id;

-- name: owned
-- How many runs each worker has.
SELECT owner, count(*) FROM runs WHERE owner IS NOT NULL GROUP BY owner;

-- name: parked
-- Parked runs by the kind of their reason, with one of each.
SELECT split_part(coalesce(reason, ''), ':', 1), count(*), min(id) FROM runs
WHERE outcome IS NULL AND status = 'parked' GROUP BY 1 ORDER BY 2 DESC;

-- name: due
-- The runs that are due for the longest time and that nobody has, one of each workflow and version: by the index, as claims.
SELECT r.id, d.workflow, d.version, {due_since}, r.recoveries, r.reason
FROM definitions d CROSS JOIN LATERAL (
    (SELECT id, ready_at AS at, recoveries, reason FROM runs WHERE definition = d.id AND ready_at < 0
        ORDER BY ready_at LIMIT 1)
    UNION ALL
    (SELECT id, ready_at, recoveries, reason FROM runs WHERE definition = d.id AND ready_at BETWEEN 0 AND {now}
        ORDER BY ready_at LIMIT 1)
) r
UNION ALL
SELECT r.id, d.workflow, d.version, {due_since}, r.recoveries, r.reason
FROM (SELECT id, definition, suspect_at AS at, recoveries, reason FROM runs WHERE suspect_at <= {now}
    ORDER BY suspect_at LIMIT 1) r JOIN definitions d ON d.id = r.definition
ORDER BY 4 LIMIT 10;

-- name: dead_letters
-- How many, as far as it is worth counting, and since when.
SELECT count(*), min(died_at) FROM (SELECT died_at FROM dead_letters LIMIT $1) counted;
