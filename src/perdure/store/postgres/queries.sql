-- Every statement of the PostgreSQL store. Most have a namesake in the SQLite store, with the same parameters in the
-- same order: `store/sql` calls both by name. `store/sql/queries.py` splits this file at the `-- name:` lines.
-- A name in braces stands for a fragment, which is written once, here at the top.
--
-- Rows of `runs` are locked before they are changed, in the order of docs/reference/locks.md: what a transaction knows
-- beforehand by `lock_types_*` and `lock_runs`, what it finds later without waiting (NOWAIT).

-- fragment: claimable
-- The statuses of runs that a worker may claim, and that turns are accepted for: `model.CLAIMABLE`.
('pending', 'running', 'waiting')

-- fragment: now
-- The database's time in microseconds: the one clock of a fleet.
(extract(epoch FROM clock_timestamp()) * 1000000)::bigint

-- fragment: at_once
-- When something is due that is due now, whatever the clock of the worker that looks says: before every other time.
-- Growing, so that new entries of the indexes do not land among the dead ones of an old snapshot; the same for all runs of a
-- transaction, which then come in the order of their keys.
((extract(epoch FROM transaction_timestamp()) * 1000000)::bigint - 4611686018427387904)

-- fragment: history
-- The cluster and the timeline of its past. A standby has none of its own.
(SELECT system_identifier FROM pg_control_system()), CASE WHEN pg_is_in_recovery() THEN 0
    ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint END

-- fragment: run
-- A run as `rows.StoredRun` has it.
r.key, r.id, r.generation, d.workflow, d.version, r.status, r.epoch, r.owner, coalesce(r.ready_at, r.suspect_at, 0),
    r.wake_at, r.next_seq, r.created_at, r.updated_at, r.finished_at, r.recoveries, r.input_digest, r.parent_key,
    r.parent_generation, r.parent_location, r.cancel_requested, r.frontier, r.reason, r.custom_status, r.state,
    r.last_item, r.pruned, r.watched

-- fragment: runs
-- Where that comes from.
runs r JOIN definitions d ON d.id = r.definition

-- fragment: taken
-- The same of a run that was just claimed: `r` is what the claim returned, `due` when it was due.
r.key, r.id, r.generation, d.workflow, d.version, r.status, r.epoch, r.owner, due.ready_at,
    r.wake_at, r.next_seq, r.created_at, r.updated_at, r.finished_at, r.recoveries, r.input_digest, r.parent_key,
    r.parent_generation, r.parent_location, r.cancel_requested, r.frontier, r.reason, r.custom_status, r.state,
    r.last_item, r.pruned, r.watched

-- fragment: due_when_freed
-- When a run is due whose worker is gone: what only waited goes on waiting ($2: for ever), the rest is due at once. Not
-- `NOT EXISTS`, for which the whole inbox may be read into memory.
CASE WHEN status = 'waiting' AND (SELECT 1 FROM inbox WHERE run_key = runs.key LIMIT 1) IS NULL
    THEN coalesce(wake_at, $2) ELSE {at_once} END

-- fragment: item
-- An inbox item as `rows.StoredItem` has it.
id, run_key, kind, type, data, sent_at, previous, policy, expires_at, publication, held, request

-- fragment: receiver
-- What must be known of a run before something is put into its inbox: `inbox.Receiver`.
key, id, status, owner, cancel_requested, last_item

-- fragment: publication
-- A published event as the log has it: `events.Publication`.
id, type, data, published_at, policy, delivery, expires_at, last_run, spread_after

-- fragment: record
-- A record: `kernel.journal.Row`.
seq, at, kind, location, data, "check"

-- fragment: dead_letter
-- A dead letter as `rows.StoredDeadLetter` has it.
id, type, data, policy, target, target_status, sent_at, died_at, reason

-- == turns ==============================================================================================

-- name: advance_run
-- The common turn: the run stays open. Nothing that an index knows changes while the run is owned, so the update is HOT.
UPDATE runs SET status = $1, next_seq = $2, updated_at = $3, wake_at = $4, frontier = $5,
    custom_status = coalesce($6, custom_status), state = coalesce($7, state),
    recoveries = CASE WHEN $2 > next_seq THEN 0 ELSE recoveries END, reason = NULL,
    ready_at = CASE WHEN $2 > next_seq THEN coalesce(ready_at, suspect_at) ELSE ready_at END,
    suspect_at = CASE WHEN $2 > next_seq THEN NULL ELSE suspect_at END
WHERE key = $8 AND epoch = $9 AND generation = $10 AND next_seq = $11 AND status IN {claimable}
    AND (owner = $12 OR owner IS NULL);

-- name: finish_run
-- The last turn: terminal, nobody's, nothing to wake for.
UPDATE runs SET status = $1, outcome = $1, next_seq = $2, updated_at = $3, finished_at = $3, wake_at = NULL,
    owner = NULL, frontier = $4, custom_status = coalesce($5, custom_status), state = coalesce($6, state),
    recoveries = 0, reason = NULL, ready_at = NULL, suspect_at = NULL
WHERE key = $7 AND epoch = $8 AND generation = $9 AND next_seq = $10 AND status IN {claimable}
    AND (owner = $11 OR owner IS NULL);

-- name: leaves_something
-- Whether something ever came for a run that has just ended, or somebody wants to hear of its end.
SELECT (last_item > 0 OR watched > 0)::int FROM runs WHERE key = $1;

-- name: continue_run
-- `continue_as`: the next generation under the same id, owner and epoch.
UPDATE runs SET status = $1, next_seq = 2, generation = generation + 1, 
    definition = (SELECT id FROM definitions WHERE workflow = $2 AND version = $3), updated_at = $4, wake_at = $5,
    frontier = $6, custom_status = coalesce($7, custom_status), state = coalesce($8, state), recoveries = 0,
    reason = NULL, cancel_requested = 0, pruned = 0, ready_at = coalesce(ready_at, suspect_at), suspect_at = NULL
WHERE key = $9 AND epoch = $10 AND generation = $11 AND next_seq = $12 AND status IN {claimable}
    AND (owner = $13 OR owner IS NULL);

-- name: add_record
-- Append one record.
INSERT INTO journal (run_key, generation, seq, at, kind, location, data, "check") VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

-- name: prune_record
-- Delete a record that no replay needs any more.
DELETE FROM journal WHERE run_key = $1 AND generation = $2 AND seq = $3;

-- name: note_pruned
-- How many are gone, so that a record which is missing for any other reason is noticed.
UPDATE runs SET pruned = pruned + $1 WHERE key = $2 AND generation = $3;

-- name: position_of_run
-- What a refused turn is compared with.
SELECT epoch, generation, next_seq, status, owner FROM runs WHERE key = $1;

-- == locks: see docs/reference/locks.md =================================================================

-- name: add_types
-- So that there is something to lock.
INSERT INTO types (type) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING;

-- name: lock_types_shared
-- To wait for events of these types: nobody publishes one meanwhile.
SELECT type FROM types WHERE type = ANY($1::text[]) ORDER BY type FOR SHARE;

-- name: lock_types
-- To publish events of these types, or to hand them on.
SELECT type FROM types WHERE type = ANY($1::text[]) ORDER BY type FOR UPDATE;

-- name: lock_type_shared_now
-- The same, without waiting, for a type that was found when locks were held already.
SELECT type FROM types WHERE type = $1 FOR SHARE NOWAIT;

-- name: lock_type_now
-- The same.
SELECT type FROM types WHERE type = $1 FOR UPDATE NOWAIT;

-- name: lock_runs
-- Everything that a transaction knows it will change: runs by key and by id, and the parents of runs that end.
-- Each kind by its own index, then the rows one by one in the order of their keys: with the kinds joined by OR the plan
-- reads the whole table. No look at whether there is a parent: that would invite the index of all children.
SELECT locked.key FROM (
    SELECT unnest($1::bigint[]) AS key
    UNION SELECT key FROM runs WHERE id = ANY($2::text[])
    UNION SELECT parent_key FROM runs WHERE key = ANY($3::bigint[])
    ORDER BY key
) wanted CROSS JOIN LATERAL (SELECT key FROM runs WHERE runs.key = wanted.key FOR NO KEY UPDATE) locked;

-- name: lock_runs_now
-- Runs that were found when locks were held already.
SELECT key FROM runs WHERE key = ANY($1::bigint[]) ORDER BY key FOR NO KEY UPDATE NOWAIT;

-- name: children_of_run
-- Which runs those are. Not `outcome IS NULL`: on empty tables the index of all open runs seems as good as that of children,
-- and the plan is kept.
SELECT key FROM runs WHERE parent_key = $1 AND coalesce(outcome, '') = '';

