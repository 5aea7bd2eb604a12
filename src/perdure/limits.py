"""Every cap and every default number, each with its reason. Units come last in the names.

Numbers here are facts of the engine (the same for everybody). What a user may set lives in
`perdure.engine.settings`, with these as the defaults.
"""

from __future__ import annotations

from typing import Final

#: This release of perdure: what `perdure.__version__` is, and what a worker says of itself.
RELEASE: Final = "0.1.0"

# -- names and ids ---------------------------------------------------------------------------------------

#: PostgreSQL refuses index rows above 2,704 bytes; 500 leaves room for composite keys and is more than
#: any id people type or generate.
RUN_ID_BYTES_MAX: Final = 500

#: Names of workflows, steps and events end up in locations, indexes and terminals.
NAME_BYTES_MAX: Final = 200

# -- values ----------------------------------------------------------------------------------------------

#: A journal is replayed whole, so one huge value slows every recovery. Two megabytes is what other
#: systems settled on; larger things belong in a file or bucket, with their address in the journal.
VALUE_BYTES_MAX: Final = 2 * 1024 * 1024

#: Arguments are kept beside a step's result for people who debug. They are not needed for replay, so above
#: this size only their digest is kept.
RECORDED_ARGUMENTS_BYTES_MAX: Final = 4 * 1024

#: Deeper nesting than this is a cycle or a mistake; CPython's own JSON and msgspec give up near 1,000.
VALUE_DEPTH_MAX: Final = 200

# -- recorded exceptions ---------------------------------------------------------------------------------

#: A traceback is for reading; beyond this the middle is cut out.
TRACEBACK_CHARS_MAX: Final = 8_000
#: What is shown of an error where it shares a line with other things: logs, `ls`, `why`. Enough to recognise it by.
ERROR_LINE_CHARS_MAX: Final = 200
#: A message is for reading too.
ERROR_MESSAGE_CHARS_MAX: Final = 4_000
#: `raise ... from ...` chains deeper than this are marked as cut.
CAUSE_CHAIN_MAX: Final = 8
#: Members kept of one exception group, and levels of nesting.
GROUP_MEMBERS_MAX: Final = 64
GROUP_DEPTH_MAX: Final = 4

# -- one turn --------------------------------------------------------------------------------------------

#: Async generators that one run may have open at a time. What is left open is kept until the workflow ends, about
#: 500 bytes each and what they hold.
OPEN_GENERATORS_MAX: Final = 100_000

#: Callbacks one turn may run before it counts as spinning. A gather of 10,000 steps asks for
#: all of them in 10,001.
TURN_CALLBACKS_MAX: Final = 1_000_000

#: A turn is a matter of microseconds. One that takes this long keeps every other run of its worker waiting, and is
#: reported with its stack.
TURN_SECONDS_WARN: Final = 1.0
#: One that takes this long is abandoned and its run parked. A guess: long enough for any honest computation, short
#: enough that the other runs are not lost sight of.
TURN_SECONDS_MAX: Final = 30.0

#: Pending operations listed in a run's frontier (what it waits for, shown to other processes). The
#: count and a digest cover the rest.
FRONTIER_OPERATIONS_MAX: Final = 16

#: Pending timers whose deadline is kept in the frontier, so that code with another duration does not move them.
FRONTIER_DEADLINES_MAX: Final = 1_000

#: Records delivered in one turn before it is committed, so that a long backlog keeps commits small.
TURN_RECORDS_MAX: Final = 1_000

# -- loops -----------------------------------------------------------------------------------------------

#: Finished iterations of a durable loop whose records stay in the journal, for people who look at it. Replay needs
#: none of them.
LOOP_ITERATIONS_KEPT: Final = 10

# -- events ----------------------------------------------------------------------------------------------

#: Events of one `receive_many`: they share one record, which is read and replayed whole.
RECEIVE_MANY_MAX: Final = 1_000

#: Runs that get a published event in one transaction. A few milliseconds, so that other commits wait no longer.
SPREAD_RUNS_MAX: Final = 500

#: Rows that one round of tidying removes, for the same reason.
TIDY_ROWS_MAX: Final = 1_000
#: How often events are looked through for what has expired. Readers look at the clock themselves.
TIDY_SECONDS: Final = 5.0

# -- journals --------------------------------------------------------------------------------------------

#: One warning when a journal passes this: time for `continue_as`.
JOURNAL_RECORDS_WARN: Final = 10_000

# -- time ------------------------------------------------------------------------------------------------

#: A century. Longer sleeps are a unit mistake.
DURATION_SECONDS_MAX: Final = 100 * 366 * 86_400.0

