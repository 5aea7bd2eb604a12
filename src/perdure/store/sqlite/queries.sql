-- Every statement of the SQLite store. `queries.py` splits this file at the `-- name:` lines; the line below a
-- name says what the statement is for. Parameters are positional, in the order in which they appear, or
-- numbered where one is used twice.
-- A name in braces stands for a fragment, which is written once, here at the top.

-- fragment: claimable
-- The statuses of runs that a worker may claim, and that turns are accepted for: `model.CLAIMABLE`. In this order, which
-- is that of the partial indexes in schema.sql: SQLite uses them only for the same words.
('pending', 'running', 'waiting')

-- fragment: receiver
-- What must be known of a run before something is put into its inbox: `inbox.Receiver`.
key, id, status, owner, cancel_requested, last_item

-- fragment: publication
-- A published event as the log has it: `events.Publication`.
id, type, data, published_at, policy, delivery, expires_at, last_run, spread_after

-- fragment: record
-- A record: `kernel.journal.Row`.
seq, at, kind, location, data, "check"

-- == turns ==============================================================================================

-- name: advance_run
-- The common turn: the run stays open. No entry of any index changes (see schema.sql). A record is progress, a frontier
-- alone is not: a run whose worker dies again and again must not be cleared by having been loaded.
UPDATE runs SET status = ?1, next_seq = ?2, updated_at = ?3, wake_at = ?4, frontier = ?5,
    custom_status = coalesce(?6, custom_status), state = coalesce(?7, state),
    recoveries = iif(?2 > next_seq, 0, recoveries), reason = NULL
WHERE key = ?8 AND epoch = ?9 AND generation = ?10 AND next_seq = ?11 AND status IN {claimable}
    AND (owner IS NULL OR owner = ?12);

-- name: finish_run
-- The last turn: terminal, nobody's, nothing to wake for.
UPDATE runs SET status = ?1, next_seq = ?2, updated_at = ?3, finished_at = ?3, wake_at = NULL, owner = NULL,
    frontier = ?4, custom_status = coalesce(?5, custom_status), state = coalesce(?6, state), recoveries = 0,
    reason = NULL
WHERE key = ?7 AND epoch = ?8 AND generation = ?9 AND next_seq = ?10 AND status IN {claimable}
    AND (owner IS NULL OR owner = ?11);

-- name: leaves_something
-- Whether something ever came for a run that has just ended, or somebody wants to hear of its end: without either,
-- nothing else is left to do. Not a RETURNING of the above: SQLite makes a table in memory for that, each time.
SELECT last_item OR watched FROM runs WHERE key = ?;

-- name: continue_run
-- `continue_as`: the next generation under the same id, owner and epoch.
UPDATE runs SET status = ?, next_seq = 2, generation = generation + 1, workflow = ?, version = ?, updated_at = ?,
    wake_at = ?, frontier = ?, custom_status = coalesce(?, custom_status), state = coalesce(?, state),
    recoveries = 0, reason = NULL, cancel_requested = 0, pruned = 0
WHERE key = ? AND epoch = ? AND generation = ? AND next_seq = ? AND status IN {claimable}
    AND (owner IS NULL OR owner = ?);

-- name: add_record
-- Append one record.
INSERT INTO journal (run_key, generation, seq, at, kind, location, data, "check") VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: prune_record
-- Delete a record that no replay needs any more.
DELETE FROM journal WHERE run_key = ? AND generation = ? AND seq = ?;

-- name: note_pruned
-- How many are gone, so that a record which is missing for any other reason is noticed. A run that has just continued
-- counts anew.
UPDATE runs SET pruned = pruned + ? WHERE key = ? AND generation = ?;

-- name: position_of_run
-- What a refused turn is compared with.
SELECT epoch, generation, next_seq, status, owner FROM runs WHERE key = ?;

-- == bulk: see bulk.py ===================================================================================

-- name: bulk_view
-- What the trigger below is told: lists of rows as JSON, how many of them must fit, whose turns they are, and `bytes`:
-- records, frontiers and the like one after the other, each found by its offset and its length, so that JSON need not carry them.
CREATE TEMP VIEW bulk AS
SELECT NULL AS stepped, NULL AS advanced, NULL AS finished, NULL AS records, NULL AS runs, NULL AS bytes,
    0 AS stepped_count, 0 AS advanced_count, 0 AS finished_count, 0 AS with_more, '' AS worker;

