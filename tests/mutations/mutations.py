"""Deliberate bugs: each a small change of the code as it stands, applied in memory.

A change names the function and the piece of its source that is replaced, so it cannot go stale unnoticed: if the piece
is gone, applying it fails. `caught_by` is "the simulator", or the test that fails.

`python -m mutations` (with `PYTHONPATH=tests`) applies each in turn and writes `docs/reference/mutations.md`.
"""

from __future__ import annotations
import __future__

import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from sim.plan import USUAL, Setting

SIMULATOR = "the simulator"


class Change(NamedTuple):
    """What else has to be broken, where two places defend the same."""

    where: str
    old: str
    new: str


class Mutation(NamedTuple):
    """`where`: module and function, "sql:name" for a statement of the SQLite store, "postgres:name" of the other."""

    name: str
    bug: str
    where: str
    old: str
    new: str
    caught_by: str = SIMULATOR
    #: A seed that shows it, for bugs that few do: the search begins there.
    first: int = 0
    #: In which kind of world (`sim.plan.Setting`).
    setting: Setting = USUAL
    #: Either alone changes nothing.
    also: Sequence[Change] = ()

    @property
    def needs_postgres(self) -> bool:
        return "postgres" in self.where + self.caught_by


@contextmanager
def applied(mutation: Mutation) -> Iterator[None]:
    """The bug is in the code for as long as the block lasts."""
    undo = apply(mutation)
    try:
        yield
    finally:
        undo()


def apply(mutation: Mutation) -> Callable[[], None]:
    """Put the bug in. Returns what takes it out again."""
    undo = [_apply(mutation)]
    for change in mutation.also:
        undo.append(_apply(mutation._replace(where=change.where, old=change.old, new=change.new)))

    def undo_all() -> None:
        while undo:
            undo.pop()()

    return undo_all


def _apply(mutation: Mutation) -> Callable[[], None]:
    module_name, _, path = mutation.where.partition(":")
    if module_name == "sql":
        return _apply_sql(path, mutation)
    if module_name == "postgres":
        return _apply_postgres(path, mutation)
    module = importlib.import_module(f"perdure.{module_name}")
    owner: Any = module
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    before = inspect.getattr_static(owner, name)
    function = before.fget if isinstance(before, property) else before
    source = textwrap.dedent(inspect.getsource(function))
    flags = __future__.annotations.compiler_flag
    space: dict[str, Any] = {}
    code = compile(_replaced(source, mutation), f"<mutation {mutation.name}>", "exec", flags=flags, dont_inherit=True)
    exec(code, vars(module), space)
    owners = [owner] if parents else _importers(name, before)
    for one in owners:
        setattr(one, name, space[name])

    def undo() -> None:
        for one in owners:
            setattr(one, name, before)

    return undo


def _importers(name: str, function: Any) -> list[Any]:
    """The module of a function, and those that have imported it by its name."""
    found = [module for path, module in sys.modules.items() if path.startswith("perdure.")]
    return [module for module in found if vars(module).get(name) is function]


def _apply_sql(name: str, mutation: Mutation) -> Callable[[], None]:
    """Instead of the statement, wherever the SQLite store has it: its sessions and its modules."""
    from perdure.store.sqlite.queries import SQL
    from perdure.store.sqlite.session import Session

    changed = {**SQL, name: _replaced(SQL[name], mutation)}
    places: list[tuple[Any, str, Any]] = []
    modules = [each for path, each in sys.modules.items() if path.startswith("perdure.store.sqlite.")]
    for module in [*modules, Session]:
        for attribute, value in list(vars(module).items()):
            if value is SQL or value is SQL[name]:
                places.append((module, attribute, value))
                setattr(module, attribute, changed if value is SQL else changed[name])

    def undo() -> None:
        for module, attribute, value in places:
            setattr(module, attribute, value)

    return undo


