"""Saved histories: journals of real runs, kept beside the tests, that the code of today must still replay.

    test_old_runs_still_replay = replays("histories/")

Each file is one run: JSON with the journal of each of its generations. Save one with `save_history`.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from perdure.authoring.registry import registry
from perdure.engine.engine import Engine, RunHandle
from perdure.errors import NotReplayable, PerdureError, RunNotFound, describe
from perdure.kernel.journal import Record, Row, _checksum, from_row
from perdure.kernel.operation import decode_frontier
from perdure.kernel.run import Run
from perdure.store.memory import MemoryStore
from perdure.testing.apart import apart

_FORMAT = "perdure-history"
_VERSION = 1


class SavedRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One record as stored: its body is JSON already."""

    seq: int
    at: int
    kind: str
    location: str
    data: msgspec.Raw


class Generation(msgspec.Struct, frozen=True):
    number: int
    records: list[SavedRecord]


class History(msgspec.Struct, frozen=True, kw_only=True):
    """One run: what is needed to replay it, and no more."""

    format: str = _FORMAT
    format_version: int = _VERSION
    run_id: str
    workflow: str
    version: str
    generations: list[Generation]
    #: What it waited for, as stored, in base64; None for a run that has ended.
    frontier: str | None = None


def load_history(path: str | Path) -> History:
    """Read one saved history. Raises `NotReplayable` for a file that is none, naming it."""
    try:
        history = msgspec.json.decode(Path(path).read_bytes(), type=History)
    except (OSError, msgspec.MsgspecError) as error:
        raise NotReplayable(f"{path} cannot be read as a history: {describe(error)}.") from error
    if history.format != _FORMAT or history.format_version != _VERSION:
        raise NotReplayable(f"{path} is a {history.format!r} of version {history.format_version}, not {_VERSION}.")
    return history


async def save_history(engine: Engine, run: RunHandle[Any] | str, path: str | Path) -> Path:
    """Write the journals of a run to a file, for `replays`. Values are in it: mind what you check in."""
    store = engine._store
    run_id = run if isinstance(run, str) else run.id
    row = await store.get(run_id)
    if row is None:
        raise RunNotFound(f"no run has the id {run_id!r}.")
    journals = [(number, await store.journal(row.key, number)) for number in range(1, row.generation + 1)]
    history = _history(row.id, row.workflow, row.version, journals, None if row.status.terminal else row.frontier)
    return _write(history, Path(path))


def _write(history: History, file: Path) -> Path:
    file.write_bytes(msgspec.json.format(msgspec.json.encode(history), indent=1) + b"\n")
    return file


def _history(
    run_id: str, workflow: str, version: str, journals: Sequence[tuple[int, Sequence[Row]]], frontier: bytes | None
) -> History:
    return History(
        run_id=run_id,
        workflow=workflow,
        version=version,
        generations=[
            Generation(number, [SavedRecord(r.seq, r.at, r.kind, r.location, msgspec.Raw(r.data)) for r in rows])
            for number, rows in journals
            if rows
        ],
        frontier=None if frontier is None else base64.b64encode(frontier).decode(),
    )


def histories_of(memory: MemoryStore) -> list[History]:
    """Every run of a store in memory."""
    return [
        _history(
            run.id,
            run.workflow,
            run.version,
            list(run.journal.items()),
            None if run.status.terminal else run.frontier,
        )
        for run in memory._runs.values()
    ]


# -- replaying -------------------------------------------------------------------------------------------------


def check_history(history: History | str | Path) -> None:
    """Replay a run with the code of today. Raises `NotReplayable`, with the divergence report, if it does not fit."""
    loaded = history if isinstance(history, History) else load_history(history)
    name = loaded.run_id if isinstance(history, History) else str(history)
    problem = replay_problem(loaded)
    if problem is not None:
        raise NotReplayable(f"{name} does not replay: {problem}")


def replay_problem(history: History) -> str | None:
    """What is wrong, or None."""
    for generation in history.generations:
        last = generation is history.generations[-1]
        records = [_record(saved) for saved in generation.records]
        problem = _replay(history, generation.number, records, history.frontier if last else None)
        if problem is not None:
            return problem
    return None


def _replay(history: History, number: int, records: list[Record], frontier: str | None) -> str | None:
    body: Any = records[0].body
    spec = registry.workflow(body.workflow, body.version)
    if spec is None:
        return f"no workflow is called {body.workflow!r} version {body.version!r} here. Import the module that has it."
    run = Run(spec, history.run_id, number, latest=registry.latest, arguments_check="park")
    problem: list[str] = []

    def replay() -> None:
        try:
            run.replay(records, None if frontier is None else decode_frontier(base64.b64decode(frontier)))
        except PerdureError as error:
            problem.append(f"{type(error).__name__}: {error}")
        finally:
            run.close()

    apart(replay)  # workflow code runs outside of any task (see `kernel.loop`)
    return problem[0] if problem else None


def _record(saved: SavedRecord) -> Record:
    # The checksum guards stored bytes; this file is indented for people, so its bytes are others.
    data = bytes(saved.data)
    check = _checksum(saved.seq, saved.at, saved.kind, saved.location, data)
    return from_row(Row(saved.seq, saved.at, saved.kind, saved.location, data, check))


def replays(directory: str | Path, *, pattern: str = "*.json") -> Any:
    """A pytest test, one case for each saved history in a directory (relative to the file that calls this).

    >>> test_old_runs_still_replay = replays("histories/")
    """
    import pytest  # only here: the rest of this module is useful without it

    folder = Path(directory)
    if not folder.is_absolute():
        folder = Path(sys._getframe(1).f_code.co_filename).parent / folder
    files = sorted(folder.glob(pattern))
    if not files:
        raise NotReplayable(f"no history {pattern} is in {folder}.")

    @pytest.mark.parametrize("history", files, ids=[file.stem for file in files])
    def test_history_replays(history: Path) -> None:
        check_history(history)

    return test_history_replays