-- name: types_of_runs
-- Which types of events runs have to do with, as far as is stored: what they wait for and what they hold.
SELECT type FROM waits WHERE run_key = ANY($1::bigint[])
UNION SELECT type FROM inbox WHERE run_key = ANY($1::bigint[]) AND publication > 0;

-- name: add_definitions
-- Workflows and versions get a number, by which claims look for runs.
INSERT INTO definitions (workflow, version)
SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT DO NOTHING;

-- == inboxes ============================================================================================

-- name: receiver_by_id
-- What must be known of a run before something is put into its inbox. It is locked: what is put there is numbered.
SELECT {receiver} FROM runs WHERE id = $1 FOR NO KEY UPDATE NOWAIT;

-- name: receiver_by_key
-- The same for a parent.
SELECT {receiver} FROM runs WHERE key = $1 FOR NO KEY UPDATE NOWAIT;

-- name: parent_of_run
-- Whom to tell about the end of a run.
SELECT parent_key FROM runs WHERE key = $1 AND parent_key IS NOT NULL;

-- name: open_children
-- The same for the children of a run that ends from outside. See `children_of_run`.
SELECT {receiver} FROM runs WHERE parent_key = $1 AND coalesce(outcome, '') = '' ORDER BY key FOR NO KEY UPDATE NOWAIT;

-- name: inbox_takes
-- Was this item taken before, and is there an n-th unread event of its type (the offset is n - 1)?
SELECT EXISTS (SELECT 1 FROM inbox_keys WHERE run_key = $1 AND dedup = $2)::int,
    EXISTS (SELECT 1 FROM inbox WHERE run_key = $1 AND kind = 'event' AND type = $3 LIMIT 1 OFFSET $4)::int;

-- name: add_dedup
-- Remember it.
INSERT INTO inbox_keys (run_key, dedup) VALUES ($1, $2);

-- name: add_item
-- Put an item into an inbox. Numbered one by one for each run, whose row is locked: a gap shows.
INSERT INTO inbox (run_key, id, kind, type, data, sent_at, previous, policy, expires_at, publication, held, request,
    owner)
SELECT $1, $6::bigint + 1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, owner FROM runs WHERE key = $1
RETURNING id;

-- name: note_item
-- The newest item of a run, which the next one will name as the one before it.
UPDATE runs SET last_item = $1 WHERE key = $2;

-- name: item_is_unread
-- Whether an item a turn takes is still there to be taken: the publication that goes with it, or -1.
SELECT CASE WHEN held > 0 THEN publication ELSE -1 END FROM inbox WHERE id = $1 AND run_key = $2;

-- name: take_item
-- A turn took the item.
DELETE FROM inbox WHERE id = $1 AND run_key = $2;

-- name: wake_run
-- Something arrived for a run that nobody owns: it is due now.
UPDATE runs SET ready_at = CASE WHEN ready_at IS NOT NULL THEN {at_once} END,
    suspect_at = CASE WHEN suspect_at IS NOT NULL THEN {at_once} END
WHERE key = $1 AND owner IS NULL AND coalesce(ready_at, suspect_at) > 0;

-- name: mark_cancel
-- The first cancel request. There is no second.
UPDATE runs SET cancel_requested = 1 WHERE key = $1;

-- == published events ===================================================================================

-- name: add_publication
-- Publish an event; its type is locked. The newest run at this moment tells who was created before it.
INSERT INTO publications (type, single, data, published_at, policy, delivery, expires_at, last_run, spread_after)
VALUES ($1, $2, $3, $4, $5, $6, $7, (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM runs_key_seq), $8)
RETURNING {publication};

-- name: has_publication_key
-- Was this published before?
SELECT 1 FROM publication_keys WHERE dedup = $1;

-- name: add_publication_key
-- Remember it.
INSERT INTO publication_keys (dedup, at) VALUES ($1, $2);

-- name: last_publication
-- The newest publication ever, whether or not the event is still there.
SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM publications_id_seq;

-- name: next_spreading
-- The oldest publication that not all who waited have.
SELECT {publication} FROM publications WHERE spread_after IS NOT NULL ORDER BY id LIMIT 1;

-- name: move_spreading
-- How far it has come; NULL: all have it.
UPDATE publications SET spread_after = $1 WHERE id = $2;

-- name: waiters
-- The next runs that wait for a type.
SELECT run_key, since, shared FROM waits WHERE type = $1 AND wanted > 0 AND run_key > $2 ORDER BY run_key LIMIT $3;

-- name: free_publications
-- A part of the log of a type, shared (0) or single (1): those that nobody holds, in the order of publishing.
SELECT {publication} FROM publications
WHERE type = $1 AND single = $2 AND holder IS NULL AND id > $3 ORDER BY id LIMIT CASE WHEN $4::bigint >= 0 THEN $4 END;

-- name: acceptable_publications
-- The same of single ones, without those that a run handed back.
SELECT {publication} FROM publications p
WHERE type = $1 AND single = 1 AND holder IS NULL AND id > $2
    AND NOT EXISTS (SELECT 1 FROM refusals WHERE run_key = $3 AND refusals.type = $1 AND publication = p.id)
ORDER BY id LIMIT $4;

-- name: publication
-- One that is being handed on. Not `holder IS NULL`: there is an index of those that nobody holds, which does not begin
-- with the id and on empty tables looks as good.
SELECT {publication} FROM publications WHERE id = $1 AND coalesce(holder, 0) = 0;

-- name: run_with_room
-- The oldest run that waits, may have a single publication and has room for it. $1 type, $2 publication, $3 its
-- delivery, $4 its newest run, $5 a run that does not want it.
SELECT waits.run_key FROM waits JOIN runs ON runs.key = waits.run_key
WHERE waits.type = $1 AND waits.wanted > 0 AND waits.wanted > waits.held AND waits.run_key <> $5
    AND NOT EXISTS (SELECT 1 FROM refusals WHERE run_key = waits.run_key AND type = $1 AND publication = $2::bigint)
    AND CASE $3 WHEN 'after_create' THEN waits.run_key <= $4::bigint WHEN 'after_wait' THEN waits.since < $2 ELSE true END
    AND runs.status IN {claimable}
ORDER BY waits.run_key LIMIT 1;

-- name: hold_publication
-- It is in the inbox of a run now, or (NULL) in nobody's.
UPDATE publications SET holder = $1 WHERE id = $2;

-- name: remove_publication
-- Its reader took it, or its time is over.
DELETE FROM publications WHERE id = $1;

-- name: remove_free_publication
-- Its time is over, and nobody holds it. See `publication`.
DELETE FROM publications WHERE id = $1 AND coalesce(holder, 0) = 0;

-- name: waits_of_run
-- What a run has to do with which types.
SELECT type, wanted, held, since, shared, refused FROM waits WHERE run_key = $1;

-- name: set_wait
-- The run waits for a type, or (wanted = 0) no longer.
INSERT INTO waits (run_key, type, wanted, held, since, shared, refused) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (run_key, type) DO UPDATE SET wanted = $3, held = $4, since = $5, shared = $6, refused = $7;

-- name: note_shared
-- The run has had the copies up to this publication.
UPDATE waits SET shared = $1 WHERE run_key = $2 AND type = $3;

-- name: add_refusal
-- The run does not want this single publication.
INSERT INTO refusals (run_key, type, publication) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING;

-- name: note_refusal
-- So that a wait without any costs nothing more.
UPDATE waits SET refused = 1 WHERE run_key = $1 AND type = $2;

-- name: forget_refusals
-- It waits for something else of this type now.
DELETE FROM refusals WHERE run_key = $1 AND type = $2;

-- name: forget_all_refusals
-- The run has ended.
DELETE FROM refusals WHERE run_key = $1;

-- name: count_held
-- How many single publications of a type a run holds.
SELECT count(*) FROM inbox WHERE run_key = $1 AND kind = 'event' AND type = $2 AND held = 1;

-- name: count_again
-- The same, where it is kept.
UPDATE waits SET held = (SELECT count(*) FROM inbox WHERE inbox.run_key = waits.run_key AND inbox.kind = 'event'
    AND inbox.type = waits.type AND inbox.held = 1)
WHERE run_key = $1 AND type = $2;

-- name: count_unread
-- How many events of a type wait in an inbox.
SELECT count(*) FROM inbox WHERE run_key = $1 AND kind = 'event' AND type = $2;

-- name: held_items
-- The single publications that a run holds.
SELECT {item} FROM inbox WHERE run_key = $1 AND held = 1 ORDER BY id;

-- name: item
-- One item of a run.
SELECT {item} FROM inbox WHERE id = $1 AND run_key = $2;