-- name: bulk_trigger
-- `advance_run`, `finish_run`, `add_record` and `add_run` for many. Nothing but the fence decides which rows change; if
-- one does not, nothing does. New runs are added in the order given, so that their keys follow one another.
-- Half of the time goes into looking into rows, so that nothing is looked up twice, and paths are written out:
-- a number would be made one for each row. `with_more`: whether a run of the group has a status or a state of its own.
CREATE TEMP TRIGGER bulk_carry_out INSTEAD OF INSERT ON bulk BEGIN
    UPDATE runs SET status = 'running', next_seq = next_seq + 1, updated_at = turn.value ->> '$[3]', wake_at = NULL,
        frontier = substr(NEW.bytes, turn.value ->> '$[4]', turn.value ->> '$[5]'), recoveries = 0, reason = NULL
    FROM jsonb_each(NEW.stepped) AS turn
    WHERE runs.key = turn.value ->> '$[0]' AND epoch = turn.value ->> '$[1]' AND generation = 1
        AND next_seq = turn.value ->> '$[2]' AND status IN {claimable} AND (owner IS NULL OR owner = NEW.worker);
    SELECT RAISE(ABORT, 'a step does not fit') WHERE changes() <> NEW.stepped_count;
    INSERT INTO journal (run_key, generation, seq, at, kind, location, data, "check")
    SELECT value ->> '$[0]', 1, value ->> '$[2]', value ->> '$[3]', 'step_done', value ->> '$[6]',
        substr(NEW.bytes, value ->> '$[8]', value ->> '$[9]'), value ->> '$[7]'
    FROM jsonb_each(NEW.stepped);
    UPDATE runs SET status = turn.value ->> '$[0]', next_seq = turn.value ->> '$[1]', updated_at = turn.value ->> '$[2]',
        wake_at = turn.value ->> '$[3]', frontier = substr(NEW.bytes, turn.value ->> '$[8]', turn.value ->> '$[9]'),
        custom_status = iif(NEW.with_more,
            coalesce(substr(NEW.bytes, turn.value ->> '$[10]', turn.value ->> '$[11]'), custom_status), custom_status),
        state = iif(NEW.with_more,
            coalesce(substr(NEW.bytes, turn.value ->> '$[12]', turn.value ->> '$[13]'), state), state),
        recoveries = iif(turn.value ->> '$[1]' > next_seq, 0, recoveries), reason = NULL
    FROM jsonb_each(NEW.advanced) AS turn
    WHERE runs.key = turn.value ->> '$[4]' AND epoch = turn.value ->> '$[5]' AND generation = turn.value ->> '$[6]'
        AND next_seq = turn.value ->> '$[7]' AND status IN {claimable} AND (owner IS NULL OR owner = NEW.worker);
    SELECT RAISE(ABORT, 'a turn does not fit') WHERE changes() <> NEW.advanced_count;
    UPDATE runs SET status = turn.value ->> '$[0]', next_seq = turn.value ->> '$[1]', updated_at = turn.value ->> '$[2]',
        finished_at = turn.value ->> '$[2]', wake_at = NULL, owner = NULL,
        frontier = substr(NEW.bytes, turn.value ->> '$[8]', turn.value ->> '$[9]'),
        custom_status = iif(NEW.with_more,
            coalesce(substr(NEW.bytes, turn.value ->> '$[10]', turn.value ->> '$[11]'), custom_status), custom_status),
        state = iif(NEW.with_more,
            coalesce(substr(NEW.bytes, turn.value ->> '$[12]', turn.value ->> '$[13]'), state), state),
        recoveries = 0, reason = NULL
    FROM jsonb_each(NEW.finished) AS turn
    WHERE runs.key = turn.value ->> '$[4]' AND epoch = turn.value ->> '$[5]' AND generation = turn.value ->> '$[6]'
        AND next_seq = turn.value ->> '$[7]' AND status IN {claimable} AND (owner IS NULL OR owner = NEW.worker)
        AND last_item = 0 AND watched = 0; -- otherwise more is to be done than this
    SELECT RAISE(ABORT, 'a last turn does not fit') WHERE changes() <> NEW.finished_count;
    INSERT INTO journal (run_key, generation, seq, at, kind, location, data, "check")
    SELECT value ->> '$[0]', value ->> '$[1]', value ->> '$[2]', value ->> '$[3]', value ->> '$[4]', value ->> '$[5]',
        substr(NEW.bytes, value ->> '$[7]', value ->> '$[8]'), value ->> '$[6]'
    FROM jsonb_each(NEW.records);
    INSERT INTO runs (id, generation, workflow, version, status, epoch, owner, ready_at, next_seq, created_at,
        updated_at, recoveries, input_digest, cancel_requested, wake_at, frontier, custom_status, state)
    SELECT value ->> '$[0]', 1, value ->> '$[1]', value ->> '$[2]', value ->> '$[3]', value ->> '$[4]', value ->> '$[5]',
        0, 2, value ->> '$[6]', value ->> '$[6]', 0, substr(NEW.bytes, value ->> '$[8]', value ->> '$[9]'), 0,
        value ->> '$[7]', substr(NEW.bytes, value ->> '$[10]', value ->> '$[11]'),
        iif(NEW.with_more, substr(NEW.bytes, value ->> '$[12]', value ->> '$[13]'), NULL),
        iif(NEW.with_more, substr(NEW.bytes, value ->> '$[14]', value ->> '$[15]'), NULL)
    FROM jsonb_each(NEW.runs) ORDER BY jsonb_each.rowid; -- the order in which it gives them: nothing to sort
    INSERT INTO journal (run_key, generation, seq, at, kind, location, data, "check")
    SELECT (SELECT key FROM runs WHERE id = NEW.runs ->> '$[0][0]') + jsonb_each.key, 1, value ->> '$[16]',
        value ->> '$[17]', value ->> '$[18]', value ->> '$[19]',
        substr(NEW.bytes, value ->> '$[21]', value ->> '$[22]'), value ->> '$[20]'
    FROM jsonb_each(NEW.runs);
END;

-- name: bulk
-- Everything a group of plain requests changes, in a transaction of its own.
INSERT INTO bulk (stepped, advanced, finished, records, runs, bytes, stepped_count, advanced_count, finished_count,
    with_more, worker)
VALUES (jsonb(?), jsonb(?), jsonb(?), jsonb(?), jsonb(?), ?, ?, ?, ?, ?, ?);

-- name: step_view
-- One turn of the same kind as those in `bulk.stepped`.
CREATE TEMP VIEW step AS
SELECT 0 AS run_key, 0 AS epoch, 0 AS seq, 0 AS at, '' AS location, x'' AS data, 0 AS "check", x'' AS frontier,
    '' AS worker;

-- name: step_trigger
-- `advance_run` and `add_record` for it: nothing changes if it does not fit.
CREATE TEMP TRIGGER step_carry_out INSTEAD OF INSERT ON step BEGIN
    UPDATE runs SET status = 'running', next_seq = NEW.seq + 1, updated_at = NEW.at, wake_at = NULL,
        frontier = NEW.frontier, recoveries = 0, reason = NULL
    WHERE key = NEW.run_key AND epoch = NEW.epoch AND generation = 1 AND next_seq = NEW.seq
        AND status IN {claimable} AND (owner IS NULL OR owner = NEW.worker);
    SELECT RAISE(ABORT, 'the step does not fit') WHERE changes() <> 1;
    INSERT INTO journal (run_key, generation, seq, at, kind, location, data, "check")
    VALUES (NEW.run_key, 1, NEW.seq, NEW.at, 'step_done', NEW.location, NEW.data, NEW."check");
END;

-- name: step
-- A step's result and where its run stands now, in a transaction of its own.
INSERT INTO step (run_key, epoch, seq, at, location, data, "check", frontier, worker)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: key_of_run
-- Where the new runs begin.
SELECT key FROM runs WHERE id = ?;

-- == inboxes ============================================================================================

-- name: receiver_by_id
-- What must be known of a run before something is put into its inbox.
SELECT {receiver} FROM runs WHERE id = ?;

-- name: receiver_by_key
-- The same for a parent.
SELECT {receiver} FROM runs WHERE key = ?;

-- name: parent_of_run
-- Whom to tell about the end of a run.
SELECT parent_key FROM runs WHERE key = ? AND parent_key IS NOT NULL;