def _apply_postgres(name: str, mutation: Mutation) -> Callable[[], None]:
    """Where statements are prepared, and where they are sent without that, which all of them come by."""
    from perdure.store.postgres.connection import Connection
    from perdure.store.postgres.queries import SQL

    sql, changed = SQL[name], _replaced(SQL[name], mutation)
    prepare, send = Connection.prepare, Connection._exec_params

    def prepare_changed(self: Connection, statement: bytes, text: str) -> None:
        prepare(self, statement, changed if text == sql else text)

    def send_changed(self: Connection, text: str, parameters: Sequence[Any]) -> Any:
        return send(self, changed if text == sql else text, parameters)

    Connection.prepare, Connection._exec_params = prepare_changed, send_changed  # type: ignore[method-assign]

    def undo() -> None:
        Connection.prepare, Connection._exec_params = prepare, send  # type: ignore[method-assign]

    return undo


def _replaced(source: str, mutation: Mutation) -> str:
    if source.count(mutation.old) != 1:
        raise AssertionError(
            f"{mutation.where} does not have {mutation.old!r} exactly once; bring the mutation up to date"
        )
    return source.replace(mutation.old, mutation.new)


_RULES, _TABLES, _MEMORY_RUNS = "store.rules", "store.memory.tables", "store.memory.runs"
_MEMORY_TURNS, _MEMORY_INBOX = "store.memory.turns", "store.memory.inbox"
_MEMORY_EVENTS, _MEMORY_WORKERS = "store.memory.events", "store.memory.workers"
_COMMITTING, _LOADING, _LEAVING = "engine.worker.committing", "engine.worker.loading", "engine.worker.leaving"
_SWEEP, _ADVANCE, _ATTEMPTS = "engine.sweep", "kernel.advance", "engine.attempts"
_HOSTING, _COLLECTOR = "kernel.eventloop.hosting", "kernel.eventloop.collector"
_ARRIVALS, _RUN, _PENDING = "kernel.arrivals", "kernel.run", "kernel.pending"
_SENT_AGAIN = "self._loop.call_later(self._outages.failed(error), self._again, moved, turns)"

_PROBATION = "engine.worker.probation"
_RACES, _ORDER = "tests/stores/test_postgres_races.py::test_", "tests/stores/test_postgres_lock_order.py::test_"
_LITTER, _ODD = Setting(frozenset({"litter"})), Setting(frozenset({"odd"}))
_HOSTS, _PLAGUE = Setting(frozenset({"hosts"})), Setting(frozenset({"plague"}))