-- name: end_waits
-- The run has ended. One that failed may be reopened, and must not get a second time what it has had.
UPDATE waits SET wanted = 0, held = 0, since = 0, refused = 0 WHERE run_key = $1;

-- name: forget_waits
-- The run has ended for good.
DELETE FROM waits WHERE run_key = $1;

-- name: empty_inbox
-- The run has ended, and what was unread has gone where it belongs.
DELETE FROM inbox WHERE run_key = $1;

-- == dead letters, replies, watches =====================================================================

-- name: add_dead_letter
-- An event did not reach its run.
INSERT INTO dead_letters (type, data, policy, target, target_status, sent_at, died_at, reason)
SELECT $1, $2, $3, id, status, $4, $5, $6 FROM runs WHERE key = $7;

-- name: dead_letter
-- One dead letter, and nobody else has it.
SELECT {dead_letter} FROM dead_letters WHERE id = $1 FOR UPDATE;

-- name: dead_letters
-- A page of dead letters, oldest first.
SELECT {dead_letter} FROM dead_letters WHERE ($1::text IS NULL OR type = $1) AND id > $2 ORDER BY id LIMIT $3;

-- name: dead_letters_of_end
-- What a run had not read when it ended.
SELECT {dead_letter} FROM dead_letters
WHERE target = (SELECT id FROM runs WHERE key = $1) AND died_at = $2 AND reason = $3 ORDER BY id FOR UPDATE;

-- name: remove_dead_letter
-- It was replayed, or nobody wants it any more.
DELETE FROM dead_letters WHERE id = $1;

-- name: publications
-- A page of published events, oldest first, and who holds them.
SELECT p.id, p.type, p.data, p.published_at, p.policy, p.expires_at, runs.id
FROM publications p LEFT JOIN runs ON runs.key = p.holder
WHERE ($1::text IS NULL OR p.type = $1) AND p.id > $2 ORDER BY p.id LIMIT $3;

-- name: add_reply
-- The answer to a request. There is no second.
INSERT INTO replies (request, data, at) VALUES ($1, $2, $3) ON CONFLICT (request) DO NOTHING;

-- name: reply
-- What was answered.
SELECT data FROM replies WHERE request = $1;

-- name: add_watch
-- A run wants to hear of the end of another.
INSERT INTO watches (target_key, watcher_key, watcher_generation, location) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING;

-- name: mark_watched
-- So that ending a run nobody watches costs nothing.
UPDATE runs SET watched = 1 WHERE key = $1;

-- name: watchers
-- Whom to tell of the end of a run.
SELECT watcher_key, watcher_generation, location FROM watches WHERE target_key = $1
ORDER BY watcher_key, watcher_generation, location;

-- name: forget_watches
-- They were told.
DELETE FROM watches WHERE target_key = $1;

-- name: end_of_run
-- What a run that has ended is known by: its last record.
SELECT {record} FROM journal WHERE run_key = $1 AND generation = $2 ORDER BY seq DESC LIMIT 1;

-- name: count_expired
-- Another one whose time was over before somebody read it.
INSERT INTO expired_events AS e (type, count) VALUES ($1, 1) ON CONFLICT (type) DO UPDATE SET count = e.count + 1;

-- name: expired_events
-- How many there were.
SELECT type, count FROM expired_events ORDER BY type;

-- name: late_items
-- Unread events whose time is over. Of runs that are on their way here, when they have come.
SELECT {item} FROM inbox
WHERE expires_at <= $1 AND NOT EXISTS (SELECT 1 FROM coming WHERE coming.run_key = inbox.run_key) ORDER BY expires_at LIMIT $2;

-- name: late_publications
-- Published events whose time is over.
SELECT id, type, single FROM publications WHERE holder IS NULL AND expires_at <= $1 ORDER BY expires_at LIMIT $2;

-- name: old_publications
-- Published events that were kept long enough.
SELECT id, type, single FROM publications WHERE holder IS NULL AND published_at < $1 ORDER BY published_at LIMIT $2;

-- name: remove_old_replies
-- The caller will not come any more.
DELETE FROM replies WHERE request IN (SELECT request FROM replies WHERE at < $1 ORDER BY at LIMIT $2);

-- name: remove_old_publication_keys
-- Nobody will repeat that any more.
DELETE FROM publication_keys WHERE dedup IN (SELECT dedup FROM publication_keys WHERE at < $1 ORDER BY at LIMIT $2);

-- == life of a run ======================================================================================

-- name: add_run
-- Create a run, unless its id is taken (then no row comes back).
INSERT INTO runs (id, generation, definition, status, epoch, owner, ready_at, next_seq, created_at, updated_at,
    finished_at, outcome, recoveries, input_digest, parent_key, parent_generation, parent_location, cancel_requested,
    wake_at, frontier, custom_status, state)
SELECT $1, 1, (SELECT id FROM definitions WHERE workflow = $2 AND version = $3), $4, $5, $6,
    CASE WHEN $6::text IS NULL AND $10::bigint IS NULL THEN {at_once} END, $7, $8, $9, $10::bigint,
    CASE WHEN $10::bigint IS NOT NULL THEN $4 END, 0, $11, $12, $13, $14, 0, $15, $16, $17, $18
ON CONFLICT (id) DO NOTHING
RETURNING key;

-- name: terminate_run
-- End a run from outside. The owner stays, so that it is told by `news`; the higher epoch refuses its late turns.
UPDATE runs SET status = 'cancelled', outcome = 'cancelled', epoch = epoch + 1, next_seq = next_seq + 1,
    updated_at = $1, finished_at = $1, wake_at = NULL, frontier = NULL, reason = NULL, ready_at = NULL,
    suspect_at = NULL
WHERE key = $2;

-- name: resume_run
-- Make a parked run claimable again.
UPDATE runs SET status = 'pending', ready_at = {at_once}, updated_at = greatest($1, updated_at), recoveries = 0,
    reason = NULL
WHERE id = $2 AND status = 'parked';

-- name: park_run
-- Stop a run until `resume`. `terminate` writes a record of the time this leaves behind, which may not go back.
UPDATE runs SET status = 'parked', owner = NULL, reason = $1, updated_at = greatest($2, updated_at), ready_at = NULL,
    suspect_at = NULL
WHERE key = $3 AND epoch = $4 AND status IN {claimable};

-- name: is_parked
-- Did an earlier call of the same worker park it already?
SELECT 1 FROM runs WHERE key = $1 AND epoch = $2 AND status = 'parked' AND reason = $3;

-- == changes by people ==================================================================================

-- name: pause_run
-- Stop a run until `unpause`. The owner stays, so that the item that tells it reaches it; the higher epoch refuses its
-- late turns.
UPDATE runs SET status = 'paused', epoch = epoch + 1, reason = $1, updated_at = greatest($2, updated_at),
    ready_at = NULL, suspect_at = NULL
WHERE key = $3 AND status IN {claimable};

-- name: unpause_run
-- Make a paused run claimable again.
UPDATE runs SET status = 'pending', owner = NULL, ready_at = {at_once}, updated_at = greatest($1, updated_at),
    recoveries = 0, reason = NULL
WHERE key = $2 AND status = 'paused';

-- name: drop_pause_items
-- They are for the worker that held the run; the worker that claims it next has nothing to do with them.
DELETE FROM inbox WHERE run_key = $1 AND kind = 'pause';

-- name: reopen_run
-- Take back the end of a failed run, if nothing moved since somebody looked.
UPDATE runs SET status = 'pending', outcome = NULL, epoch = epoch + 1, next_seq = next_seq + 1, finished_at = NULL,
    owner = NULL, ready_at = {at_once}, recoveries = 0, reason = NULL, frontier = $1, updated_at = $2
WHERE key = $3 AND epoch = $4 AND next_seq = $5 AND status = 'failed';

-- name: next_seq_of
-- How far a run is.
SELECT next_seq FROM runs WHERE key = $1;

-- name: restore_run
-- Create a run that has a past, unless its id is taken (then no row comes back).
INSERT INTO runs (id, generation, definition, status, outcome, epoch, owner, ready_at, wake_at, next_seq, created_at,
    updated_at, finished_at, recoveries, input_digest, cancel_requested, frontier, reason, custom_status, state, pruned)
SELECT $1, $2, (SELECT id FROM definitions WHERE workflow = $3 AND version = $4), $5,
    CASE WHEN $10::bigint IS NOT NULL THEN $5 END, 0, NULL, CASE WHEN $5 IN {claimable} THEN {at_once} END, $6, $7, $8,
    $9, $10::bigint, 0, $11, $12, $13, $14, $15, $16, $17
ON CONFLICT (id) DO NOTHING
RETURNING key;