#: "At once", where a column says when something is due. Not the time of writing: a clock that is set back afterwards
#: would make everything wait until it catches up (tests/time/test_clock_jumps.py).
AT_ONCE: Final = 0

#: "Never", as microseconds since 1970 (year 9999). Stored where a column must sort last.
NEVER: Final = 253_402_300_799_000_000

# -- steps -----------------------------------------------------------------------------------------------

#: First try included. Three absorbs a hiccup and does not hide an outage.
STEP_ATTEMPTS_DEFAULT: Final = 3
STEP_INITIAL_DELAY_SECONDS: Final = 0.1
STEP_BACKOFF_FACTOR: Final = 2.0
STEP_MAX_DELAY_SECONDS: Final = 30.0
#: Each delay is drawn from [1 - jitter, 1 + jitter] times the computed one.
STEP_JITTER: Final = 0.1

#: What a step gets to clean up when it was told to stop, by its timeout or because nobody wants its result any more.
#: One that goes on for longer (it swallowed its CancelledError) loses its place. A guess: closing a connection takes
#: less.
STEP_STOP_SECONDS: Final = 2.0
#: When the process of isolated steps is ended for lack of work. Long enough for the next in a row of steps.
STEP_PROCESS_IDLE_SECONDS: Final = 30.0
#: What it gets to start Python, and to import the module of a step: far more than that takes, and no hang.
STEP_PROCESS_START_SECONDS: Final = 60.0
#: What it gets to end by itself once nobody needs it.
STEP_PROCESS_END_SECONDS: Final = 1.0
#: How long the engine does nothing when something else than it has cancelled its tasks. Usually the event loop ends
#: within milliseconds; if it goes on, so does the engine.
CANCELLED_BY_OTHERS_SECONDS: Final = 1.0
#: An attempt that alone is cancelled so often, by code that is not perdure's, has failed: a helper of the step's own
#: (a timer that cancels "the current task") does so every time.
STRANGE_CANCELS_MAX: Final = 2

# -- engine defaults (see perdure.engine.settings) -------------------------------------------------------

#: Runs kept in memory by one worker. A resident run takes a few kilobytes; above the cap those that wait longest leave.
RESIDENTS_MAX_DEFAULT: Final = 5_000
#: Steps running at once in one worker.
STEPS_MAX_DEFAULT: Final = 1_000
#: Threads for synchronous steps.
STEP_THREADS_DEFAULT: Final = 32
#: Claims that ended in the death of the worker, without one commit in between, before a run is parked.
RECOVERIES_MAX_DEFAULT: Final = 10
#: Unread events of one type per run; one more is refused with an error.
PENDING_EVENTS_MAX_DEFAULT: Final = 10_000
#: A published event that nobody took is kept for a week: over any weekend, short enough to stay small.
EVENT_RETENTION_SECONDS_DEFAULT: Final = 7 * 86_400.0
#: What a cancelled run may take to clean up.
CANCEL_GRACE_SECONDS_DEFAULT: Final = 300.0
#: What `close` gives running steps to finish.
SHUTDOWN_GRACE_SECONDS_DEFAULT: Final = 10.0
#: What `close` waits for an answer of the store in the end. A little longer than a write waits for other processes
#: (`SQLITE_BUSY_SECONDS`): when that is over the disk hangs, and the program must be able to end all the same.
CLOSE_SECONDS_MAX: Final = 12.0
#: Behind every wake-up hint is a poll. On SQLite it reads one integer (`PRAGMA data_version`).
POLL_SECONDS_DEFAULT: Final = 0.05
#: The standing sweep: dead workers, due runs nobody hinted at.
SWEEP_SECONDS_DEFAULT: Final = 1.0
#: Runs whose workers died several times in a row without any progress are suspects: each worker takes them in groups,
#: so that one which kills its worker does not take the blame of its neighbours with it. One that goes on for this long
#: is let be (see `engine.probation`).
SUSPECT_SECONDS: Final = 5.0
#: Runs claimed by one sweep.
CLAIM_BATCH_MAX: Final = 200
#: Timers due within this of each other fire in one turn. Late by this much is fine; early never happens.
TIMER_RESOLUTION_SECONDS_DEFAULT: Final = 0.001
#: Waits between tries when the store does not answer: from this, doubling, to the next. What a fleet loses by it after
#: a failover is a second on average; one try in two seconds is nothing for a server.
STORAGE_RETRY_SECONDS_MIN: Final = 0.05
STORAGE_RETRY_SECONDS_MAX: Final = 2.0
#: How often an event without a key is handed to a store that does not answer, and for how long at most: enough for a
#: connection that broke, and not so long that the caller believes the call hangs.
SEND_TRIES_MAX: Final = 6
SEND_SECONDS_MAX: Final = 5.0
#: A page of a listing, when nobody says.
PAGE_SIZE_DEFAULT: Final = 100
PAGE_SIZE_MAX: Final = 1_000