-- name: open_children
-- The same for the children of a run that ends from outside.
SELECT {receiver} FROM runs WHERE parent_key = ? AND finished_at IS NULL;

-- name: inbox_takes
-- Was this item taken before, and is there an n-th unread event of its type (the offset is n - 1)?
SELECT EXISTS (SELECT 1 FROM inbox_keys WHERE run_key = ?1 AND dedup = ?2),
    EXISTS (SELECT 1 FROM inbox WHERE run_key = ?1 AND kind = 'event' AND type = ?3 LIMIT 1 OFFSET ?4);

-- name: add_dedup
-- Remember it.
INSERT INTO inbox_keys (run_key, dedup) VALUES (?, ?);

-- name: add_item
-- Put an item into an inbox.
INSERT INTO inbox (run_key, kind, type, data, sent_at, previous, policy, expires_at, publication, held, request)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: note_item
-- The newest item of a run, which the next one will name as the one before it.
UPDATE runs SET last_item = ? WHERE key = ?;

-- name: item_is_unread
-- Whether an item a turn takes is still there to be taken: the publication that goes with it, or -1.
SELECT iif(held, publication, -1) FROM inbox WHERE id = ? AND run_key = ?;

-- name: take_item
-- A turn took the item.
DELETE FROM inbox WHERE id = ? AND run_key = ?;

-- name: wake_run
-- Something arrived for a run that nobody owns: it is due now.
UPDATE runs SET ready_at = 0 WHERE key = ? AND owner IS NULL AND ready_at > 0;

-- name: mark_cancel
-- The first cancel request. There is no second.
UPDATE runs SET cancel_requested = 1 WHERE key = ?;

-- == published events ===================================================================================

-- name: add_publication
-- Publish an event. The newest run at this moment tells who was created before it.
INSERT INTO publications (type, single, data, published_at, policy, delivery, expires_at, last_run, spread_after)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'runs'), 0), ?8)
RETURNING {publication};

-- name: has_publication_key
-- Was this published before?
SELECT 1 FROM publication_keys WHERE dedup = ?;

-- name: add_publication_key
-- Remember it.
INSERT INTO publication_keys (dedup, at) VALUES (?, ?);

-- name: last_publication
-- The newest publication ever, whether or not it is still there.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'publications'), 0);

-- name: next_spreading
-- The oldest publication that not all who waited have.
SELECT {publication} FROM publications
WHERE spread_after IS NOT NULL ORDER BY id LIMIT 1;

-- name: move_spreading
-- How far it has come; NULL: all have it.
UPDATE publications SET spread_after = ? WHERE id = ?;

-- name: waiters
-- The next runs that wait for a type.
SELECT run_key, since, shared FROM waits WHERE type = ? AND wanted > 0 AND run_key > ? ORDER BY run_key LIMIT ?;

-- name: free_publications
-- A part of the log of a type, shared (0) or single (1): those that nobody holds, in the order of publishing.
SELECT {publication} FROM publications
WHERE type = ? AND single = ? AND holder IS NULL AND id > ? ORDER BY id LIMIT ?;

-- name: acceptable_publications
-- The same of single ones, without those that a run handed back.
SELECT {publication} FROM publications
WHERE type = ?1 AND single = 1 AND holder IS NULL AND id > ?2
    AND NOT EXISTS (SELECT 1 FROM refusals WHERE run_key = ?3 AND type = ?1 AND publication = publications.id)
ORDER BY id LIMIT ?4;

-- name: publication
-- One that is being handed on.
SELECT {publication} FROM publications
WHERE id = ? AND holder IS NULL;

-- name: run_with_room
-- The oldest run that waits, may have a single publication and has room for it. ?1 type, ?2 publication, ?3 its
-- delivery, ?4 its newest run, ?5 a run that does not want it.
SELECT waits.run_key FROM waits CROSS JOIN runs ON runs.key = waits.run_key
WHERE waits.type = ?1 AND waits.wanted > waits.held AND waits.run_key <> ?5
    AND NOT EXISTS (SELECT 1 FROM refusals WHERE run_key = waits.run_key AND type = ?1 AND publication = ?2)
    AND CASE ?3 WHEN 'after_create' THEN waits.run_key <= ?4 WHEN 'after_wait' THEN waits.since < ?2 ELSE 1 END
    AND runs.status IN {claimable}
ORDER BY waits.run_key LIMIT 1;

-- name: hold_publication
-- It is in the inbox of a run now, or (NULL) in nobody's.
UPDATE publications SET holder = ? WHERE id = ?;

-- name: remove_publication
-- Its reader took it, or its time is over.
DELETE FROM publications WHERE id = ?;

-- name: remove_free_publication
-- Its time is over, and nobody holds it.
DELETE FROM publications WHERE id = ? AND holder IS NULL;

-- name: waits_of_run
-- What a run has to do with which types.
SELECT type, wanted, held, since, shared, refused FROM waits WHERE run_key = ?;

-- name: set_wait
-- The run waits for a type, or (wanted = 0) no longer.
INSERT INTO waits (run_key, type, wanted, held, since, shared, refused) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (run_key, type) DO UPDATE SET wanted = ?3, held = ?4, since = ?5, shared = ?6, refused = ?7;

-- name: note_shared
-- The run has had the copies up to this publication.
UPDATE waits SET shared = ? WHERE run_key = ? AND type = ?;

-- name: add_refusal
-- The run does not want this single publication.
INSERT INTO refusals (run_key, type, publication) VALUES (?, ?, ?) ON CONFLICT DO NOTHING;

-- name: note_refusal
-- So that a wait without any costs nothing more.
UPDATE waits SET refused = 1 WHERE run_key = ? AND type = ?;

-- name: forget_refusals
-- It waits for something else of this type now.
DELETE FROM refusals WHERE run_key = ? AND type = ?;

-- name: forget_all_refusals
-- The run has ended.
DELETE FROM refusals WHERE run_key = ?;

-- name: count_held
-- How many single publications of a type a run holds.
SELECT count(*) FROM inbox WHERE run_key = ? AND kind = 'event' AND type = ? AND held = 1;

-- name: count_again
-- The same, where it is kept.
UPDATE waits SET held = (SELECT count(*) FROM inbox WHERE inbox.run_key = waits.run_key AND inbox.kind = 'event'
    AND inbox.type = waits.type AND inbox.held = 1)
