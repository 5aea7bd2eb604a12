"""Failpoints: the named places of the engine between which a crash could tell a difference.

Each names a function of the engine and the moment before or after it. Nothing of this is in the engine: `armed` puts a
wrapper around the function for as long as a test wants, so a production process pays nothing for any of them, not even
a test of a flag. What is promised about each place is in docs/reference/faults.md; tests/processes/test_failpoints.py
kills a real process at every one, and fails if one is never reached.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, NamedTuple

from perdure.engine.client import Client
from perdure.engine.recovery import Recovery
from perdure.engine.steps import StepRunner
from perdure.engine.turns import TurnBuilder
from perdure.engine.worker import Worker
from perdure.errors import BadArgument
from perdure.kernel.run import Run
from perdure.store.sqlite import lifecycle, migrate
from perdure.store.sqlite.writer import Writer


class Failpoint(NamedTuple):
    """The moment before a function of the engine is carried out, or after."""

    owner: Any
    function: str
    after: bool
    #: The rows of the catalogue of faults for which this is the place.
    faults: tuple[str, ...]


FAILPOINTS: Final[Mapping[str, Failpoint]] = {
    "start.decided": Failpoint(Worker, "_create", False, ("A1",)),
    "start.stored": Failpoint(Worker, "_created", False, ("A2",)),
    "claim.stored": Failpoint(Recovery, "_load_claimed", False, ("A3",)),
    "replay.begins": Failpoint(Run, "replay", False, ("A4",)),
    "replay.over": Failpoint(Run, "replay", True, ("A4",)),
    "turn.decided": Failpoint(Worker, "_commit", False, ("A5",)),
    "turn.in_store": Failpoint(Writer, "_count_transaction", False, ("A6",)),
    "turn.stored": Failpoint(Worker, "_committed", False, ("A6", "A10", "A12")),
    "turn.over": Failpoint(Worker, "_committed", True, ("A6",)),
    "step.admitted": Failpoint(StepRunner, "start", True, ("A7",)),
    "step.begins": Failpoint(StepRunner, "_begin", False, ("A7",)),
    "step.returned": Failpoint(StepRunner, "returned", False, ("A9",)),
    "step.over": Failpoint(StepRunner, "_note", True, ("A9",)),
    "result.returned": Failpoint(TurnBuilder, "take_result", False, ("A9",)),
    "result.taken": Failpoint(TurnBuilder, "take_result", True, ("A9",)),
    "timer.due": Failpoint(Worker, "_deadline_reached", False, ("A11",)),
    "child.stored": Failpoint(Worker, "_spawned", False, ("A13",)),
    "run.ended": Failpoint(Worker, "_end", False, ("A14",)),
    "generation.stored": Failpoint(Worker, "_continue", False, ("A17",)),
    "send.asked": Failpoint(Client, "send_raw", False, ("A15",)),
    "send.stored": Failpoint(Client, "send_raw", True, ("A15",)),
    "cancel.asked": Failpoint(Client, "cancel", False, ("A16",)),
    "cancel.stored": Failpoint(Client, "cancel", True, ("A16",)),
    "migration.begins": Failpoint(migrate, "_upgrade", False, ("A18",)),
    "migration.locked": Failpoint(migrate, "recognise", True, ("A18", "A20")),
    "migration.over": Failpoint(migrate, "_upgrade", True, ("A18",)),
    "prune.begins": Failpoint(lifecycle, "delete", False, ("A19",)),
    "prune.uncommitted": Failpoint(lifecycle, "delete", True, ("A19",)),
}


@contextlib.contextmanager
def armed(name: str, action: Callable[[], object], *, hit: int = 1) -> Generator[None]:
    """Call `action` when a failpoint is reached for the `hit`-th time; it may end the process or raise.

    Raises `BadArgument` for a name that is not in `FAILPOINTS`.
    """
    point = FAILPOINTS.get(name)
    if point is None:
        raise BadArgument(f"there is no failpoint {name!r}. There are: {', '.join(FAILPOINTS)}.")
    original = getattr(point.owner, point.function)
    setattr(point.owner, point.function, _wrapped(original, point.after, _Trigger(action, hit)))
    try:
        yield
    finally:
        setattr(point.owner, point.function, original)


class _Trigger:
    def __init__(self, action: Callable[[], object], hit: int) -> None:
        self._action = action
        self._left = hit

    def pull(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._action()


def _wrapped(original: Callable[..., Any], after: bool, trigger: _Trigger) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not after:
            trigger.pull()
        result = original(*args, **kwargs)
        if after:
            trigger.pull()
        return result

    @functools.wraps(original)
    async def call_and_wait(*args: Any, **kwargs: Any) -> Any:
        if not after:
            trigger.pull()
        result = await original(*args, **kwargs)
        if after:
            trigger.pull()
        return result

    return call_and_wait if inspect.iscoroutinefunction(original) else call
