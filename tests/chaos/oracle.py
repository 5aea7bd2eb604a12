"""What must hold in the database when everything has come to rest, and how that agrees with what the clients were told
and with what the steps wrote down. It reads tables, and knows nothing of how the engine works.

    oracle 1  every run has ended as it should; there are no others than were asked for
    oracle 2  journals are dense from 1; only loops have dropped records, and counted them
    oracle 3  an operation is settled once; a step's record has the value of an attempt that really was
    oracle 4  an attempt is not begun twice by the same worker, unless that lost its right to all of its runs: nothing
              else repeats a step
    oracle 5  an acknowledged event was received once, one that nobody heard an answer for at most once
    oracle 6  nothing is left over: inboxes, waits, watches, dead letters, publications, runs of dead workers
    oracle 7  no deadlock reached a user; the logs are short, and nothing in them is unforeseen
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from chaos.clients import CHIMES, Told
from perdure.kernel.journal import Row, from_row
from perdure.kernel.operations.receive import EventReceived
from perdure.kernel.operations.step import StepDone

#: Kinds of records of which there is at most one for each location.
_ONCE = {
    "step_done", "step_failed", "timer_fired", "event_received", "child_done", "child_started", "run_ended", "sent",
    "published", "replied",
}  # fmt: skip
#: Tables in which nothing may be left.
_EMPTY = ("inbox", "waits", "watches", "dead_letters", "refusals")
#: What a worker may say: so much at its start, and so much for each fault that it saw.
_LINES_MIN, _LINES_PER_FAULT = 40, 12


class Effect(NamedTuple):
    """An attempt that a step wrote down when it began."""

    token: str
    worker: str
    run: str
    location: str
    attempt: int


class Verdict:
    """What is wrong, and figures of what was seen."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.figures: Counter[str] = Counter()

    def require(self, condition: object, what: str) -> None:
        if not condition:
            self.wrong.append(what)


def effects_in(folder: Path) -> list[Effect]:
    found = []
    for path in sorted(folder.glob("effects-*.txt")):
        for line in path.read_text().splitlines():
            token, worker, run, location, attempt = line.split("\t")
            found.append(Effect(token, worker, run, location, int(attempt)))
    return found


