"""How a SQLite store is: what `perdure doctor` finds out about the file, its disk, and what is in it.

By a connection of its own that refuses writes, as `looking` makes it: also of a file that cannot be written, or one of
an older schema. The file itself is never opened here: closing it would drop the locks that this process has on it. What
the disk and other processes have to do with it is in `health_disk`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import apsw

from perdure import limits
from perdure.errors import StoreError
from perdure.store.health import (
    Checks,
    Contents,
    DueRun,
    Examined,
    Finding,
    Parked,
    WorkerHealth,
    WorkerState,
    attention,
    fine,
    problem,
    size_text,
)
from perdure.store.model import Status
from perdure.store.sql.queries import load
from perdure.store.sqlite import health_disk, liveness, workers
from perdure.store.sqlite.looking import Look
from perdure.store.sqlite.migrate import newest, recognise
from perdure.store.sqlite.queries import SQL
from perdure.store.sqlite.session import Session, fault

#: What is asked here and nowhere else.
HEALTH: Final = load(Path(__file__).with_name("health.sql"))

#: Between two looks at the clock while a statement runs, in instructions of SQLite's machine: microseconds each.
_PROGRESS_STEPS: Final = 10_000


def examine(path: str, durability: str, own_workers: Sequence[str] = (), vfs: str | None = None) -> Examined:
    """Everything about the store in a file. Never raises what is wrong with it: that is a finding.

    `own_workers`: those of this process, whose locks are its own.
    """
    checks, look = Checks(lambda error: _explained(path, error)), Look(path, vfs)
    try:
        look.prepare()
    except StoreError as error:
        checks.findings.append(problem("file", str(error), "Nothing else can be looked at until this is resolved."))
        health_disk.look(checks, path)
        return Examined(path, tuple(checks.findings))
    try:
        contents = _look_inside(checks, look, path, durability, own_workers)
    finally:
        look.close()
    return Examined(path, tuple(checks.findings), contents)


def _look_inside(checks: Checks, look: Look, path: str, durability: str, own_workers: Sequence[str]) -> Contents | None:
    file = checks.read("file", look.original)
    if file is not None:
        try:
            checks.run("schema", lambda: _schema(recognise(file, path)))
            checks.run("journal", lambda: _journal(_value(file, HEALTH["journal_mode"]), durability))
            checks.run("size", lambda: _size(*_row(file, HEALTH["page_counts"])))
            checks.run("integrity", lambda: _integrity(file, path))
        finally:
            file.close()
    health_disk.look(checks, path)
    session = checks.read("runs", look.connect)
    if session is None:
        return None
    try:
        return _contents(checks, session, path, own_workers)
    finally:
        session.close()


def _explained(path: str, error: Exception) -> str | None:
    if isinstance(error, apsw.InterruptError):
        return f"it took longer than {limits.DOCTOR_CHECK_SECONDS:g} s."
    return fault(path, error).message if isinstance(error, apsw.Error) else None


def _bounded(session: Session, seconds: float, read: Callable[[], Any]) -> Any:
    """Raises `apsw.InterruptError` when it takes longer."""
    deadline = time.monotonic() + seconds
    session.connection.set_progress_handler(lambda: time.monotonic() > deadline, _PROGRESS_STEPS)
    try:
        return read()
    finally:
        session.connection.set_progress_handler(None)


def _rows(session: Session, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
    found: list[Any] = _bounded(session, limits.DOCTOR_CHECK_SECONDS, lambda: session.rows(sql, parameters))
    return found


def _row(session: Session, sql: str, parameters: Sequence[Any] = ()) -> Any:
    return _rows(session, sql, parameters)[0]


def _value(session: Session, sql: str) -> Any:
    return _row(session, sql)[0]


# -- the file --------------------------------------------------------------------------------------------


def _schema(version: int) -> Finding:
    figures: dict[str, Any] = {"version": version, "newest": newest()}
    text = f"version {version}; this perdure works with {newest()}"
    if not version:
        advice = "The first worker makes the tables (`perdure worker`)."
        return attention("schema", "the file is empty", advice, **figures)
    if version < newest():
        advice = "Make a backup, mind workers of an older perdure, then start a worker with --migrate."
        return attention("schema", text, advice, **figures)
    return fine("schema", text, **figures)


def _journal(mode: str, durability: str) -> Finding:
    figures: dict[str, Any] = {"journal_mode": mode, "durability": durability}
    if mode != "wal":
        text = f"journal_mode is {mode!r}: readers and writers wait for each other"
        return attention("journal", text, "The next worker turns write-ahead logging on again.", **figures)
    if durability == "relaxed":
        text = "write-ahead log, durability=relaxed: a power cut may lose the last commits, and nothing else"
        return fine("journal", text, **figures)
    return fine(
        "journal", "write-ahead log, synced at every commit: what is acknowledged survives a power cut", **figures
    )


def _size(page: int, pages: int, free: int) -> Finding:
    text = f"{size_text(page * pages)}, of which {size_text(page * free)} are free for what comes"
    figures: dict[str, Any] = {"bytes": page * pages, "free_bytes": page * free}
    advice = "`VACUUM` gives it back to the disk, while no worker runs." if free > pages / 2 and pages > 25_000 else ""
    return fine("size", text, advice, **figures)


def _integrity(session: Session, path: str) -> Finding:
    began = time.monotonic()
    try:
        found = _bounded(session, limits.DOCTOR_INTEGRITY_SECONDS, lambda: session.rows(HEALTH["quick_check"]))
    except apsw.InterruptError:
        text = f"no damage found in {limits.DOCTOR_INTEGRITY_SECONDS:g} s, in which not all of the file was read"
        return fine("integrity", text, f"All of it: sqlite3 {path} 'PRAGMA integrity_check'", complete=False)
    except apsw.CorruptError as error:
        found = [(str(error),)]
    if [tuple(row) for row in found] == [("ok",)]:
        return fine("integrity", f"no damage (all of it read in {time.monotonic() - began:.1f} s)", complete=True)
    said = "; ".join(str(row[0]) for row in found)
    advice = "Stop all workers, keep a copy of the file with its -wal, and restore a backup."
    return problem("integrity", f"the file is damaged: {said}", advice, complete=True)


# -- what is in it ---------------------------------------------------------------------------------------


def _contents(checks: Checks, session: Session, path: str, own_workers: Sequence[str]) -> Contents:
    read, now = checks.read, time.time_ns() // 1_000
    dead = read("dead-letters", lambda: _row(session, HEALTH["dead_letters"], (limits.DOCTOR_ROWS_COUNTED,)))
    return Contents(
        now=now,
        counts=read("runs", lambda: _counts(session)),
        parked=read("parked", lambda: [Parked(*row) for row in _rows(session, HEALTH["parked"])]),
        workers=read("workers", lambda: _workers(session, path, own_workers)),
        due=read("due", lambda: [DueRun(*row) for row in _rows(session, HEALTH["due"], (now,))]),
        due_count=read("due", lambda: int(_row(session, HEALTH["due_count"], (now, limits.CLAIM_COUNTED_MAX))[0])),
        dead_letters=None if dead is None else dead[0],
        dead_letter_since=None if dead is None else dead[1],
    )


def _counts(session: Session) -> dict[Status, int]:
    found = _rows(session, SQL["count_open"]) + _rows(session, SQL["count_ended"])
    return {Status(status): count for status, count in found}


def _workers(session: Session, path: str, own: Sequence[str]) -> list[WorkerHealth]:
    owned = dict(_rows(session, HEALTH["owned"]))
    real = os.path.realpath(path)
    standings = _bounded(session, limits.DOCTOR_CHECK_SECONDS, lambda: workers.standings(session))

    def state(worker_id: str) -> WorkerState:
        if worker_id not in own and liveness.is_dead(real, worker_id):
            return "dead"
        return "alive" if standings[worker_id].draining_since is None else "draining"

    return [
        WorkerHealth(
            one.id, one.name, one.host, one.pid, state(one.id), owned.get(one.id, 0), definitions=one.definitions
        )
        for one in workers.workers(session)
    ]