# -- what people do (see perdure.admin) ------------------------------------------------------------------

#: Runs removed in one transaction by `prune`. One of them may have a journal of thousands of records, and workers wait
#: for the transaction to end; a hundred small ones take a few milliseconds.
PRUNE_BATCH: Final = 100
#: Runs replayed by `check` between two looks at everything else the event loop has to do.
CHECK_BATCH: Final = 50
#: Children of children that `why` explains; deeper ones are named.
WHY_DEPTH_MAX: Final = 5
#: Unread items that `why` looks at: a full inbox is a number, not a list.
WHY_INBOX_MAX: Final = 1_000
#: Unread items that are read for a fork or a resume: all that any inbox holds of a hundred types.
FORK_INBOX_MAX: Final = 1_000_000

# -- SQLite ----------------------------------------------------------------------------------------------

#: How long a write waits for another process's transaction. Ours take milliseconds.
SQLITE_BUSY_SECONDS: Final = 10.0
#: Jobs put into one transaction by the writer thread; keeps a commit's latency bounded under load.
SQLITE_GROUP_JOBS_MAX: Final = 2_000

# -- PostgreSQL ------------------------------------------------------------------------------------------

#: How long a transaction waits for a lock. Ours take milliseconds; a transaction that holds one longer is not ours.
POSTGRES_LOCK_SECONDS: Final = 5
#: How long the server waits for the next statement of a transaction before it ends it, and with it the session. Between
#: two of ours there are microseconds; a process that is stopped there, or behind a network that swallows everything,
#: must not keep its locks for longer than others wait for them: they could not take over its runs
#: (tests/fleet/test_stopped_in_a_transaction.py).
POSTGRES_IDLE_SECONDS: Final = 3
#: How long a call of the server may take before its connection is given up: longer than a lock is waited for. A server
#: that is stopped, or behind a network that swallows everything, keeps the connection open and never answers.
POSTGRES_CALL_SECONDS: Final = 10
#: How often a transaction is begun again that found a lock taken or a row changed, with a growing pause. After that
#: its caller hears of it, and repeats the call later.
POSTGRES_TRIES_MAX: Final = 12
#: Jobs put into one transaction by the writer's thread: fewer than on SQLite, because their locks are held together.
POSTGRES_GROUP_JOBS_MAX: Final = 200
#: Turns and new runs in one statement: larger groups bring nothing more (FLEET §2), and others wait for them.
POSTGRES_GROUP_TURNS_MAX: Final = 1_000
#: Notifications of many commits become one in this time.
POSTGRES_NOTIFY_SECONDS: Final = 0.01
#: How often a store without push is asked whether something changed.
POSTGRES_POLL_SECONDS: Final = 0.5
#: Runs of a dead worker freed in one transaction.
POSTGRES_REAP_RUNS_MAX: Final = 1_000
#: For how long a worker that says nothing keeps its runs: a fleet goes on soon after a machine is lost, and a pause of
#: some seconds (a snapshot of a virtual machine, a slow network) costs nothing.
LEASE_SECONDS_DEFAULT: Final = 10.0
#: What may be set. A shorter lease is lost in a pause of the collector or of a virtual machine.
LEASE_SECONDS_MIN: Final = 1.0
LEASE_SECONDS_MAX: Final = 3_600.0
#: A worker that could not renew its lease begins no new step for the last part of it: steps that begin there would
#: probably be repeated by others.
LEASE_DOUBTFUL_PART: Final = 1 / 3
#: How often it looks then whether it could renew after all.
LEASE_LOOK_SECONDS: Final = 0.1
#: What each worker of a fleet may claim beyond its share of what is due.
CLAIM_BEYOND_SHARE: Final = 10
#: So many due runs are counted to find out what a share is. Of more than that everybody takes a part of so many, and
#: looks again this long afterwards.
CLAIM_COUNTED_MAX: Final = 2_000
CLAIM_AGAIN_SECONDS: Final = 0.1
#: How often a worker says that it lives: three fit into a lease, so that a lost packet changes nothing.
HEARTBEAT_SECONDS_DEFAULT: Final = 3.0
#: How often a client without a worker asks for the store's time: clocks drift by less than a millisecond in it.
CLIENT_CLOCK_SECONDS: Final = 60.0

# -- several workers of one command (see perdure.cli.supervisor) -----------------------------------------