class Oracle:
    """Of one fleet that has come to rest."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str, told: Told, folder: Path) -> None:
        self._connection = connection
        self._schema = schema
        self._told = told
        self._folder = folder
        self.verdict = Verdict()

    def rows(self, text: str) -> list[Any]:
        query = sql.SQL(text).format(schema=sql.Identifier(self._schema))  # type: ignore[arg-type]
        return self._connection.execute(query).fetchall()

    def judge(self) -> Verdict:
        runs = self.rows(
            "SELECT r.key, r.id, d.workflow, r.status, r.generation, r.next_seq, r.pruned, r.owner, r.outcome, "
            "r.parent_key FROM {schema}.runs r JOIN {schema}.definitions d ON d.id = r.definition ORDER BY r.key"
        )
        journals: defaultdict[int, list[Row]] = defaultdict(list)
        for key, *values in self.rows(
            'SELECT run_key, seq, at, kind, location, data, "check" FROM {schema}.journal '
            "ORDER BY run_key, generation, seq"
        ):
            journals[key].append(Row(*values))
        self._ends(runs)
        effects = effects_in(self._folder)
        for key, run_id, workflow, _, _, next_seq, pruned, *_ in runs:
            self._dense(run_id, workflow, next_seq, pruned, journals[key])
        self._steps({run_id: journals[key] for key, run_id, *_ in runs}, effects)
        self._events({run_id: (workflow, journals[key]) for key, run_id, workflow, *_ in runs})
        self._leftovers()
        self.verdict.figures["records"] = sum(map(len, journals.values()))
        return self.verdict

    def _ends(self, runs: list[Any]) -> None:
        require = self.verdict.require
        self.verdict.figures["runs"] = len(runs)
        stored = {run_id for _, run_id, *_ in runs}
        for lost in sorted(self._told.started - stored)[:5]:
            require(False, f"oracle 1: the start of run {lost} was acknowledged, and it is not there")
        for key, run_id, workflow, status, generation, _, _, owner, outcome, parent in runs:
            require(
                status == outcome == "completed", f"oracle 1: run {run_id} ({workflow}) is {status}, outcome {outcome}"
            )
            require(generation == 1, f"oracle 1: run {run_id} is in generation {generation}")
            require(
                parent is not None or run_id in self._told.started, f"oracle 1: nobody asked for run {run_id} ({key})"
            )
            require(("/" in run_id) == (parent is not None), f"oracle 1: run {run_id} has parent {parent}")
            del owner

    def _dense(self, run_id: str, workflow: str, next_seq: int, pruned: int, rows: list[Row]) -> None:
        require = self.verdict.require
        numbers = [row.seq for row in rows]
        if workflow == "chaos_loop":
            require(
                len(numbers) + pruned == next_seq - 1,
                f"oracle 2: run {run_id}: {len(numbers)} + {pruned} != {next_seq}",
            )
            require(sorted(set(numbers)) == numbers, f"oracle 2: run {run_id} has records {numbers}")
        else:
            require(
                numbers == list(range(1, next_seq)), f"oracle 2: run {run_id} has records {numbers}, next {next_seq}"
            )
        settled = Counter((row.kind, row.location) for row in rows if row.kind in _ONCE)
        twice = [where for where, count in settled.items() if count > 1]
        require(not twice, f"oracle 3: run {run_id} has settled more than once: {twice}")
        ends = [row.kind for row in rows if row.kind in ("started", "completed", "failed", "cancelled")]
        require(ends == ["started", "completed"], f"oracle 2: run {run_id} begins and ends with {ends}")

    def _steps(self, journals: dict[str, list[Row]], effects: list[Effect]) -> None:
        require, figures = self.verdict.require, self.verdict.figures
        begun: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for effect in effects:
            begun[effect.run, effect.location].add(effect.token)
        recorded = 0
        for run_id, rows in journals.items():
            for row in rows:
                body = from_row(row).body
                if isinstance(body, StepDone):
                    recorded += 1
                    token = json.loads(bytes(body.value)).split(" ")[0]
                    require(
                        token in begun[run_id, row.location],
                        f"oracle 3: run {run_id} recorded {token} at {row.location}, of {begun[run_id, row.location]}",
                    )
        known = {effect.run for effect in effects}
        require(
            known <= set(journals), f"oracle 1: steps of runs that are not there: {sorted(known - set(journals))[:5]}"
        )
        again = Counter((effect.worker, effect.run, effect.location, effect.attempt) for effect in effects)
        lost = self._lost_workers()
        twice = [where for where, count in again.items() if count > 1 and where[0] not in lost]
        require(not twice, f"oracle 4: begun more than once by one worker: {twice[:5]} ({len(twice)} in all)")
        attempts = {(effect.run, effect.location, effect.attempt) for effect in effects}
        figures["steps recorded"], figures["attempts"] = recorded, len(effects)
        figures["repeated because a worker was lost"] = len(effects) - len(attempts)

    def _lost_workers(self) -> set[str]:
        """Those that others took for dead, or that could not renew their lease, as they say themselves."""
        texts = [path.read_text(errors="replace") for path in self._folder.glob("log-*.txt")]
        return {
            worker for text in texts for worker in re.findall(r"the worker (\w+) .* goes on under the new id", text)
        }

    def _events(self, runs: dict[str, tuple[str, list[Row]]]) -> None:
        require = self.verdict.require
        tickets: Counter[int] = Counter()
        for run_id, (workflow, rows) in runs.items():
            heard: Counter[tuple[str, int]] = Counter()
            for row in rows:
                body = from_row(row).body
                if isinstance(body, EventReceived) and body.type != "ChaosDone":
                    heard[body.type, json.loads(bytes(body.value))["number"]] += 1
            doubled = [what for what, count in heard.items() if count > 1]
            require(not doubled, f"oracle 5: run {run_id} received more than once: {doubled}")
            tickets.update(number for kind, number in heard if kind == "ChaosTicket")
            if workflow == "chaos_hear":
                require(len(heard) == CHIMES, f"oracle 5: run {run_id} heard {sorted(heard)}")
            notes = {number for kind, number in heard if kind == "ChaosNote"}
            sent, tried = self._told.sent[run_id], self._told.tried[run_id]
            require(sent <= notes, f"oracle 5: run {run_id} lost {sorted(sent - notes)}, which were acknowledged")
            if workflow in ("chaos_listen", "chaos_collect"):
                require(notes <= tried, f"oracle 5: run {run_id} received {sorted(notes - tried)}, which nobody sent")
        taken_twice = [number for number, count in tickets.items() if count > 1]
        require(not taken_twice, f"oracle 5: tickets taken more than once: {taken_twice}")
        require(
            len(tickets) == sum(1 for workflow, _ in runs.values() if workflow == "chaos_take"),
            "oracle 5: tickets lost",
        )

    def _leftovers(self) -> None:
        require = self.verdict.require
        for table in _EMPTY:
            ((count,),) = self.rows(f"SELECT count(*) FROM {{schema}}.{table}")  # of the list above
            require(count == 0, f"oracle 6: {count} rows are left in {table}")
        left = self.rows("SELECT type, count(*) FROM {schema}.publications WHERE type <> 'ChaosChime' GROUP BY type")
        require(not left, f"oracle 6: publications are left: {left}")
        orphans = self.rows(
            "SELECT count(*), min(id) FROM {schema}.runs WHERE owner IS NOT NULL AND owner NOT IN "
            "(SELECT id FROM {schema}.workers WHERE NOT reaped AND expires_at > clock_timestamp())"
        )
        require(orphans[0][0] == 0, f"oracle 6: {orphans[0][0]} runs belong to dead workers, such as {orphans[0][1]}")


def judge_logs(verdict: Verdict, logs: Iterable[tuple[str, str]], faults: int) -> None:
    """`logs`: name and text of each worker process."""
    for name, text in logs:
        lines = text.splitlines()
        verdict.figures["log lines"] += len(lines)
        most = _LINES_MIN + _LINES_PER_FAULT * faults
        verdict.require(len(lines) <= most, f"oracle 7: worker {name} has written {len(lines)} lines, of {most}")
        for line in lines:
            for word in ("CRITICAL", "Traceback", "unforeseen", "ERROR", "never retrieved", "never awaited"):
                if word in line:
                    verdict.require(False, f"oracle 7: worker {name}: {line}")
        verdict.figures["log lines that mention a deadlock"] += sum("deadlock" in line for line in lines)


def deadlocks_in(log: str) -> int:
    """How many the server has ended, all of which were repeated."""
    return len(re.findall("deadlock detected", log))