WHERE run_key = ? AND type = ?;

-- name: count_unread
-- How many events of a type wait in an inbox.
SELECT count(*) FROM inbox WHERE run_key = ? AND kind = 'event' AND type = ?;

-- name: held_items
-- The single publications that a run holds.
SELECT * FROM inbox WHERE run_key = ? AND held = 1 ORDER BY id;

-- name: item
-- One item of a run.
SELECT * FROM inbox WHERE id = ? AND run_key = ?;

-- name: end_waits
-- The run has ended. One that failed may be reopened, and must not get a second time what it has had.
UPDATE waits SET wanted = 0, held = 0, since = 0, refused = 0 WHERE run_key = ?;

-- name: forget_waits
-- The run has ended for good.
DELETE FROM waits WHERE run_key = ?;

-- name: empty_inbox
-- The run has ended, and what was unread has gone where it belongs.
DELETE FROM inbox WHERE run_key = ?;

-- == dead letters, replies, watches =====================================================================

-- name: add_dead_letter
-- An event did not reach its run.
INSERT INTO dead_letters (type, data, policy, target, target_status, sent_at, died_at, reason)
SELECT ?, ?, ?, id, status, ?, ?, ? FROM runs WHERE key = ?;

-- name: dead_letter
-- One dead letter.
SELECT * FROM dead_letters WHERE id = ?;

-- name: dead_letters
-- A page of dead letters, oldest first.
SELECT * FROM dead_letters WHERE (?1 IS NULL OR type = ?1) AND id > ?2 ORDER BY id LIMIT ?3;

-- name: dead_letters_of_end
-- What a run had not read when it ended.
SELECT dead_letters.* FROM dead_letters JOIN runs ON runs.id = dead_letters.target
WHERE runs.key = ? AND died_at = ? AND dead_letters.reason = ? ORDER BY dead_letters.id;

-- name: remove_dead_letter
-- It was replayed, or nobody wants it any more.
DELETE FROM dead_letters WHERE id = ?;

-- name: publications
-- A page of published events, oldest first, and who holds them.
SELECT publications.id, publications.type, data, published_at, policy, expires_at, runs.id
FROM publications LEFT JOIN runs ON runs.key = publications.holder
WHERE (?1 IS NULL OR publications.type = ?1) AND publications.id > ?2 ORDER BY publications.id LIMIT ?3;

-- name: add_reply
-- The answer to a request. There is no second.
INSERT INTO replies (request, data, at) VALUES (?, ?, ?) ON CONFLICT (request) DO NOTHING;

-- name: reply
-- What was answered.
SELECT data FROM replies WHERE request = ?;

-- name: add_watch
-- A run wants to hear of the end of another.
INSERT INTO watches (target_key, watcher_key, watcher_generation, location) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: mark_watched
-- So that ending a run nobody watches costs nothing.
UPDATE runs SET watched = 1 WHERE key = ?;

-- name: watchers
-- Whom to tell of the end of a run.
SELECT watcher_key, watcher_generation, location FROM watches WHERE target_key = ?;

-- name: forget_watches
-- They were told.
DELETE FROM watches WHERE target_key = ?;

-- name: end_of_run
-- What a run that has ended is known by: its last record.
SELECT {record} FROM journal
WHERE run_key = ? AND generation = ? ORDER BY seq DESC LIMIT 1;

-- name: count_expired
-- Another one whose time was over before somebody read it.
INSERT INTO expired_events (type, count) VALUES (?, 1) ON CONFLICT (type) DO UPDATE SET count = count + 1;

-- name: expired_events
-- How many there were.
SELECT type, count FROM expired_events ORDER BY type;

-- name: late_items
-- Unread events whose time is over. Of runs that are on their way here, when they have come.
SELECT * FROM inbox WHERE expires_at <= ? AND run_key NOT IN (SELECT run_key FROM coming) ORDER BY expires_at LIMIT ?;

-- name: late_publications
-- Published events whose time is over.
SELECT id, type, single FROM publications WHERE holder IS NULL AND expires_at <= ? ORDER BY expires_at LIMIT ?;

-- name: old_publications
-- Published events that were kept long enough.
SELECT id, type, single FROM publications WHERE holder IS NULL AND published_at < ? ORDER BY published_at LIMIT ?;

-- name: remove_old_replies
-- The caller will not come any more.
DELETE FROM replies WHERE request IN (SELECT request FROM replies WHERE at < ? ORDER BY at LIMIT ?);

-- name: remove_old_publication_keys
-- Nobody will repeat that any more.
DELETE FROM publication_keys WHERE dedup IN (SELECT dedup FROM publication_keys WHERE at < ? ORDER BY at LIMIT ?);

-- == life of a run ======================================================================================

-- name: add_run
-- Create a run, unless its id is taken (then no row changes).
INSERT INTO runs (id, generation, workflow, version, status, epoch, owner, ready_at, next_seq, created_at, updated_at,
    finished_at, recoveries, input_digest, parent_key, parent_generation, parent_location, cancel_requested, wake_at,
    frontier, custom_status, state)
VALUES (?1, 1, ?2, ?3, ?4, ?5, ?6, 0, ?7, ?8, ?9, ?10, 0, ?11, ?12, ?13, ?14, 0, ?15, ?16, ?17, ?18)
ON CONFLICT (id) DO NOTHING;

-- name: terminate_run
-- End a run from outside. The owner stays, so that it is told by `news`; the higher epoch refuses its late turns.
UPDATE runs SET status = 'cancelled', epoch = epoch + 1, next_seq = next_seq + 1, updated_at = ?1, finished_at = ?1,
    wake_at = NULL, frontier = NULL, reason = NULL
WHERE key = ?2;

-- name: resume_run
-- Make a parked run claimable again.
UPDATE runs SET status = 'pending', ready_at = 0, updated_at = max(?1, updated_at), recoveries = 0, reason = NULL
WHERE id = ?2 AND status = 'parked';

-- name: park_run
-- Stop a run until `resume`. `terminate` writes a record of the time this leaves behind, which may not go back.
UPDATE runs SET status = 'parked', owner = NULL, reason = ?, updated_at = max(?, updated_at)
WHERE key = ? AND epoch = ? AND status IN {claimable};

-- name: is_parked
-- Did an earlier call of the same worker park it already?
SELECT 1 FROM runs WHERE key = ? AND epoch = ? AND status = 'parked' AND reason = ?;