-- name: delete_run
-- Remove a run, if it has ended and no worker holds it.
DELETE FROM runs WHERE key = $1 AND outcome IS NOT NULL AND owner IS NULL RETURNING id;

-- name: delete_journal
-- And its journals.
DELETE FROM journal WHERE run_key = $1;

-- name: delete_inbox
-- And what nobody read.
DELETE FROM inbox WHERE run_key = $1;

-- name: delete_keys
-- And what it remembered of events.
DELETE FROM inbox_keys WHERE run_key = $1;

-- name: delete_replies
-- And what it answered: all names that begin with $1, which ends with a newline. chr(11) comes after that.
DELETE FROM replies WHERE request >= $1 AND request < rtrim($1, chr(10)) || chr(11);

-- == moving: see store/move.py ==========================================================================

-- name: identity
-- Which data this is.
SELECT id FROM identity;

-- name: add_identity
-- Said by the first who asks.
INSERT INTO identity (id) VALUES (replace(gen_random_uuid()::text, '-', '')) ON CONFLICT DO NOTHING;

-- name: departure
-- Where everything here goes to.
SELECT target, target_id, at, gone FROM departures;

-- name: add_departure
-- It departs.
INSERT INTO departures (target, target_id, at, gone) VALUES ($1, $2, $3, 0);

-- name: remove_departure
-- It stays, unless it is gone.
DELETE FROM departures WHERE gone = 0;

-- name: leave
-- It is gone.
UPDATE departures SET gone = 1 WHERE at = $1;

-- name: fence_runs
-- Everything open leaves: late turns are refused, nothing can be claimed.
UPDATE runs SET epoch = epoch + 1, owner = NULL, ready_at = NULL, suspect_at = NULL,
    status = CASE WHEN status IN {claimable} THEN 'moved' ELSE status END
WHERE outcome IS NULL;

-- name: forget_owners
-- And nobody need be told of what was terminated.
UPDATE runs SET owner = NULL WHERE owner IS NOT NULL;

-- name: unfence_runs
-- It stays.
UPDATE runs SET status = 'pending', ready_at = {at_once}, recoveries = 0 WHERE outcome IS NULL AND status = 'moved';

-- name: forget_workers
-- They have nothing left here, and find out when they renew.
UPDATE workers SET reaped = true;

-- name: lock_everything
-- Before all of that: those who are in the middle of a change finish it first. Reading goes on.
LOCK TABLE types, publications, runs, inbox, publication_keys, dead_letters IN EXCLUSIVE MODE;

-- name: refuse_changes
-- From now on every change of a run or an event raises, in every process.
DO $$ BEGIN
    CREATE TRIGGER departed BEFORE INSERT OR UPDATE OR DELETE ON runs FOR EACH ROW EXECUTE FUNCTION perdure_refuse();
    CREATE TRIGGER departed BEFORE INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION perdure_refuse();
    CREATE TRIGGER departed BEFORE INSERT OR UPDATE ON publications FOR EACH ROW EXECUTE FUNCTION perdure_refuse();
    CREATE TRIGGER departed BEFORE INSERT ON publication_keys FOR EACH ROW EXECUTE FUNCTION perdure_refuse();
    CREATE TRIGGER departed BEFORE INSERT OR DELETE ON dead_letters FOR EACH ROW EXECUTE FUNCTION perdure_refuse();
END $$;

-- name: allow_changes
-- It stays.
DO $$ BEGIN
    DROP TRIGGER departed ON runs;
    DROP TRIGGER departed ON inbox;
    DROP TRIGGER departed ON publications;
    DROP TRIGGER departed ON publication_keys;
    DROP TRIGGER departed ON dead_letters;
END $$;

-- name: packed_records
-- The journals of the runs of a JSON list of keys.
SELECT j.run_key, j.generation, j.seq, j.at, j.kind, j.location, j.data, j."check" FROM jsonb_array_elements_text($1::jsonb) wanted
    CROSS JOIN LATERAL (SELECT * FROM journal WHERE run_key = wanted.value::bigint OFFSET 0) j
ORDER BY j.run_key, j.generation, j.seq;

-- name: packed_items
-- And what they have not read.
SELECT i.id, i.run_key, i.kind, i.type, i.data, i.sent_at, i.previous, i.policy, i.expires_at, i.publication, i.held,
    i.request FROM jsonb_array_elements_text($1::jsonb) wanted
    CROSS JOIN LATERAL (SELECT * FROM inbox WHERE run_key = wanted.value::bigint OFFSET 0) i ORDER BY i.run_key, i.id;

-- name: packed_keys
-- And the `dedup` keys they have seen.
SELECT k.run_key, k.dedup FROM jsonb_array_elements_text($1::jsonb) wanted
    CROSS JOIN LATERAL (SELECT * FROM inbox_keys WHERE run_key = wanted.value::bigint OFFSET 0) k ORDER BY k.run_key, k.dedup;

-- name: packed_waits
-- And what they have to do with which types of events.
SELECT w.run_key, w.type, w.wanted, w.held, w.since, w.shared FROM jsonb_array_elements_text($1::jsonb) wanted
    CROSS JOIN LATERAL (SELECT * FROM waits WHERE run_key = wanted.value::bigint OFFSET 0) w ORDER BY w.run_key, w.type;

-- name: packed_refusals
-- And which events they do not want.
SELECT f.run_key, f.type, f.publication FROM jsonb_array_elements_text($1::jsonb) wanted
    CROSS JOIN LATERAL (SELECT * FROM refusals WHERE run_key = wanted.value::bigint OFFSET 0) f ORDER BY f.run_key, f.type, f.publication;

-- name: packed_watchers
-- And who wants to hear of their end.
SELECT w.target_key, r.id, w.watcher_generation, w.location FROM jsonb_array_elements_text($1::jsonb) wanted
    CROSS JOIN LATERAL (SELECT * FROM watches WHERE target_key = wanted.value::bigint OFFSET 0) w
JOIN runs r ON r.key = w.watcher_key ORDER BY w.target_key, r.id, w.watcher_generation, w.location;

-- name: packed_coming
-- And, of those that are on their way here, how they will stand, and their relations.
SELECT c.run_key, c.status, c.relations FROM jsonb_array_elements_text($1::jsonb) wanted
    CROSS JOIN LATERAL (SELECT * FROM coming WHERE run_key = wanted.value::bigint OFFSET 0) c;

-- name: ids_of_keys
-- The ids of a JSON list of keys.
SELECT r.key, r.id FROM jsonb_array_elements_text($1::jsonb) wanted
    CROSS JOIN LATERAL (SELECT * FROM runs WHERE key = wanted.value::bigint OFFSET 0) r;

-- name: keys_of_ids
-- The keys of a JSON list of ids, and which of them are on their way here: from where.
SELECT r.id, r.key, c.source, c.brought FROM jsonb_array_elements_text($1::jsonb) wanted
    CROSS JOIN LATERAL (SELECT * FROM runs WHERE id = wanted.value OFFSET 0) r LEFT JOIN coming c ON c.run_key = r.key;

-- name: all_publications
-- Everything that was published and that somebody may still get.
SELECT p.id, p.type, p.data, p.published_at, p.policy, p.expires_at, p.last_run, r.id, p.spread_after
FROM publications p LEFT JOIN runs r ON r.key = p.holder ORDER BY p.id;

-- name: all_publication_keys
-- What was published before.
SELECT dedup, at FROM publication_keys ORDER BY dedup;

-- name: all_replies
-- What was answered.
SELECT request, data, at FROM replies ORDER BY request;

-- name: all_types
-- The types of events that were published, or are waited for.
SELECT type FROM publications UNION SELECT type FROM waits ORDER BY type;

-- name: first_item
-- The number that the next item gets; NULL: each run counts for itself.
SELECT NULL::bigint;

-- name: receive_runs
-- Runs from elsewhere, in the order given.
INSERT INTO runs (id, generation, definition, status, outcome, epoch, owner, wake_at, next_seq, created_at, updated_at,
    finished_at, recoveries, input_digest, cancel_requested, frontier, reason, custom_status, state, pruned, last_item)
SELECT n.id, n.generation, d.id, n.status, CASE WHEN n.finished_at IS NOT NULL THEN n.status END, 0, NULL, n.wake_at,
    n.next_seq, n.created_at, n.updated_at, n.finished_at, 0, n.digest, n.cancelled, n.frontier, n.reason, n.custom,
    n.state, n.pruned, n.last_item