#: More than any machine has cores for. Each is a Python of its own with an event loop, tens of megabytes and, on
#: PostgreSQL, five connections.
WORKER_PROCESSES_MAX: Final = 128
#: Pauses before a child that died is started again: from this, doubling, to the next.
CHILD_RESTART_SECONDS_MIN: Final = 0.5
CHILD_RESTART_SECONDS_MAX: Final = 30.0
#: Each pause is drawn from [1 - jitter, 1 + jitter] times the computed one.
CHILD_RESTART_JITTER: Final = 0.25
#: A child that worked for this long and then died is a new misfortune, not the old one.
CHILD_SETTLED_SECONDS: Final = 60.0
#: What a child gets to import its workflows, open the store and say that it is ready, before a rolling restart gives up
#: on it.
CHILD_READY_SECONDS_MAX: Final = 60.0
#: What the supervisor gives its children beyond what they give themselves, before it ends them.
CHILD_LEAVING_SECONDS: Final = 5.0

# -- what `perdure doctor` says (see perdure.admin.doctor) -----------------------------------------------

#: What one check may take. Most take milliseconds; counting a hundred million runs does not matter so much.
DOCTOR_CHECK_SECONDS: Final = 3.0
#: A look for damage in a SQLite file reads all of it: half a gigabyte or so in this time, and what it did not reach is
#: said.
DOCTOR_INTEGRITY_SECONDS: Final = 10.0
#: From when a transaction is called old, and a problem. Ours take milliseconds; a report or a backup takes minutes.
DOCTOR_TRANSACTION_SECONDS_ATTENTION: Final = 300.0
DOCTOR_TRANSACTION_SECONDS_PROBLEM: Final = 3_600.0
#: The same by how many transactions have begun since, each of which leaves something behind that no vacuum may remove.
DOCTOR_TRANSACTIONS_ATTENTION: Final = 50_000
DOCTOR_TRANSACTIONS_PROBLEM: Final = 1_000_000
#: How long a session may do nothing within a transaction: it may keep locks, and nobody is at work there.
DOCTOR_IDLE_SECONDS: Final = 60.0
#: Dead rows of a table: fewer are never worth a word, more only if they are also so large a part of it. Autovacuum
#: comes at one in a hundred.
DOCTOR_DEAD_ROWS_MIN: Final = 10_000
DOCTOR_DEAD_PART_ATTENTION: Final = 0.25
DOCTOR_DEAD_PART_PROBLEM: Final = 0.75
#: Between the clock of this machine and that of the database. Leases and timers follow the database; what is read in
#: logs does not.
DOCTOR_CLOCK_SECONDS: Final = 1.0
#: Of a standby: what a failover loses, or how long a synchronous commit may wait.
DOCTOR_LAG_SECONDS: Final = 10.0
#: WAL kept for a standby that does not fetch it; and in SQLite's own file, where readers have to look through it.
DOCTOR_WAL_BYTES: Final = 1 << 30
DOCTOR_SQLITE_WAL_BYTES: Final = 256 << 20
#: Free space of the disk of a SQLite file.
DOCTOR_FREE_BYTES_ATTENTION: Final = 1 << 30
DOCTOR_FREE_BYTES_PROBLEM: Final = 64 << 20
#: Transaction numbers used since the oldest row was frozen. PostgreSQL begins to vacuum by itself at 200 million, and
#: takes no changes at 2,100 million.
DOCTOR_FREEZE_ATTENTION: Final = 500_000_000
DOCTOR_FREEZE_PROBLEM: Final = 1_500_000_000
#: How long a due run may wait for a worker: some sweeps and a lease.
DOCTOR_DUE_SECONDS: Final = 30.0
#: Rows that are counted to say "more than so many".
DOCTOR_ROWS_COUNTED: Final = 100_000
#: Connections of a worker process: lane, writer, reader, lease and listener (see perdure.store.postgres.store).
POSTGRES_CONNECTIONS: Final = 5

# -- moving to another store -----------------------------------------------------------------------------

#: Runs, and records of them, that are copied at once: they are in memory twice, to be compared.
MOVE_PAGE_RUNS: Final = 200
MOVE_PAGE_RECORDS: Final = 20_000
#: Runs that are listed at once.
MOVE_LIST_RUNS: Final = 1_000
#: Passes over the ended runs while the old store works on. A store that ends more in a pass than are copied at once,
#: five times over, will do so for ever; what is left is copied while everything stands still.
MOVE_PASSES_MAX: Final = 5
#: How long a store may be away while runs are moved, and the longest pause between two tries. A restart of a database
#: takes seconds, a failover half a minute; after five minutes somebody had better look.
MOVE_RETRY_SECONDS: Final = 300.0
MOVE_RETRY_PAUSE_SECONDS_MAX: Final = 2.0