-- == changes by people ==================================================================================

-- name: pause_run
-- Stop a run until `unpause`. The owner stays, so that the item that tells it reaches it; the higher epoch refuses its
-- late turns.
UPDATE runs SET status = 'paused', epoch = epoch + 1, reason = ?1, updated_at = max(?2, updated_at)
WHERE key = ?3 AND status IN {claimable};

-- name: unpause_run
-- Make a paused run claimable again.
UPDATE runs SET status = 'pending', owner = NULL, ready_at = 0, updated_at = max(?1, updated_at), recoveries = 0,
    reason = NULL
WHERE key = ?2 AND status = 'paused';

-- name: drop_pause_items
-- They are for the worker that held the run; the worker that claims it next has nothing to do with them.
DELETE FROM inbox WHERE run_key = ? AND kind = 'pause';

-- name: reopen_run
-- Take back the end of a failed run, if nothing moved since somebody looked.
UPDATE runs SET status = 'pending', epoch = epoch + 1, next_seq = next_seq + 1, finished_at = NULL, owner = NULL,
    ready_at = 0, recoveries = 0, reason = NULL, frontier = ?1, updated_at = ?2
WHERE key = ?3 AND epoch = ?4 AND next_seq = ?5 AND status = 'failed';

-- name: next_seq_of
-- How far a run is.
SELECT next_seq FROM runs WHERE key = ?;

-- name: restore_run
-- Create a run that has a past, unless its id is taken (then no row changes).
INSERT INTO runs (id, generation, workflow, version, status, epoch, owner, ready_at, wake_at, next_seq, created_at,
    updated_at, finished_at, recoveries, input_digest, cancel_requested, frontier, reason, custom_status, state, pruned)
VALUES (?, ?, ?, ?, ?, 0, NULL, 0, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING;

-- name: delete_run
-- Remove a run, if it has ended and no worker holds it.
DELETE FROM runs WHERE key = ? AND finished_at IS NOT NULL AND owner IS NULL RETURNING id;

-- name: delete_journal
-- And its journals.
DELETE FROM journal WHERE run_key = ?;

-- name: delete_inbox
-- And what nobody read.
DELETE FROM inbox WHERE run_key = ?;

-- name: delete_keys
-- And what it remembered of events.
DELETE FROM inbox_keys WHERE run_key = ?;

-- name: delete_replies
-- And what it answered: all names that begin with ?1, which ends with a newline. char(11) comes after that.
DELETE FROM replies WHERE request >= ?1 AND request < rtrim(?1, char(10)) || char(11);

-- == moving: see store/move.py ==========================================================================

-- name: identity
-- Which data this is.
SELECT id FROM identity;

-- name: departure
-- Where everything here goes to.
SELECT target, target_id, at, gone FROM departures;

-- name: add_departure
-- It departs.
INSERT INTO departures (target, target_id, at, gone) VALUES (?1, ?2, ?3, 0);

-- name: remove_departure
-- It stays, unless it is gone.
DELETE FROM departures WHERE gone = 0;

-- name: leave
-- It is gone.
UPDATE departures SET gone = 1 WHERE at = ?1;

-- name: fence_runs
-- Everything open leaves: late turns are refused, nothing can be claimed.
UPDATE runs SET epoch = epoch + 1, owner = NULL, status = iif(status IN {claimable}, 'moved', status)
WHERE finished_at IS NULL;

-- name: forget_owners
-- And nobody need be told of what was terminated.
UPDATE runs SET owner = NULL WHERE owner IS NOT NULL;

-- name: unfence_runs
-- It stays.
UPDATE runs SET status = 'pending', ready_at = 0, recoveries = 0 WHERE finished_at IS NULL AND status = 'moved';

-- name: forget_workers
-- They have nothing left here, and find out when they renew.
DELETE FROM workers;

-- name: lock_everything
-- Before all of that. There is one writer at a time.
SELECT 1;

-- name: refuse_changes
-- From now on every change of a run or an event raises, in every process. `session.MOVED` is what it says.
CREATE TRIGGER departed_1 BEFORE INSERT ON runs BEGIN SELECT RAISE(ABORT, 'perdure: moved'); END;
CREATE TRIGGER departed_2 BEFORE UPDATE ON runs BEGIN SELECT RAISE(ABORT, 'perdure: moved'); END;
CREATE TRIGGER departed_3 BEFORE DELETE ON runs WHEN EXISTS (SELECT 1 FROM departures WHERE gone = 0)
    BEGIN SELECT RAISE(ABORT, 'perdure: moved'); END;
CREATE TRIGGER departed_4 BEFORE INSERT ON inbox BEGIN SELECT RAISE(ABORT, 'perdure: moved'); END;
CREATE TRIGGER departed_5 BEFORE INSERT ON publications BEGIN SELECT RAISE(ABORT, 'perdure: moved'); END;
CREATE TRIGGER departed_6 BEFORE UPDATE ON publications BEGIN SELECT RAISE(ABORT, 'perdure: moved'); END;
CREATE TRIGGER departed_7 BEFORE INSERT ON publication_keys BEGIN SELECT RAISE(ABORT, 'perdure: moved'); END;
CREATE TRIGGER departed_8 BEFORE INSERT ON dead_letters BEGIN SELECT RAISE(ABORT, 'perdure: moved'); END;
CREATE TRIGGER departed_9 BEFORE DELETE ON dead_letters BEGIN SELECT RAISE(ABORT, 'perdure: moved'); END;

-- name: allow_changes
-- It stays.
DROP TRIGGER departed_1; DROP TRIGGER departed_2; DROP TRIGGER departed_3; DROP TRIGGER departed_4;
DROP TRIGGER departed_5; DROP TRIGGER departed_6; DROP TRIGGER departed_7; DROP TRIGGER departed_8;
DROP TRIGGER departed_9;

-- name: packed_records
-- The journals of the runs of a JSON list of keys.
SELECT j.run_key, j.generation, j.seq, j.at, j.kind, j.location, j.data, j."check" FROM jsonb_each(?) AS wanted CROSS JOIN journal j ON j.run_key = wanted.value
ORDER BY j.run_key, j.generation, j.seq;

-- name: packed_items
-- And what they have not read.
SELECT i.id, i.run_key, i.kind, i.type, i.data, i.sent_at, i.previous, i.policy, i.expires_at, i.publication, i.held,
    i.request FROM jsonb_each(?) AS wanted CROSS JOIN inbox i ON i.run_key = wanted.value ORDER BY i.run_key, i.id;

-- name: packed_keys
-- And the `dedup` keys they have seen.
SELECT k.run_key, k.dedup FROM jsonb_each(?) AS wanted CROSS JOIN inbox_keys k ON k.run_key = wanted.value ORDER BY k.run_key, k.dedup;

-- name: packed_waits
-- And what they have to do with which types of events.
SELECT w.run_key, w.type, w.wanted, w.held, w.since, w.shared FROM jsonb_each(?) AS wanted CROSS JOIN waits w ON w.run_key = wanted.value ORDER BY w.run_key, w.type;

-- name: packed_refusals
-- And which events they do not want.
SELECT f.run_key, f.type, f.publication FROM jsonb_each(?) AS wanted CROSS JOIN refusals f ON f.run_key = wanted.value ORDER BY f.run_key, f.type, f.publication;

-- name: packed_watchers
-- And who wants to hear of their end.
SELECT w.target_key, r.id, w.watcher_generation, w.location FROM jsonb_each(?) AS wanted CROSS JOIN watches w ON w.target_key = wanted.value
JOIN runs r ON r.key = w.watcher_key ORDER BY w.target_key, r.id, w.watcher_generation, w.location;

-- name: packed_coming
-- And, of those that are on their way here, how they will stand, and their relations.
SELECT c.run_key, c.status, c.relations FROM jsonb_each(?) AS wanted CROSS JOIN coming c ON c.run_key = wanted.value;

-- name: ids_of_keys
-- The ids of a JSON list of keys.
SELECT r.key, r.id FROM jsonb_each(?) AS wanted CROSS JOIN runs r ON r.key = wanted.value;

-- name: keys_of_ids
-- The keys of a JSON list of ids, and which of them are on their way here: from where.
SELECT r.id, r.key, c.source, c.brought FROM jsonb_each(?) AS wanted CROSS JOIN runs r ON r.id = wanted.value LEFT JOIN coming c ON c.run_key = r.key;

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
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'inbox'), 0) + 1;