FROM unnest($1::text[], $2::int[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::int[], $8::bigint[], $9::bigint[],
    $10::bigint[], $11::bytea[], $12::smallint[], $13::bytea[], $14::text[], $15::bytea[], $16::bytea[], $17::int[],
    $18::bigint[]) WITH ORDINALITY
    AS n(id, generation, workflow, version, status, wake_at, next_seq, created_at, updated_at, finished_at, digest,
        cancelled, frontier, reason, custom, state, pruned, last_item, place)
JOIN definitions d ON d.workflow = n.workflow AND d.version = n.version ORDER BY n.place;

-- name: receive_records
-- Their records.
INSERT INTO journal (run_key, generation, seq, at, kind, location, data, "check")
SELECT * FROM unnest($1::bigint[], $2::int[], $3::int[], $4::bigint[], $5::text[], $6::text[], $7::bytea[], $8::bigint[]);

-- name: receive_items
-- What they have not read.
INSERT INTO inbox (run_key, id, kind, type, data, sent_at, previous, policy, expires_at, publication, held, request)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::bytea[], $6::bigint[], $7::bigint[], $8::text[],
    $9::bigint[], $10::bigint[], $11::smallint[], $12::text[]);

-- name: receive_keys
-- What they have seen.
INSERT INTO inbox_keys (run_key, dedup) SELECT * FROM unnest($1::bigint[], $2::text[]);

-- name: receive_coming
-- And that they are on their way.
INSERT INTO coming (run_key, source, old_key, brought, status, relations)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::bytea[]);

-- name: confirm
-- It was compared with its original.
UPDATE coming SET mark = $1 WHERE run_key = $2 AND source = $3;

-- name: received
-- Runs on their way here.
SELECT c.run_key, r.id, c.mark FROM coming c JOIN runs r ON r.key = c.run_key
WHERE c.source = $1 AND c.run_key > $2 ORDER BY c.run_key LIMIT $3;

-- name: remove_coming_run
-- It is not to come.
DELETE FROM runs WHERE key = $1;

-- name: forget_coming
-- It was deleted.
DELETE FROM coming WHERE run_key = $1;

-- name: is_coming
-- Whether a run is on its way here.
SELECT 1 FROM coming WHERE run_key = $1;

-- name: coming_with_more
-- Those with relations, or open.
SELECT c.run_key, r.id, c.old_key, c.relations, (r.status = 'arriving')::int FROM coming c JOIN runs r ON r.key = c.run_key
WHERE c.source = $1 AND (c.relations IS NOT NULL OR r.finished_at IS NULL) ORDER BY c.old_key;

-- name: copies_coming
-- Their copies of published events, which have the numbers of the old store, below zero.
SELECT i.run_key, i.id, i.publication FROM coming c JOIN inbox i ON i.run_key = c.run_key
WHERE c.source = $1 AND i.publication < 0 ORDER BY i.run_key, i.id;

-- name: set_publication
-- The number that the event has here.
UPDATE inbox SET publication = $1 WHERE id = $2 AND run_key = $3;

-- name: receive_publication
-- An event that was published elsewhere.
INSERT INTO publications (type, single, data, published_at, policy, delivery, expires_at, last_run, holder, spread_after)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) RETURNING id;

-- name: receive_publication_key
-- And that it was.
INSERT INTO publication_keys (dedup, at) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: receive_dead_letter
-- An event that did not arrive elsewhere.
INSERT INTO dead_letters (type, data, policy, target, target_status, sent_at, died_at, reason)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

-- name: receive_expired
-- So many whose time was over elsewhere.
INSERT INTO expired_events AS e (type, count) VALUES ($1, $2)
ON CONFLICT (type) DO UPDATE SET count = e.count + excluded.count;

-- name: arrive_waits
-- What they have to do with events, by the numbers that those have here.
INSERT INTO waits (run_key, type, wanted, held, since, shared, refused)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::smallint[]);

-- name: arrive_refusals
-- Which they do not want.
INSERT INTO refusals (run_key, type, publication) SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[]);

-- name: arrive_watches
-- Who wants to hear of their end.
INSERT INTO watches (target_key, watcher_key, watcher_generation, location)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::text[]);

-- name: arrive_parents
-- Whose children they are.
UPDATE runs SET parent_key = t.parent_key, parent_generation = t.generation, parent_location = t.location
FROM unnest($1::bigint[], $2::int[], $3::text[], $4::bigint[]) AS t(parent_key, generation, location, key)
WHERE runs.key = t.key;

-- name: arrive_runs
-- What was open can be claimed, unless it is parked or paused.
UPDATE runs SET status = c.status, ready_at = CASE WHEN c.status IN {claimable} THEN {at_once} END
FROM coming c WHERE c.run_key = runs.key AND c.source = $1 AND runs.status = 'arriving';

-- name: count_all
-- How many runs there are.
SELECT count(*) FROM runs;

-- name: count_coming
-- How many are on their way here from a store.
SELECT count(*) FROM coming WHERE source = $1;

-- name: forget_source
-- Everything has come.
DELETE FROM coming WHERE source = $1;

-- name: add_arrived
-- From there.
INSERT INTO arrived (source, at) VALUES ($1, $2);

-- name: arrived
-- Whether it has.
SELECT 1 FROM arrived WHERE source = $1;

-- == workers ============================================================================================

-- name: claim_runs
-- Take the runs that are due, oldest first, of every definition that this worker knows. Rows that somebody else is
-- claiming are passed over: two claimers neither get the same run nor wait for each other. By an array of keys: a join
-- that was planned on empty tables reads all runs. $5 and $6: where the look begins, among runs that are due at once and
-- among those that waited for their time (see claims.py).
WITH due AS MATERIALIZED (
    SELECT x.key, x.ready_at FROM definitions d CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT key, ready_at FROM runs WHERE definition = d.id AND ready_at >= $5 AND ready_at < 0
            ORDER BY ready_at, key LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED
        ) at_once
        UNION ALL
        SELECT * FROM (
            SELECT key, ready_at FROM runs WHERE definition = d.id AND ready_at >= $6 AND ready_at <= $2
            ORDER BY ready_at, key LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED
        ) timed
    ) x
    WHERE d.workflow || chr(10) || d.version NOT IN (SELECT jsonb_array_elements_text($4::jsonb))
    ORDER BY x.ready_at, x.key LIMIT $3
), taken AS (
    UPDATE runs r SET owner = $1, epoch = epoch + 1, recoveries = recoveries + 1, ready_at = NULL, suspect_at = NULL,
        status = CASE WHEN status = 'pending' THEN 'running' ELSE status END
    WHERE r.key = ANY(ARRAY(SELECT key FROM due))
    RETURNING r.*
)
SELECT {taken} FROM taken r JOIN due ON due.key = r.key JOIN definitions d ON d.id = r.definition;

-- name: claim_trusted
-- The same with runs whose worker died with them once, each at its place: the oldest of either kind, then of both.
WITH fresh AS MATERIALIZED (
    SELECT x.key, x.ready_at FROM definitions d CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT key, ready_at FROM runs WHERE definition = d.id AND ready_at >= $5 AND ready_at < 0
            ORDER BY ready_at, key LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED
        ) at_once
        UNION ALL
        SELECT * FROM (
            SELECT key, ready_at FROM runs WHERE definition = d.id AND ready_at >= $6 AND ready_at <= $2
            ORDER BY ready_at, key LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED
        ) timed
    ) x
    WHERE d.workflow || chr(10) || d.version NOT IN (SELECT jsonb_array_elements_text($4::jsonb))
    ORDER BY x.ready_at, x.key LIMIT $3
), suspect AS MATERIALIZED (
    SELECT runs.key, suspect_at AS ready_at FROM runs
    WHERE suspect_at <= $2 AND recoveries = 1 AND definition IN (SELECT id FROM definitions
        WHERE workflow || chr(10) || version NOT IN (SELECT jsonb_array_elements_text($4::jsonb)))
    ORDER BY suspect_at, key LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED
), due AS MATERIALIZED (
    SELECT key, ready_at FROM (TABLE fresh UNION ALL TABLE suspect) both_kinds ORDER BY ready_at, key LIMIT $3
), taken AS (
    UPDATE runs r SET owner = $1, epoch = epoch + 1, recoveries = recoveries + 1, ready_at = NULL, suspect_at = NULL,
        status = CASE WHEN status = 'pending' THEN 'running' ELSE status END
    WHERE r.key = ANY(ARRAY(SELECT key FROM due))
    RETURNING r.*
)
SELECT {taken} FROM taken r JOIN due ON due.key = r.key JOIN definitions d ON d.id = r.definition;

