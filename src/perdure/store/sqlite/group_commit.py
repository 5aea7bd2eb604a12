"""The group commit: all jobs that have queued, in as few transactions as possible.

A job keeps its own outcome: one that raises changes nothing and does not disturb its neighbours. A store fault (busy,
full, I/O) is the same for the whole group, and is left to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import apsw

from perdure.store.sql.job_thread import Job, Outcome
from perdure.store.sql.turns import commit_turns, create_all
from perdure.store.sqlite import bulk
from perdure.store.sqlite.pace import Yielding
from perdure.store.sqlite.queries import SQL
from perdure.store.sqlite.session import STATEMENT_FAULTS, Session, as_moved
from perdure.store.sqlite.workers import data_version
from perdure.store.turn import NO_EFFECTS, goes_from_step_to_step

#: The answer to a turn that is all there is.
_NO_EFFECTS: Final = (NO_EFFECTS,)
_BEGIN, _COMMIT, _ROLLBACK = SQL["begin"], SQL["commit"], SQL["rollback"]


class HalfDone(Exception):
    """A job raised after it had already changed something: the group was rolled back and must be split."""


def carry_out(
    session: Session, jobs: list[Job], yielding: Yielding, count_transaction: Callable[[int], None]
) -> list[Outcome]:
    """Carry out a group in one transaction; one outcome for each job. Raises `HalfDone`, and faults of the store."""
    return _by_one_statement(session, jobs, yielding, count_transaction) or _job_by_job(
        session, jobs, count_transaction
    )


def _job_by_job(session: Session, jobs: list[Job], count_transaction: Callable[[int], None]) -> list[Outcome]:
    session.execute(_BEGIN)
    outcomes: list[Outcome] = []
    total_changes = session.total_changes
    began_with = total_changes()
    for job in jobs:
        before = total_changes()
        try:
            outcomes.append((job, job.function(session, *job.arguments), None))
        except Exception as error:
            if isinstance(error, apsw.Error) and not isinstance(error, STATEMENT_FAULTS):
                raise
            told = as_moved(session, error) or error
            if total_changes() != before:
                session.execute(_ROLLBACK)
                raise HalfDone from told
            outcomes.append((job, None, told))
    session.execute(_COMMIT)
    count_transaction(total_changes() - began_with)
    return outcomes


def _by_one_statement(
    session: Session, jobs: list[Job], yielding: Yielding, count_transaction: Callable[[int], None]
) -> list[Outcome]:
    """The outcomes of a group that one statement could carry out; nothing was done if there are none."""
    if len(jobs) == 1 and jobs[0].function is commit_turns:
        turns = jobs[0].arguments[0]
        if len(turns) == 1 and goes_from_step_to_step(turns[0]):
            if not bulk.commit_step(session, turns[0]):
                return []
            count_transaction(1)
            return [(jobs[0], _NO_EFFECTS, None)]
    requests = [request_of(job.function, job.arguments) for job in jobs]
    known = [request for request in requests if request is not None]
    answers = bulk.commit_all(session, known, yielding.has_begun) if len(known) == len(jobs) else None
    if answers is None:
        yielding.has_begun(0)
        yielding.pace.ended()
        return []
    count_transaction(yielding.pace.ended())
    return [
        (job, data_version(session) if job.function is data_version else answer, None)
        for job, answer in zip(jobs, answers, strict=True)
    ]


def request_of(function: Callable[..., Any], arguments: Sequence[Any]) -> bulk.Request | None:
    """What a job asks for, if one statement may do it together with others."""
    if function is commit_turns:
        return arguments[0], ()
    if function is create_all:
        return (), arguments[0]
    if function is data_version:  # often among them, and it changes nothing
        return (), ()
    return None


def parts_of(jobs: list[Job]) -> list[list[Job]]:
    """A group in the parts that are carried out in one transaction each, in the same order: all together, unless a
    large batch of turns in it can be done by one statement when the others do not get in its way."""
    requests = [request_of(job.function, job.arguments) for job in jobs]
    if None not in requests or not bulk.is_worthwhile(filter(None, requests)):
        return [jobs]
    parts: list[list[Job]] = []
    last: bool | None = None
    for job, request in zip(jobs, requests, strict=True):
        if (request is None) is not last:
            parts.append([])
            last = request is None
        parts[-1].append(job)
    return parts