-- name: receive_runs
-- Runs from elsewhere.
INSERT INTO runs (id, generation, workflow, version, status, epoch, owner, ready_at, wake_at, next_seq, created_at,
    updated_at, finished_at, recoveries, input_digest, cancel_requested, frontier, reason, custom_status, state, pruned,
    last_item, watched)
VALUES (?1, ?2, ?3, ?4, ?5, 0, NULL, 0, ?6, ?7, ?8, ?9, ?10, 0, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, 0);

-- name: receive_records
-- Their records.
INSERT INTO journal (run_key, generation, seq, at, kind, location, data, "check") VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: receive_items
-- What they have not read.
INSERT INTO inbox (run_key, id, kind, type, data, sent_at, previous, policy, expires_at, publication, held, request)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: receive_keys
-- What they have seen.
INSERT INTO inbox_keys (run_key, dedup) VALUES (?, ?);

-- name: receive_coming
-- And that they are on their way.
INSERT INTO coming (run_key, source, old_key, brought, status, relations) VALUES (?, ?, ?, ?, ?, ?);

-- name: confirm
-- It was compared with its original.
UPDATE coming SET mark = ?1 WHERE run_key = ?2 AND source = ?3;

-- name: received
-- Runs on their way here.
SELECT c.run_key, r.id, c.mark FROM coming c JOIN runs r ON r.key = c.run_key
WHERE c.source = ?1 AND c.run_key > ?2 ORDER BY c.run_key LIMIT ?3;

-- name: remove_coming_run
-- It is not to come.
DELETE FROM runs WHERE key = ?1;

-- name: forget_coming
-- It was deleted.
DELETE FROM coming WHERE run_key = ?1;

-- name: is_coming
-- Whether a run is on its way here.
SELECT 1 FROM coming WHERE run_key = ?1;

-- name: coming_with_more
-- Those with relations, or open.
SELECT c.run_key, r.id, c.old_key, c.relations, r.status = 'arriving' FROM coming c JOIN runs r ON r.key = c.run_key
WHERE c.source = ?1 AND (c.relations IS NOT NULL OR r.finished_at IS NULL) ORDER BY c.old_key;

-- name: copies_coming
-- Their copies of published events, which have the numbers of the old store, below zero.
SELECT i.run_key, i.id, i.publication FROM coming c JOIN inbox i ON i.run_key = c.run_key
WHERE c.source = ?1 AND i.publication < 0 ORDER BY i.run_key, i.id;

-- name: set_publication
-- The number that the event has here.
UPDATE inbox SET publication = ?1 WHERE id = ?2 AND run_key = ?3;

-- name: receive_publication
-- An event that was published elsewhere.
INSERT INTO publications (type, single, data, published_at, policy, delivery, expires_at, last_run, holder, spread_after)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) RETURNING id;

-- name: receive_publication_key
-- And that it was.
INSERT INTO publication_keys (dedup, at) VALUES (?1, ?2) ON CONFLICT DO NOTHING;

-- name: receive_dead_letter
-- An event that did not arrive elsewhere.
INSERT INTO dead_letters (type, data, policy, target, target_status, sent_at, died_at, reason)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8);

-- name: receive_expired
-- So many whose time was over elsewhere.
INSERT INTO expired_events  (type, count) VALUES (?1, ?2)
ON CONFLICT (type) DO UPDATE SET count = count + excluded.count;

-- name: arrive_waits
-- What they have to do with events, by the numbers that those have here.
INSERT INTO waits (run_key, type, wanted, held, since, shared, refused) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: arrive_refusals
-- Which they do not want.
INSERT INTO refusals (run_key, type, publication) VALUES (?, ?, ?);

-- name: arrive_watches
-- Who wants to hear of their end.
INSERT INTO watches (target_key, watcher_key, watcher_generation, location) VALUES (?, ?, ?, ?);

-- name: arrive_parents
-- Whose children they are.
UPDATE runs SET parent_key = ?1, parent_generation = ?2, parent_location = ?3 WHERE key = ?4;

-- name: arrive_runs
-- What was open can be claimed, unless it is parked or paused.
UPDATE runs SET status = coming.status, ready_at = 0, owner = NULL FROM coming
WHERE coming.run_key = runs.key AND coming.source = ?1 AND runs.status = 'arriving';