-- name: claim_suspects
-- The same for runs whose workers died with them more than $5 times, the worst first.
WITH due AS MATERIALIZED (
    SELECT runs.key, suspect_at AS ready_at FROM runs
    WHERE suspect_at <= $2 AND recoveries > $5 AND definition IN (SELECT id FROM definitions
        WHERE workflow || chr(10) || version NOT IN (SELECT jsonb_array_elements_text($4::jsonb)))
    ORDER BY recoveries DESC, suspect_at, key LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED
), taken AS (
    UPDATE runs r SET owner = $1, epoch = epoch + 1, recoveries = recoveries + 1, ready_at = NULL, suspect_at = NULL,
        status = CASE WHEN status = 'pending' THEN 'running' ELSE status END
    WHERE r.key = ANY(ARRAY(SELECT key FROM due))
    RETURNING r.*
)
SELECT {taken} FROM taken r JOIN due ON due.key = r.key JOIN definitions d ON d.id = r.definition;

-- name: acquit_run
-- A run did not kill its worker: claims of it that count as deaths, from now on.
UPDATE runs SET recoveries = least(recoveries, $1) WHERE key = $2 AND epoch = $3 AND owner = $4;

-- name: count_due
-- How many runs are due, as far as it is worth counting ($2), how many workers may take them, and the database's time. One
-- definition after the other, as claims do. $3 and $4: where the look begins, as in `claim_runs`.
SELECT (SELECT count(*) FROM (
        SELECT 1 FROM definitions d CROSS JOIN LATERAL (
            (SELECT 1 FROM runs WHERE definition = d.id AND ready_at >= $3 AND ready_at < 0 LIMIT $2)
            UNION ALL
            (SELECT 1 FROM runs WHERE definition = d.id AND ready_at >= $4 AND ready_at <= $1 LIMIT $2)
        ) x LIMIT $2
    ) due) + (SELECT count(*) FROM (SELECT 1 FROM runs WHERE suspect_at <= $1 LIMIT $2) suspects),
    (SELECT count(*) FROM workers
        WHERE NOT reaped AND expires_at >= clock_timestamp() AND draining_since IS NULL), {now}, {at_once};

-- name: release_runs
-- Give runs back until `ready_at`, or at once if an item came that the worker has not seen. That is read off the run
-- itself: a look into the inbox would miss an item whose transaction this one had to wait for. $2 is a JSON list of
-- `[key, epoch, seen_item, ready_at, reason]`.
UPDATE runs r SET owner = NULL, recoveries = 0, reason = given.value ->> 4,
    status = CASE WHEN status = 'running' THEN 'pending' ELSE status END, suspect_at = NULL,
    ready_at = CASE WHEN r.last_item > (given.value ->> 2)::bigint OR (given.value ->> 3)::bigint <= 0
        THEN {at_once} ELSE (given.value ->> 3)::bigint END
FROM jsonb_array_elements($2::jsonb) AS given(value)
WHERE r.key = (given.value ->> 0)::bigint AND r.owner = $1 AND r.epoch = (given.value ->> 1)::int
    AND status IN {claimable};

-- name: let_go
-- The owner has seen that somebody terminated or paused its runs; the same list.
UPDATE runs SET owner = NULL
WHERE key IN (SELECT (value ->> 0)::bigint FROM jsonb_array_elements($2::jsonb)) AND owner = $1
    AND status NOT IN {claimable};

-- name: runs_of_owner
-- A part of what a worker owns, locked: what arrives for these from now on waits until they are free.
SELECT key FROM runs WHERE owner = $1 ORDER BY key LIMIT $2 FOR NO KEY UPDATE;

-- name: free_runs
-- Their worker is gone: what only waited goes on waiting, the rest is due at once. $1 is 0 for a worker that left in
-- order (which is no recovery) and 1 for one that died. A statement of its own after the locks, so that it sees every
-- item that arrived before them.
UPDATE runs SET owner = NULL, recoveries = recoveries * $1::int,
    status = CASE WHEN status = 'running' THEN 'pending' ELSE status END,
    ready_at = CASE WHEN status IN {claimable} AND recoveries * $1::int = 0 THEN {due_when_freed} END,
    suspect_at = CASE WHEN status IN {claimable} AND recoveries * $1::int > 0 THEN {due_when_freed} END
WHERE key = ANY($3::bigint[]);

-- name: orphaned_owners
-- Owners that are not registered (their row was lost or they never had one). From one owner to the next by the index:
-- there may be many runs.
WITH RECURSIVE owners AS (
    (SELECT owner FROM runs WHERE owner IS NOT NULL ORDER BY owner LIMIT 1)
    UNION ALL
    SELECT (SELECT runs.owner FROM runs WHERE runs.owner > owners.owner ORDER BY runs.owner LIMIT 1) FROM owners
    WHERE owners.owner IS NOT NULL
)
SELECT owner FROM owners WHERE owner IS NOT NULL AND owner <> $1 AND owner NOT IN (SELECT id FROM workers);

-- name: runs_held
-- The runs a worker may work on.
SELECT key, epoch FROM runs WHERE owner = $1 AND status IN {claimable};

-- name: fresh_items
-- What arrived for a worker's runs since its cursor: the oldest transaction that was under way when it was read. Numbers
-- would not do: they become visible in another order than they are given.
SELECT {item} FROM inbox WHERE owner = $2 AND xid >= $1::text::xid8 ORDER BY run_key, id;

-- name: oldest_transaction
-- The next cursor. Of the same snapshot as the items.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

-- name: ended_under_owner
-- Runs of a worker that somebody else ended.
SELECT key FROM runs WHERE owner = $1 AND outcome IS NOT NULL;

-- == reading ============================================================================================

-- name: run_by_id
-- One run.
SELECT {run} FROM {runs} WHERE r.id = $1;

-- name: run_by_key
-- One run.
SELECT {run} FROM {runs} WHERE r.key = $1;

-- name: runs_by_keys
-- The runs of a JSON list of keys, in its order. OFFSET 0 keeps the plan from reading all runs for a join.
SELECT {run} FROM jsonb_array_elements_text($1::jsonb) WITH ORDINALITY AS wanted(key, place)
    CROSS JOIN LATERAL (SELECT * FROM runs WHERE key = wanted.key::bigint OFFSET 0) r
    JOIN definitions d ON d.id = r.definition ORDER BY wanted.place;

-- name: records
-- A part of a journal.
SELECT {record} FROM journal WHERE run_key = $1 AND generation = $2 AND seq > $3 ORDER BY seq LIMIT $4;

-- name: whole_inbox
-- Everything unread.
SELECT {item} FROM inbox WHERE run_key = $1;

-- name: items
-- The first items of an inbox, in the order of arrival.
SELECT {item} FROM inbox WHERE run_key = $1 ORDER BY id LIMIT $2;

-- name: list_all
-- A page of runs of any status, newest first.
SELECT {run} FROM {runs}
WHERE r.key < $1 AND ($2::text IS NULL OR d.workflow = $2) ORDER BY r.key DESC LIMIT $3;

-- name: list_open
-- A page of open runs. $2 is a JSON list of statuses.
SELECT {run} FROM {runs}
WHERE r.outcome IS NULL AND r.key < $1 AND r.status IN (SELECT jsonb_array_elements_text($2::jsonb))
    AND ($3::text IS NULL OR d.workflow = $3) ORDER BY r.key DESC LIMIT $4;

-- name: list_ended
-- A page of ended runs of one status.
SELECT {run} FROM {runs}
WHERE r.outcome = $2 AND r.key < $1
    AND ($3::text IS NULL OR d.workflow = $3) AND ($5::bigint IS NULL OR r.finished_at < $5)
ORDER BY r.key DESC LIMIT $4;

-- name: list_by_prefix
-- A page of runs whose ids lie in a range (all ids with one prefix do). An empty list of statuses means any.
SELECT {run} FROM {runs}
WHERE r.id >= $2 AND ($3::text IS NULL OR r.id < $3) AND r.key < $1 AND ($4::text IS NULL OR d.workflow = $4)
    AND ($5 = '[]' OR r.status IN (SELECT jsonb_array_elements_text($5::jsonb)))
    AND ($6::bigint IS NULL OR r.parent_key = $6) AND ($8::bigint IS NULL OR r.finished_at < $8)
ORDER BY r.key DESC LIMIT $7;

-- name: list_children
-- A page of the children of one run.
SELECT {run} FROM {runs}
WHERE r.parent_key = $2 AND r.key < $1 AND ($3::text IS NULL OR d.workflow = $3)
    AND ($4 = '[]' OR r.status IN (SELECT jsonb_array_elements_text($4::jsonb)))
    AND ($6::bigint IS NULL OR r.finished_at < $6)
ORDER BY r.key DESC LIMIT $5;

-- name: count_open
-- How many open runs there are of each status.
SELECT status, count(*) FROM runs WHERE outcome IS NULL GROUP BY status;

-- name: count_ended
-- How many ended runs there are of each status, from the index alone.
SELECT outcome, count(*) FROM runs WHERE outcome IS NOT NULL GROUP BY outcome;

