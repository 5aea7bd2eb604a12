-- What `perdure doctor` asks a SQLite file: see health.py. Nothing here writes.

-- name: journal_mode
-- How changes become durable.
PRAGMA journal_mode;

-- name: page_counts
-- How large the file is, and how much of it is free.
SELECT (SELECT page_size FROM pragma_page_size), (SELECT page_count FROM pragma_page_count),
    (SELECT freelist_count FROM pragma_freelist_count);

-- name: quick_check
-- Damage, as far as it shows without comparing indexes: "ok", or what is wrong.
PRAGMA quick_check(5);

-- name: owned
-- How many runs each worker has.
SELECT owner, count(*) FROM runs WHERE owner IS NOT NULL GROUP BY owner;

-- name: parked
-- Parked runs by the kind of their reason, with one of each.
SELECT CASE WHEN instr(reason, ':') > 0 THEN substr(reason, 1, instr(reason, ':') - 1) ELSE coalesce(reason, '') END,
    count(*), min(id) FROM runs WHERE finished_at IS NULL AND status = 'parked' GROUP BY 1 ORDER BY 2 DESC;

-- name: due
-- The runs that are due for the longest time and that nobody has. What is due at once has no time of its own.
SELECT id, workflow, version, iif(ready_at > 0, ready_at, updated_at) AS since, recoveries, reason FROM runs
WHERE owner IS NULL AND status IN ('pending', 'running', 'waiting') AND ready_at <= ?1 ORDER BY since LIMIT 10;

-- name: due_count
-- How many, as far as it is worth counting.
SELECT count(*) FROM (SELECT 1 FROM runs
    WHERE owner IS NULL AND status IN ('pending', 'running', 'waiting') AND ready_at <= ?1 LIMIT ?2);

-- name: dead_letters
-- How many, as far as it is worth counting, and since when.
SELECT count(*), min(died_at) FROM (SELECT died_at FROM dead_letters LIMIT ?1);