-- name: count_all
-- How many runs there are.
SELECT count(*) FROM runs;

-- name: count_coming
-- How many are on their way here from a store.
SELECT count(*) FROM coming WHERE source = ?1;

-- name: forget_source
-- Everything has come.
DELETE FROM coming WHERE source = ?1;

-- name: add_arrived
-- From there.
INSERT INTO arrived (source, at) VALUES (?1, ?2);

-- name: arrived
-- Whether it has.
SELECT 1 FROM arrived WHERE source = ?1;

-- == workers ============================================================================================

-- name: claim_runs
-- Take the runs that are due, oldest first. One statement: two claimers cannot get the same run.
UPDATE runs SET owner = ?1, epoch = epoch + 1, recoveries = recoveries + 1,
    status = iif(status = 'pending', 'running', status)
WHERE key IN (
    SELECT key FROM runs
    WHERE owner IS NULL AND status IN {claimable} AND recoveries = 0 AND ready_at <= ?2
        AND workflow || char(10) || version NOT IN (SELECT value FROM jsonb_each(?4))
    ORDER BY ready_at, key LIMIT ?3
)
RETURNING *;

-- name: claim_trusted
-- The same with runs whose worker died with them once, each at its place: the oldest of either kind, then of both.
UPDATE runs SET owner = ?1, epoch = epoch + 1, recoveries = recoveries + 1,
    status = iif(status = 'pending', 'running', status)
WHERE key IN (
    SELECT key FROM (
        SELECT key, ready_at FROM (
            SELECT key, ready_at FROM runs
            WHERE owner IS NULL AND status IN {claimable} AND recoveries = 0 AND ready_at <= ?2
                AND workflow || char(10) || version NOT IN (SELECT value FROM jsonb_each(?4))
            ORDER BY ready_at, key LIMIT ?3
        )
        UNION ALL
        SELECT key, ready_at FROM (
            SELECT key, ready_at FROM runs
            WHERE owner IS NULL AND status IN {claimable} AND recoveries > 0 AND recoveries = 1
                AND ready_at <= ?2 AND workflow || char(10) || version NOT IN (SELECT value FROM jsonb_each(?4))
            ORDER BY ready_at, key LIMIT ?3
        )
    )
    ORDER BY ready_at, key LIMIT ?3
)
RETURNING *;

-- name: claim_suspects
-- The same for runs whose workers died with them more than ?5 times, the worst first. `> ?5` comes before `> 0`, which the
-- index asks for: SQLite searches by the first of them, and by the second it would look at all that are trusted.
UPDATE runs SET owner = ?1, epoch = epoch + 1, recoveries = recoveries + 1,
    status = iif(status = 'pending', 'running', status)
WHERE key IN (
    SELECT key FROM runs
    WHERE owner IS NULL AND status IN {claimable} AND recoveries > ?5 AND recoveries > 0
        AND ready_at <= ?2 AND workflow || char(10) || version NOT IN (SELECT value FROM jsonb_each(?4))
    ORDER BY recoveries DESC, ready_at, key LIMIT ?3
)
RETURNING *;

-- name: acquit_run
-- A run did not kill its worker: claims of it that count as deaths, from now on.
UPDATE runs SET recoveries = min(recoveries, ?) WHERE key = ? AND epoch = ? AND +owner = ?;

-- name: is_anything_due
-- Whether a claim could find something.
SELECT 1 FROM runs
WHERE owner IS NULL AND status IN {claimable} AND recoveries = 0 AND ready_at <= ?1
UNION ALL
SELECT 1 FROM runs
WHERE owner IS NULL AND status IN {claimable} AND recoveries > 0 AND ready_at <= ?1 LIMIT 1;

-- name: release_runs
-- Give runs back until `ready_at`, or at once if an item came that the worker has not seen. One statement, so that
-- nothing can arrive between the look and the release; for all of them, so that the writer needs the interpreter only
-- once; and by key, never by way of everything that the worker owns (hence the `+`). ?2 is a JSON list of
-- `[key, epoch, seen_item, ready_at, reason]`.
UPDATE runs SET owner = NULL, recoveries = 0, reason = released.value ->> 4,
    status = iif(status = 'running', 'pending', status),
    ready_at = iif(EXISTS (SELECT 1 FROM inbox WHERE run_key = runs.key AND id > released.value ->> 2), 0,
        released.value ->> 3)
FROM jsonb_each(?2) AS released
WHERE runs.key = released.value ->> 0 AND +owner = ?1 AND epoch = released.value ->> 1
    AND status IN {claimable};

-- name: let_go
-- The owner has seen that somebody terminated or paused its runs; the same list.
UPDATE runs SET owner = NULL
WHERE key IN (SELECT value ->> 0 FROM jsonb_each(?2)) AND +owner = ?1
    AND status NOT IN {claimable};

-- name: free_runs
-- A worker is gone: what only waited goes on waiting, the rest is due at once. The first parameter is 0 for a worker that
-- left in order (which is no recovery) and 1 for one that died.
UPDATE runs SET owner = NULL, recoveries = recoveries * ?, status = iif(status = 'running', 'pending', status),
    ready_at = CASE WHEN status = 'waiting' AND NOT EXISTS (SELECT 1 FROM inbox WHERE run_key = runs.key)
               THEN coalesce(wake_at, ?) ELSE 0 END
WHERE owner = ?;

-- name: orphaned_owners
-- Owners that are not registered (their row was lost or they never had one).
SELECT DISTINCT owner FROM runs WHERE owner IS NOT NULL AND owner NOT IN (SELECT id FROM workers) AND owner <> ?;

-- name: add_worker
-- A worker starts (or says so again, after its first call got no answer).
INSERT INTO workers (id, name, host, pid, started_at, release, definitions) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET definitions = excluded.definitions;

-- name: drain_worker
-- A worker has begun to leave.
UPDATE workers SET draining_since = ?2 WHERE id = ?1 AND draining_since IS NULL;

-- name: remove_worker
-- A worker left, or was found dead.
DELETE FROM workers WHERE id = ?;

-- name: is_registered
-- Whether nobody has found the worker dead: it asks for itself.
SELECT 1 FROM workers WHERE id = ?;

-- name: all_workers
-- For people, and for reaping.
SELECT id, name, host, pid, started_at, release, definitions FROM workers ORDER BY started_at, id;