-- == the commit lane: see batches.py ====================================================================

-- name: lane_step
-- `advance_run` and `add_record` for one turn from step to step. NULL: it was accepted.
WITH moved AS (
    UPDATE runs SET status = 'running', next_seq = $3::int + 1, updated_at = $4::bigint, wake_at = NULL,
        frontier = $5::bytea, recoveries = 0, reason = NULL, ready_at = coalesce(ready_at, suspect_at),
        suspect_at = NULL
    WHERE key = $1::bigint AND epoch = $2::int AND generation = 1 AND next_seq = $3::int AND status IN {claimable}
        AND (owner = $9::text OR owner IS NULL)
    RETURNING key
), written AS (
    INSERT INTO journal (run_key, generation, seq, at, kind, location, data, "check")
    SELECT key, 1, $3::int, $4::bigint, 'step_done', $6::text, $7::bytea, $8::bigint FROM moved
)
SELECT CASE WHEN count(*) = 0 THEN '{}' END FROM moved;

-- name: lane_step_seek
-- The same for a run with many turns. Also answers with the place of the row, for the next turn of the run.
WITH moved AS (
    UPDATE runs SET status = 'running', next_seq = $3::int + 1, updated_at = $4::bigint, wake_at = NULL,
        frontier = $5::bytea, recoveries = 0, reason = NULL, ready_at = coalesce(ready_at, suspect_at),
        suspect_at = NULL
    WHERE key = $1::bigint AND epoch = $2::int AND generation = 1 AND next_seq = $3::int AND status IN {claimable}
        AND (owner = $9::text OR owner IS NULL)
    RETURNING key, ctid
), written AS (
    INSERT INTO journal (run_key, generation, seq, at, kind, location, data, "check")
    SELECT key, 1, $3::int, $4::bigint, 'step_done', $6::text, $7::bytea, $8::bigint FROM moved
)
SELECT CASE WHEN count(*) = 0 THEN '{}' END, max(ctid)::text FROM moved;

-- name: lane_step_here
-- The same by the place of the row ($10), which the turn before has told: the index leads to every version of the row that
-- an old snapshot keeps, and each turn adds one. If the row has moved since, the turn goes the general way.
WITH moved AS (
    UPDATE runs SET status = 'running', next_seq = $3::int + 1, updated_at = $4::bigint, wake_at = NULL,
        frontier = $5::bytea, recoveries = 0, reason = NULL, ready_at = coalesce(ready_at, suspect_at),
        suspect_at = NULL
    WHERE ctid = $10::tid
        AND key = $1::bigint AND epoch = $2::int AND generation = 1 AND next_seq = $3::int AND status IN {claimable}
        AND (owner = $9::text OR owner IS NULL)
    RETURNING key, ctid
), written AS (
    INSERT INTO journal (run_key, generation, seq, at, kind, location, data, "check")
    SELECT key, 1, $3::int, $4::bigint, 'step_done', $6::text, $7::bytea, $8::bigint FROM moved
)
SELECT CASE WHEN count(*) = 0 THEN '{}' END, max(ctid)::text FROM moved;

-- name: lane_steps
-- The same for many, each at most once. NULL: all were accepted; otherwise the keys of those that were.
WITH moved AS (
    UPDATE runs r SET status = 'running', next_seq = t.seq + 1, updated_at = t.at, wake_at = NULL,
        frontier = t.frontier, recoveries = 0, reason = NULL, ready_at = coalesce(r.ready_at, r.suspect_at),
        suspect_at = NULL
    FROM unnest($1::bigint[], $2::int[], $3::int[], $4::bigint[], $5::bytea[], $6::text[], $7::bytea[], $8::bigint[])
        AS t(key, epoch, seq, at, frontier, location, data, "check")
    WHERE r.key = t.key AND r.epoch = t.epoch AND r.generation = 1 AND r.next_seq = t.seq
        AND r.status IN {claimable} AND (r.owner = $9::text OR r.owner IS NULL)
    RETURNING r.key, t.seq, t.at, t.location, t.data, t."check"
), written AS (
    INSERT INTO journal (run_key, generation, seq, at, kind, location, data, "check")
    SELECT key, 1, seq, at, 'step_done', location, data, "check" FROM moved
)
SELECT CASE WHEN count(*) < $10::int THEN coalesce(array_agg(key)::text, '{}') END FROM moved;

-- name: lane_turns
-- `advance_run` and `add_record` for other plain turns that leave their runs open.
WITH moved AS (
    UPDATE runs r SET status = t.status, next_seq = t.following, updated_at = t.at, wake_at = t.wake_at,
        frontier = t.frontier, custom_status = coalesce(t.custom_status, r.custom_status),
        state = coalesce(t.state, r.state), reason = NULL,
        recoveries = CASE WHEN t.following > r.next_seq THEN 0 ELSE r.recoveries END,
        ready_at = CASE WHEN t.following > r.next_seq THEN coalesce(r.ready_at, r.suspect_at) ELSE r.ready_at END,
        suspect_at = CASE WHEN t.following > r.next_seq THEN NULL ELSE r.suspect_at END
    FROM unnest($1::bigint[], $2::int[], $3::int[], $4::int[], $5::text[], $6::int[], $7::bigint[], $8::bigint[],
        $9::bytea[], $10::bytea[], $11::bytea[])
        AS t(key, epoch, generation, seq, status, following, at, wake_at, frontier, custom_status, state)
    WHERE r.key = t.key AND r.epoch = t.epoch AND r.generation = t.generation AND r.next_seq = t.seq
        AND r.status IN {claimable} AND (r.owner = $19::text OR r.owner IS NULL)
    RETURNING r.key, r.generation
), written AS (
    INSERT INTO journal (run_key, generation, seq, at, kind, location, data, "check")
    SELECT w.key, moved.generation, w.seq, w.at, w.kind, w.location, w.data, w."check"
    FROM unnest($12::bigint[], $13::int[], $14::bigint[], $15::text[], $16::text[], $17::bytea[], $18::bigint[])
        AS w(key, seq, at, kind, location, data, "check") JOIN moved ON moved.key = w.key
)
SELECT CASE WHEN count(*) < $20::int THEN coalesce(array_agg(key)::text, '{}') END FROM moved;

-- name: lane_ends
-- `finish_run` and `add_record` for plain turns that end their runs, where nobody is to be told and nothing was ever
-- sent: otherwise more is to be done than this.
WITH moved AS (
    UPDATE runs r SET status = t.status, outcome = t.status, next_seq = t.following, updated_at = t.at,
        finished_at = t.at, wake_at = NULL, owner = NULL, frontier = t.frontier,
        custom_status = coalesce(t.custom_status, r.custom_status), state = coalesce(t.state, r.state),
        recoveries = 0, reason = NULL, ready_at = NULL, suspect_at = NULL
    FROM unnest($1::bigint[], $2::int[], $3::int[], $4::int[], $5::text[], $6::int[], $7::bigint[], $8::bigint[],
        $9::bytea[], $10::bytea[], $11::bytea[])
        AS t(key, epoch, generation, seq, status, following, at, wake_at, frontier, custom_status, state)
    WHERE r.key = t.key AND r.epoch = t.epoch AND r.generation = t.generation AND r.next_seq = t.seq
        AND r.status IN {claimable} AND (r.owner = $19::text OR r.owner IS NULL)
        AND r.last_item = 0 AND r.watched = 0
    RETURNING r.key, r.generation
), written AS (
    INSERT INTO journal (run_key, generation, seq, at, kind, location, data, "check")
    SELECT w.key, moved.generation, w.seq, w.at, w.kind, w.location, w.data, w."check"
    FROM unnest($12::bigint[], $13::int[], $14::bigint[], $15::text[], $16::text[], $17::bytea[], $18::bigint[])
        AS w(key, seq, at, kind, location, data, "check") JOIN moved ON moved.key = w.key
)
SELECT CASE WHEN count(*) < $20::int THEN coalesce(array_agg(key)::text, '{}') END FROM moved;

