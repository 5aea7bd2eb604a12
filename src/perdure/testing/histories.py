"""Saved histories: journals of real runs, kept beside the tests, that the code of today must still replay.

    test_old_runs_still_replay = replays("histories/")

Each file is one exported run: `save_history` writes what `perdure export` does.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from perdure.admin.transfer import Body, body_of, export_run, read, row_of_record
from perdure.authoring.registry import registry
from perdure.engine.engine import Engine, RunHandle
from perdure.errors import ExportUnusable, NotReplayable, PerdureError, describe
from perdure.kernel.frontier import decode_frontier
from perdure.kernel.journal import Record, from_row
from perdure.kernel.run import Run
from perdure.store.memory import MemoryStore
from perdure.store.model import Status
from perdure.testing.fresh_thread import in_fresh_thread
from perdure.testing.memory import runs_of

#: One run: `id`, `workflow`, `journals` by generation, and what else an export holds.
History: TypeAlias = Body


def load_history(path: str | Path) -> History:
    """Read one saved history. Raises `NotReplayable` for a file that is none, naming it."""
    try:
        return read(Path(path).read_bytes(), str(path))
    except OSError as error:
        raise NotReplayable(f"{path} cannot be read as a history: {describe(error)}.") from error
    except ExportUnusable as error:
        raise NotReplayable(f"{path} cannot be read as a history: {error.message}") from error


async def save_history(engine: Engine, run: RunHandle[Any] | str, path: str | Path) -> Path:
    """Write a run to a file, for `replays`. Values are in it: mind what you check in."""
    return _write(Path(path), await export_run(engine.store, run if isinstance(run, str) else run.id))


def _write(file: Path, data: bytes) -> Path:
    file.write_bytes(data)
    return file


def histories_of(memory: MemoryStore) -> list[History]:
    """Every run of a store in memory."""
    return [body_of(msgspec.structs.replace(run.loaded, inbox=()), run.journals) for run in runs_of(memory)]


# -- replaying -------------------------------------------------------------------------------------------------


def check_history(history: History | str | Path) -> None:
    """Replay a run with the code of today. Raises `NotReplayable`, with the divergence report, if it does not fit."""
    loaded = history if isinstance(history, History) else load_history(history)
    name = loaded.id if isinstance(history, History) else str(history)
    problem = replay_problem(loaded)
    if problem is not None:
        raise NotReplayable(f"{name} does not replay: {problem}")


def replay_problem(history: History) -> str | None:
    """What is wrong, or None."""
    for generation in history.journals:
        records = [from_row(row_of_record(one)) for one in generation.records]
        is_open = generation.number == history.generation and not Status(history.status).terminal
        problem = _replay(history, generation.number, records, bytes(history.frontier) if is_open else b"")
        if problem is not None:
            return problem
    return None


def _replay(history: History, number: int, records: list[Record], frontier: bytes) -> str | None:
    body: Any = records[0].body
    spec = registry.workflow(body.workflow, body.version)
    if spec is None:
        return f"no workflow is called {body.workflow!r} version {body.version!r} here. Import the module that has it."
    run = Run(spec, history.id, number, latest=registry.latest, arguments_check="park")
    problem: list[str] = []

    def replay() -> None:
        try:
            run.replay(records, decode_frontier(frontier) if frontier else None)
        except PerdureError as error:
            problem.append(f"{type(error).__name__}: {error}")
        finally:
            run.close()

    in_fresh_thread(replay)  # workflow code runs outside of any task (see `kernel.loop`)
    return problem[0] if problem else None


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