-- name: standings
-- How workers stand: how many open runs each has, and since when it has been leaving.
SELECT id, (SELECT count(*) FROM runs WHERE owner = workers.id AND status IN {claimable}), draining_since FROM workers;

-- name: runs_held
-- The runs a worker may work on.
SELECT key, epoch FROM runs WHERE owner = ? AND status IN {claimable};

-- name: fresh_items
-- What arrived for a worker's runs after its cursor.
SELECT inbox.* FROM inbox CROSS JOIN runs ON runs.key = inbox.run_key
WHERE inbox.id > ? AND runs.owner = ? ORDER BY inbox.id;

-- name: last_item
-- The newest item id ever given, whether or not the item is still there.
SELECT seq FROM sqlite_sequence WHERE name = 'inbox';

-- name: ended_under_owner
-- Runs of a worker that somebody else ended.
SELECT key FROM runs WHERE owner = ? AND finished_at IS NOT NULL;

-- == reading ============================================================================================

-- name: run_by_id
-- One run.
SELECT * FROM runs WHERE id = ?;

-- name: run_by_key
-- One run.
SELECT * FROM runs WHERE key = ?;

-- name: runs_by_keys
-- The runs of a JSON list of keys, in its order.
SELECT runs.* FROM jsonb_each(?) AS wanted CROSS JOIN runs ON runs.key = wanted.value ORDER BY wanted.key;

-- name: records
-- A part of a journal.
SELECT {record} FROM journal
WHERE run_key = ? AND generation = ? AND seq > ? ORDER BY seq LIMIT ?;

-- name: whole_inbox
-- Everything unread, in no order: SQLite would make a table in memory to sort it, each time and mostly for nothing.
SELECT * FROM inbox WHERE run_key = ?;

-- name: items
-- The first items of an inbox, in the order of arrival.
SELECT * FROM inbox WHERE run_key = ? ORDER BY id LIMIT ?;

-- name: list_all
-- A page of runs of any status, newest first.
SELECT * FROM runs
WHERE key < ?1 AND (?2 IS NULL OR workflow = ?2) ORDER BY key DESC LIMIT ?3;

-- name: list_open
-- A page of open runs. ?2 is a JSON list of statuses.
SELECT * FROM runs
WHERE finished_at IS NULL AND key < ?1 AND status IN (SELECT value FROM jsonb_each(?2))
    AND (?3 IS NULL OR workflow = ?3) ORDER BY key DESC LIMIT ?4;

-- name: list_ended
-- A page of ended runs of one status.
SELECT * FROM runs
WHERE finished_at IS NOT NULL AND status = ?2 AND key < ?1
    AND (?3 IS NULL OR workflow = ?3) AND (?5 IS NULL OR finished_at < ?5) ORDER BY key DESC LIMIT ?4;

-- name: list_by_prefix
-- A page of runs whose ids lie in a range (all ids with one prefix do). An empty list of statuses means any.
-- The plus signs keep SQLite from walking through all runs by key instead of through the few ids.
SELECT * FROM runs
WHERE id >= ?2 AND id < ?3 AND +key < ?1 AND (?4 IS NULL OR workflow = ?4)
    AND (?5 = '[]' OR status IN (SELECT value FROM jsonb_each(?5))) AND (?6 IS NULL OR parent_key = ?6)
    AND (?8 IS NULL OR finished_at < ?8)
ORDER BY +key DESC LIMIT ?7;

-- name: list_children
-- A page of the children of one run.
SELECT * FROM runs
WHERE parent_key = ?2 AND key < ?1 AND (?3 IS NULL OR workflow = ?3)
    AND (?4 = '[]' OR status IN (SELECT value FROM jsonb_each(?4))) AND (?6 IS NULL OR finished_at < ?6)
ORDER BY key DESC LIMIT ?5;

-- name: count_open
-- How many open runs there are of each status.
SELECT status, count(*) FROM runs WHERE finished_at IS NULL GROUP BY status;

-- name: count_ended
-- How many ended runs there are of each status, from the index alone.
SELECT status, count(*) FROM runs WHERE finished_at IS NOT NULL GROUP BY status;

-- == the file itself ====================================================================================

-- name: begin
-- Always IMMEDIATE: a deferred transaction that turns into a write fails at once when somebody else wrote
-- meanwhile, whatever the busy timeout says.
BEGIN IMMEDIATE;

-- name: begin_read
-- One snapshot for several reads.
BEGIN DEFERRED;

-- name: commit
-- Durable after this.
COMMIT;

-- name: rollback
-- As if nothing had been asked.
ROLLBACK;

-- name: data_version
-- Changes when another connection commits.
PRAGMA data_version;

-- name: application_id
-- Whose file is it?
PRAGMA application_id;

-- name: user_version
-- Which schema does it have?
PRAGMA user_version;

-- name: is_empty
-- Is there nothing in it at all?
SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema);

-- name: use_wal
-- Readers never block the writer. Stored in the file.
PRAGMA journal_mode = WAL;

-- name: sync_full
-- A commit survives a power cut.
PRAGMA synchronous = FULL;

-- name: sync_normal
-- A commit survives the death of the process; a power cut may take the last ones, in order.
PRAGMA synchronous = NORMAL;

-- name: limit_wal
-- Give the disk back after a burst (64 MiB).
PRAGMA journal_size_limit = 67108864;

-- name: synchronous
-- What the connection promises: 2 or more, a commit is synced.
PRAGMA synchronous;

-- name: small_cache
-- A larger change than this goes into the WAL before it is committed.
PRAGMA cache_size = 16;

-- name: usual_cache
-- SQLite's own default (2 MB).
PRAGMA cache_size = -2000;

-- name: add_scratch_table
-- Never committed: see `Writer._make_room`.
CREATE TABLE scratch (data BLOB);

-- name: fill_scratch_table
-- So many bytes of nothing.
INSERT INTO scratch VALUES (zeroblob(?));

-- name: refuse_writes
-- For connections that only read.
PRAGMA query_only = 1;

-- name: wal_pages
-- How much is in the WAL and how much of that is in the database: (busy, pages, copied).
PRAGMA wal_checkpoint(NOOP);

-- name: checkpoint
-- Copy the WAL into the database, as far as readers allow.
PRAGMA wal_checkpoint(PASSIVE);

-- name: truncate_wal
-- Leave one tidy file behind, if nobody else is using it.
PRAGMA wal_checkpoint(TRUNCATE);