-- name: lane_runs
-- `add_run` and `add_record` for runs whose first turn only opens them, or is also their last. By id, so that two workers
-- that create the same runs do not wait for each other in a circle. Answers with places and keys of those that were created.
WITH new AS MATERIALIZED (
    SELECT n.*, d.id AS definition FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int[],
        $7::bigint[], $8::bigint[], $9::bigint[], $10::int[], $11::bigint[], $12::bytea[], $13::bytea[], $14::bytea[],
        $15::bytea[]) WITH ORDINALITY
        AS n(run_id, workflow, version, status, owner, epoch, created_at, updated_at, finished_at, next_seq, wake_at,
            digest, frontier, custom_status, state, place)
    JOIN definitions d ON d.workflow = n.workflow AND d.version = n.version
), added AS (
    INSERT INTO runs (id, generation, definition, status, epoch, owner, ready_at, next_seq, created_at, updated_at,
        finished_at, outcome, recoveries, input_digest, cancel_requested, wake_at, frontier, custom_status, state)
    SELECT run_id, 1, definition, status, epoch, owner,
        CASE WHEN owner IS NULL AND finished_at IS NULL THEN {at_once} END, next_seq, created_at, updated_at,
        finished_at, CASE WHEN finished_at IS NOT NULL THEN status END, 0, digest, 0, wake_at, frontier,
        custom_status, state
    FROM new ORDER BY run_id
    ON CONFLICT (id) DO NOTHING
    RETURNING key, id
), placed AS MATERIALIZED (
    SELECT added.key, new.place FROM added JOIN new ON new.run_id = added.id
), written AS (
    INSERT INTO journal (run_key, generation, seq, at, kind, location, data, "check")
    SELECT placed.key, 1, w.seq, w.at, w.kind, w.location, w.data, w."check"
    FROM unnest($16::bigint[], $17::int[], $18::bigint[], $19::text[], $20::text[], $21::bytea[], $22::bigint[])
        AS w(place, seq, at, kind, location, data, "check") JOIN placed ON placed.place = w.place
)
SELECT array_agg(place ORDER BY place)::text, array_agg(key ORDER BY place)::text FROM placed;

-- == workers: see leases.py =============================================================================

-- name: add_worker
-- A worker starts (or says so again, after its first call got no answer).
WITH told AS (
    INSERT INTO served (worker, definitions) VALUES ($1, $7)
    ON CONFLICT (worker) DO UPDATE SET definitions = excluded.definitions
)
INSERT INTO workers (id, name, host, pid, started_at, release, renewed_at, expires_at, silence)
VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp(), clock_timestamp() + make_interval(secs => $8::float8),
    make_interval(secs => $9::float8))
ON CONFLICT (id) DO UPDATE SET renewed_at = excluded.renewed_at, expires_at = excluded.expires_at
WHERE NOT workers.reaped;

-- name: drain_worker
-- A worker has begun to leave.
UPDATE workers SET draining_since = $2 WHERE id = $1 AND draining_since IS NULL;

-- name: number_of_worker
-- Under which its renewing connection holds a lock: free as soon as the process is gone. And the database's time.
SELECT number, {now} FROM workers WHERE id = $1;

-- name: store_time
-- The database's time, for those that have no worker here.
SELECT {now};

-- name: hold_life
-- While this session lives, so does the worker.
SELECT CASE WHEN pg_try_advisory_lock(hashtext('perdure ' || current_schema()), $1::int) THEN 1 ELSE 0 END;

-- name: renew
-- The worker lives. No row: it was found dead, and its runs are given to others. $3: whether this session holds its lock.
-- Answers with the database's time and past: behind a pooler a standby may take over without a connection that breaks.
UPDATE workers SET renewed_at = clock_timestamp(), holds_lock = $3::int > 0,
    expires_at = clock_timestamp() + make_interval(secs => $2::float8)
WHERE id = $1 AND NOT reaped RETURNING {now}, {history};

-- name: mark_dead
-- Workers whose lease is over, or that missed a heartbeat and whose process has let go of its lock. From here on they
-- cannot renew: what they hold is freed page by page, also by others should this process die meanwhile.
UPDATE workers SET reaped = true
WHERE NOT reaped AND id <> $1 AND (
    expires_at < clock_timestamp()
    OR (holds_lock AND renewed_at + silence < clock_timestamp()
        AND pg_try_advisory_xact_lock(hashtext('perdure ' || current_schema()), number))
);

-- name: dead_workers
-- The same, only to look: those that are marked, and those whose lease is over.
SELECT id FROM workers WHERE reaped OR expires_at < clock_timestamp();

-- name: marked_workers
-- Those whose runs are to be freed.
SELECT id FROM workers WHERE reaped AND id <> $1;

-- name: remove_worker
-- A worker left, or nothing is left of one that was found dead.
WITH forgotten AS (DELETE FROM served WHERE worker = $1)
DELETE FROM workers WHERE id = $1;

-- name: all_workers
-- For people.
SELECT w.id, w.name, w.host, w.pid, w.started_at, w.release, coalesce(s.definitions, '[]')
FROM workers w LEFT JOIN served s ON s.worker = w.id ORDER BY w.started_at, w.id;

-- name: standings
-- How workers stand: how many open runs each has, since when it has been leaving, and its lease: now, when it was renewed,
-- when it counts as silent, from when on others take its runs, when it ends. They need not wait for the end of the lease if
-- its process has let go of its lock, nor for anything if it was found dead.
WITH held AS MATERIALIZED (
    SELECT objid::bigint AS number FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 2 AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND classid = (hashtext('perdure ' || current_schema())::bigint & 4294967295)::oid
), leases AS (
    SELECT id, number, draining_since, renewed_at, renewed_at + silence AS silent_at,
        CASE WHEN reaped THEN renewed_at
            WHEN holds_lock AND number NOT IN (SELECT number FROM held) THEN least(renewed_at + silence, expires_at)
            ELSE expires_at END AS take_over_at,
        expires_at
    FROM workers
)
SELECT id, (SELECT count(*) FROM runs WHERE owner = leases.id AND status IN {claimable}), draining_since, {now},
    (extract(epoch FROM renewed_at) * 1000000)::bigint, (extract(epoch FROM silent_at) * 1000000)::bigint,
    (extract(epoch FROM greatest(take_over_at, to_timestamp(0))) * 1000000)::bigint,
    (extract(epoch FROM greatest(expires_at, to_timestamp(0))) * 1000000)::bigint
FROM leases;

-- name: expire_worker
-- As if its lease were over: for tests of what follows.
UPDATE workers SET expires_at = '-infinity' WHERE id = $1;

-- == the database itself ================================================================================

-- name: server_encoding
-- What texts can hold.
SELECT current_setting('server_encoding');

-- name: has_schema
-- Whether ours is there.
SELECT count(*) FROM pg_namespace WHERE nspname = $1;

-- name: has_table
-- Whether a table of ours is there.
SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2;

-- name: schema_version
-- How far it was migrated.
SELECT number FROM perdure_schema;

-- name: set_schema_version
-- It was migrated.
UPDATE perdure_schema SET number = $1;

-- name: try_migration_lock
-- One process at a time, until the end of its transaction.
SELECT CASE WHEN pg_try_advisory_xact_lock(hashtext('perdure migration'), hashtext($1)) THEN 1 ELSE 0 END;

-- name: migration_lock_holder
-- Who has it. Of another user's session a role without pg_read_all_stats is shown little more than who that is.
SELECT 'session ' || a.pid::text || coalesce(' ' || quote_literal(nullif(a.application_name, '')), '')
    || ' of user ' || quote_literal(a.usename) || coalesce(' from ' || host(a.client_addr), '')
    || coalesce(', ' || nullif(a.state, ''), '') || coalesce(', since ' || to_char(a.xact_start, 'HH24:MI:SS'), '')
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.classid = (hashtext('perdure migration')::bigint & 4294967295)::oid
    AND l.objid = (hashtext($1)::bigint & 4294967295)::oid AND l.granted;

-- name: facts
-- What each new connection asks: whether the server takes changes, which session this is, and the past of the database: the
-- cluster and its timeline, which is a new one after a standby has taken over; and how many connections it takes. Needs no
-- schema and no privilege.
SELECT pg_is_in_recovery()::int, pg_backend_pid(), {history}, current_setting('max_connections');

-- name: awaited_standbys
-- Whether a session waits for a synchronous standby to confirm its commit: which ones would do. Any user may look at its
-- own sessions.
SELECT current_setting('synchronous_standby_names') FROM pg_stat_activity WHERE pid = $1::int AND wait_event = 'SyncRep';

-- name: confirm_what_is_there
-- A record that changes nothing. A transaction that only found what an earlier one has done would be over at once; with this
-- in it, it waits for the standby as that one did, or should have done.
SELECT 1 FROM pg_logical_emit_message(true, 'perdure', '');

-- name: local_settings
-- Our settings for one transaction: behind a pooler those of the session would be somebody else's.
SELECT set_config('search_path', $1, true), set_config('synchronous_commit', $2, true),
    set_config('lock_timeout', $3, true), set_config('idle_in_transaction_session_timeout', $4, true),
    set_config('enable_seqscan', 'off', true),
    set_config('random_page_cost', '1.0', true), set_config('jit', 'off', true);

-- name: notify
-- Wake those that listen.
SELECT 1 FROM pg_notify($1, '');