MUTATIONS = [
    # -- the right to commit ---------------------------------------------------------------------------------------
    Mutation(
        "no-epoch-check", "a turn is accepted from any worker, no matter which one owns the run",
        f"{_TABLES}:Run.accepts", "self.epoch == turn.epoch", "True",
        first=876,
    ),
    Mutation(
        "no-seq-check", "a turn is accepted wherever the journal has got to",
        f"{_TABLES}:Run.accepts", "and self.next_seq == turn.expected_seq", "",
    ),
    Mutation(
        "terminate-keeps-the-epoch", "a worker may still commit to a run that was terminated",
        f"{_TABLES}:Run.accepts", "and self.status in CLAIMABLE", "or self.status is Status.CANCELLED",
        first=253,
    ),
    Mutation(
        "pause-keeps-the-epoch", "a worker may still commit to a run that was paused and unpaused meanwhile",
        f"{_MEMORY_RUNS}:pause", "run.epoch += 1", "pass",
        caught_by="tests/stores/test_suite.py -k paused_run_is_nobodys",
    ),
    Mutation(
        "claim-keeps-the-epoch", "a worker that claims a run goes on under the epoch of the one before",
        f"{_MEMORY_WORKERS}:claim", "run.epoch += 1", "pass",
    ),
    # -- commit before effect ----------------------------------------------------------------------------------------
    Mutation(
        "steps-before-the-commit", "steps begin while the turn that asked for them is still under way",
        f"{_COMMITTING}:Committing.commit", "cursor = self._requests.cursor",
        "cursor = self._requests.cursor\n    for one in moved:\n        self.carry_out(one)",
    ),
    Mutation(
        "result-before-the-commit", "callers hear the result of a run before its end is durable",
        f"{_COMMITTING}:Committing.commit", "cursor = self._requests.cursor",
        "cursor = self._requests.cursor\n    for one in moved:\n        if one.last and one.run.outcome is not None:\n"
        "            self._finished(one.id, one.last)",
        first=1139,
    ),
    Mutation(
        "a-failed-commit-counts", "a commit that raised is taken for done",
        f"{_COMMITTING}:Committing._failed", _SENT_AGAIN,
        "[self.release(r, t, NO_EFFECTS, self._requests.cursor) for r, t in zip(moved, turns) if r.is_current]",
    ),
    Mutation(
        "a-failed-commit-is-forgotten", "a commit that raised is not tried again",
        f"{_COMMITTING}:Committing._failed", _SENT_AGAIN, "pass",
    ),
    Mutation(
        "an-odd-commit-strands-its-group", "a commit that raises what is no error of a store is not tried again",
        f"{_COMMITTING}:Committing._failed", "elif len(turns) > 1:",
        "elif len(turns) > 1:\n        return\n    elif False:",
        setting=_ODD,
    ),
    Mutation(
        "an-odd-commit-parks-its-group", "one run cannot be stored, and those that come with it are parked too",
        f"{_COMMITTING}:Committing._failed", "elif len(turns) > 1:",
        "elif len(turns) > 1:\n        for resident in moved:\n"
        "            self._leaving.park(resident, error)\n    elif False:",
        setting=_ODD,
    ),
    Mutation(
        "one-odd-commit-parks-a-run", "a turn that could not be stored once is never tried again",
        f"{_COMMITTING}:Committing._failed", "elif tries < _LONE_TRIES:", "elif False:",
        setting=_ODD,
    ),
    Mutation(
        "answers-are-mixed-up", "the answers of a batch go to the wrong runs",
        f"{_COMMITTING}:Committing._committed", "turns, done.result()", "turns, list(done.result())[::-1]",
    ),
    # -- the inbox ---------------------------------------------------------------------------------------------------
    Mutation(
        "inbox-outside-the-transaction", "a turn records an event and leaves it in the inbox",
        f"{_MEMORY_TURNS}:accept", "inbox.drop(tables, run, run.inbox[item_id])", "pass",
    ),
    Mutation(
        "sent-twice-counts-twice", "the same key is accepted again after a lost answer",
        f"{_MEMORY_INBOX}:offer", "item.dedup in run.dedup", "False",
        caught_by="tests/events/test_identical_and_keyed.py",
    ),
    Mutation(
        "ended-runs-take-events", "an event for a run that has ended is accepted, and nobody will read it",
        f"{_RULES}:refusal", "if status in TERMINAL:", "if False:",
    ),
    Mutation(
        "a-gap-is-not-noticed", "an item that overtakes another one hides it",
        f"{_ARRIVALS}:Arrivals.add", "item.previous > self.last", "False",
    ),
    Mutation(
        "a-repeat-is-not-noticed", "an item that comes by two ways is delivered twice",
        f"{_ARRIVALS}:Arrivals.add", "item.id <= self.last", "False",
    ),
    Mutation(
        "news-is-not-read", "a worker does not look for what others sent to its runs",
        f"{_SWEEP}:Sweep._read_news", "self._worker.inbound.deliver(delivery)", "pass",
    ),
    Mutation(
        "release-without-a-look", "a run is released without looking for what has just arrived",
        f"{_MEMORY_WORKERS}:release", "AT_ONCE if newer else each.ready_at", "each.ready_at",
        first=95,
    ),
    Mutation(
        "eviction-hides-the-inbox", "a run leaves memory claiming to have seen every item",
        f"{_LEAVING}:Leaving.evict", "seen_item=resident.arrivals.last", "seen_item=limits.NEVER",
        first=95,
    ),
    Mutation(
        "a-dead-workers-inbox", "the runs of a dead worker are freed without looking into their inboxes",
        f"{_MEMORY_WORKERS}:free", " and not run.inbox", "",
    ),
    Mutation(
        "continue-loses-the-inbox", "the next generation does not get the unread events",
        f"{_MEMORY_TURNS}:accept", "_continue(run, turn.continued)",
        "_continue(run, turn.continued)\n"
        "        for item in list(run.inbox.values()):\n"
        "            inbox.drop(tables, run, item)",
    ),
    Mutation(
        "a-repeated-turn-sends-again", "a turn that comes again after a lost answer sends its events again",
        f"{_MEMORY_TURNS}:recognise", "return rules.recognise(",
        "sent = [one.effect for one in turn.entries if isinstance(one.effect, Send)]\n"
        "    for effect in sent if run.epoch == turn.epoch and run.next_seq > turn.expected_seq else ():\n"
        "        if effect.target in tables.by_id:\n"
        "            inbox.offer(tables, tables.by_id[effect.target], effect.item, 99)\n"
        "    return rules.recognise(",
    ),
    Mutation(
        "one-event-for-two-runs", "a published event for one run is given to another while one holds it",
        f"{_MEMORY_EVENTS}:_may_hold", "published.holder is None", "True",
        first=519,
    ),
    Mutation(
        "a-shared-event-again", "a run gets the same published event each time it waits",
        f"{_MEMORY_EVENTS}:_catch_up", "wait.shared = had", "pass",
    ),
    # -- children ----------------------------------------------------------------------------------------------------
    Mutation(
        "the-parent-is-not-told", "the end of a child is committed without the notice to its parent",
        f"{_MEMORY_TURNS}:accept", "if turn.notice is not None:", "if False:",
    ),
    Mutation(
        "children-are-forgotten", "children of a turn whose answer got lost are not taken up",
        f"{_LOADING}:Loading.adopt_children", "isinstance(entry.effect, Spawn)", "False",
        caught_by="tests/children/test_lost_answers.py",
    ),
    Mutation(
        "a-late-answer-diverges", "an answer that nobody waits for any more parks the run",
        f"{_RUN}:Run._answered_late", "operation is None or", "True or",
    ),
    # -- recovery ----------------------------------------------------------------------------------------------------
    Mutation(
        "no-sweep", "what is due is never claimed",
        f"{_SWEEP}:Sweep._sweep", "await self._claim()", "pass",
    ),
    Mutation(
        "the-dead-are-not-noticed", "the runs of dead workers are not freed",
        f"{_SWEEP}:Sweep._sweep", "await self._store.reap(self._worker.id, now)", "pass",
    ),
    Mutation(
        "no-poll-behind-the-hints", "a worker looks only when it is told to",
        f"{_SWEEP}:Sweep._wait", "self._clock.poll(seconds)", "None",
    ),
    Mutation(
        "lost-claims", "runs of a claim whose answer got lost are not looked for",
        f"{_SWEEP}:Sweep._sweep", "if unsure:", "if False:",
    ),
    Mutation(
        "the-sweep-is-too-eager", "a run is taken up although the answer that brings it is under way",
        "engine.worker.starting:Starting.expects", "one.new.id == run_id", "False",
        caught_by="tests/races/test_sweep_vs_answer.py",
    ),
    Mutation(
        "timers-die-with-their-worker", "a sleeping run of a dead worker is never due",
        f"{_MEMORY_WORKERS}:free", "NEVER if run.wake_at is None else run.wake_at", "NEVER",
    ),
    Mutation(
        "an-answer-that-nobody-delivers", "a run whose answer is stored but not seen counts as waiting",
        f"{_ADVANCE}:conclude", " or arrivals.outcomes or expecting", " or arrivals.outcomes",
    ),
    Mutation(
        "the-frontier-is-forgotten", "a turn does not say how far the code has seen the journal",
        f"{_ADVANCE}:conclude", "turn.frontier = pending.frontier(run.last_seq)",
        "turn.frontier = pending.frontier(turn.seq + len(turn.entries))",
    ),
    Mutation(
        "recovery-is-serial", "runs whose worker died once are taken one at a time",
        f"{_PROBATION}:Probation.__init__", "1 if recoveries_max > 2 else 0", "0",
        setting=_PLAGUE,
    ),
    Mutation(
        "waiting-runs-are-blamed", "a run that only waits is parked after ten deaths of its workers",
        f"{_LEAVING}:Leaving.rests",
        "self._acquittals.append(Acquittal(key=resident.key, epoch=resident.epoch, recoveries=0))", "return",
        setting=_PLAGUE,
    ),
    Mutation(
        "poison-is-not-parked", "a run that kills its workers goes on doing so",
        f"{_LOADING}:Loading.admit", "row.recoveries > self._recoveries_max", "False",
        setting=_PLAGUE,
    ),
    Mutation(
        "poison-is-parked-late", "a run may kill one worker more than the settings say",
        f"{_LOADING}:Loading.admit", "row.recoveries > self._recoveries_max",
        "row.recoveries > self._recoveries_max + 1",
        setting=_PLAGUE,
    ),
    Mutation(
        "suspects-are-blamed-together", "runs that were in memory with one that kills are parked with it",
        f"{_PROBATION}:group_size", "if deaths_left < _LEFT_MIN:", "if False:",
        first=88, setting=_PLAGUE,
    ),
    # -- hosts and collections ---------------------------------------------------------------------------------------
    Mutation(
        "a-host-fails-steps", "a step fails because its host cancels all tasks",
        f"{_ATTEMPTS}.outcomes:Outcomes.raised",
        "elif was_told and not self._interruptions.is_of_the_step(attempt, error):", "elif False:",
        setting=_HOSTS,
    ),
    Mutation(
        "a-host-stops-the-engine", "an engine whose tasks were cancelled does nothing more, although its loop goes on",
        "engine.parts:EngineParts._start_sweeping",
        "task.get_loop().call_later(limits.CANCELLED_BY_OTHERS_SECONDS, again)", "pass",
        setting=_HOSTS,
    ),
    Mutation(
        "collections-are-the-runs", "what a collection finalises in the middle of a turn asks the run, not the host",
        f"{_COLLECTOR}:_Paused.__init__", "loop.owner = None", "return",
        setting=_LITTER,
    ),
    Mutation(
        "collected-generators-are-closed", "a generator is closed when a collection finds it, not when its run ends",
        f"{_HOSTING}:_leave_generator", "entry.kept = generator",
        "loop.close_generator(entry, generator, entry.branch)",
        setting=_LITTER,
    ),
    # -- time --------------------------------------------------------------------------------------------------------
    Mutation(
        "early-timers", "a timer fires as soon as it is looked at",
        f"{_PENDING}:Pending.due_timer", "timer.at <= now", "True",
    ),
    Mutation(
        "sleepers-are-evicted-for-good", "a run leaves memory without saying when it is due",
        f"{_LEAVING}:Leaving.evict", "deadline if deadline is not None else limits.NEVER", "limits.NEVER",
    ),
    Mutation(
        "no-alarm", "the deadline of a run in memory is not set",
        "engine.worker.waiting:Waiting.settle", "self._deadlines.set(resident.key, deadline)", "pass",
    ),
    Mutation(
        "time-goes-back", "a record has the time of a clock that is behind",
        f"{_ADVANCE}:_deliver", "turn.at = now if now > run.loop.now else run.loop.now", "turn.at = now",
    ),
    # -- steps -------------------------------------------------------------------------------------------------------
    Mutation(
        "none-is-missing", "a step that returns None counts as not done",
        f"{_ATTEMPTS}.serving:Serving._serve_some", "value = self._calling.begin(attempt)",
        "value = self._calling.begin(attempt)\n"
        "                if value is None:\n"
        "                    return served, attempt, None",
    ),
    Mutation(
        "attempts-are-not-counted", "every attempt is the first",
        f"{_ATTEMPTS}.runner:StepRunner.start", "operation.attempts + 1", "1",
    ),
    Mutation(
        "a-cancelled-step-still-counts", "the outcome of a step that was given up is recorded",
        f"{_ADVANCE}:_next", "while outcomes and outcomes[0].operation.settled:", "while False:",
    ),
    Mutation(
        "retries-do-not-survive", "a failed attempt is recorded, and the next one never begins",
        f"{_ADVANCE}:advance", "if run.pending.backoffs and run.outcome is None:", "if False:",
    ),
    # -- several processes on PostgreSQL -------------------------------------------------------------------------------
    Mutation(
        "news-from-the-newest-on", "the cursor of news is the newest transaction, and steps over slower ones",
        "postgres:oldest_transaction", "pg_snapshot_xmin", "pg_snapshot_xmax",
        f"{_RACES}news_has_what_was_written_before_it_was_read_and_committed_afterwards",
    ),
    Mutation(
        "release-reads-the-inbox", "whether an item came is read from the inbox while its transaction is under way",
        "postgres:release_runs", "r.last_item > (given.value ->> 2)::bigint",
        "EXISTS (SELECT 1 FROM inbox WHERE run_key = r.key AND id > (given.value ->> 2)::bigint)",
        f"{_RACES}a_run_that_is_released_while_an_item_arrives_is_due_at_once",
        also=[Change("store.postgres.locks:plan_of", "known is not None", "known not in (None, _release)")],
    ),
    Mutation(
        "publish-without-the-lock", "an event is published while a run that nobody sees yet begins to wait for it",
        "postgres:lock_types", " FOR UPDATE", "",
        f"{_RACES}an_event_published_while_a_run_begins_to_wait_reaches_it",
    ),
    Mutation(
        "wait-without-the-lock", "a run begins to wait while an event that nobody sees yet is published",
        "postgres:lock_types_shared", " FOR SHARE", "",
        f"{_RACES}a_run_that_begins_to_wait_while_an_event_is_published_gets_it",
    ),
    Mutation(
        "locks-as-they-come", "a transaction locks runs in the order in which it finds them",
        "postgres:lock_runs", "    ORDER BY key\n", "",
        f"{_ORDER}runs_are_locked_by_key",
    ),
    Mutation(
        "groups-as-they-come", "a statement for many turns locks their runs in the order in which they came",
        "store.postgres.batches:batches_of", "turns.sort(key=_KEY)", "pass",
        f"{_ORDER}the_lane_locks_the_runs_of_a_statement_by_key",
    ),
    Mutation(
        "cancelled-commits-count", "a commit whose wait for the standby was cancelled counts as done",
        "store.postgres.connection:Connection._noticed", "self.not_replicated = True", "pass",
        "tests/stores/test_postgres_doubt.py::test_a_commit_whose_wait_for_the_standby_is_cancelled_is_in_doubt",
    ),
    Mutation(
        "anybody-commits-a-step", "a turn from step to step is accepted from any worker",
        "postgres:lane_step", "(owner = $9::text OR owner IS NULL)", "($9::text <> '' OR owner IS NULL)",
        "'tests/stores/test_suite.py::TestPostgres::test_store[late-a_late_turn_is_refused_alone[of another-alone]]'",
    ),
    Mutation(
        "anybody-commits-an-effect", "a turn with effects is accepted from any worker",
        "postgres:advance_run", "(owner = $12 OR owner IS NULL)", "($12 <> '' OR owner IS NULL)",
        "'tests/stores/test_suite.py::TestPostgres::test_store[late-a_late_turn_is_refused_alone[of another-alone]]'",
    ),
    Mutation(
        "leases-by-the-clock-of-a-worker", "whether a lease is over is judged by the clock of the worker that looks",
        "store.postgres.workers:mark_dead", 'SQL["mark_dead"]',
        'SQL["mark_dead"].replace("clock_timestamp()", f"to_timestamp({__import__(\'time\').time()})")',
        f"{_RACES}the_clock_of_a_worker_does_not_say_who_is_dead",
    ),
    Mutation(
        "news-are-read-before-they-are-handled", "the cursor moves first, and what fails after that is lost",
        f"{_SWEEP}:Sweep._read_news", "for delivery in news.items:",
        "self._requests.cursor = news.cursor\n        for delivery in news.items:",
        "tests/lifecycle/test_sweep_goes_on.py::test_news_whose_handling_fails_are_handled_again[memory-3]",
    ),
]  # fmt: skip
