"""Failpoints: the named places of the engine between which a crash could tell a difference.

Each is just before or after a function that the engine names as a moment (`engine.moments`). Nothing of this is in the
engine's way: `armed` puts a wrapper around the function for as long as a test wants, so a production process pays
nothing for any of them, not even a test of a flag. What is promised about each place is in docs/reference/faults.md;
tests/processes/test_failpoints.py kills a real process at every one, and fails if one is never reached.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, NamedTuple

from perdure.engine import moments as engine_moments
from perdure.errors import BadArgument
from perdure.store.sqlite import moments as sqlite_moments

#: The functions, by moment.
MOMENTS: Final = engine_moments.MOMENTS | sqlite_moments.MOMENTS


class Failpoint(NamedTuple):
    """Just before a moment of the engine or the store, or just after it."""

    moment: str
    after: bool
    #: The rows of the catalogue of faults for which this is the place.
    faults: tuple[str, ...]


FAILPOINTS: Final[Mapping[str, Failpoint]] = {
    "start.decided": Failpoint("start is stored", False, ("A1",)),
    "start.stored": Failpoint("start was stored", False, ("A2",)),
    "claim.stored": Failpoint("claim was stored", False, ("A3",)),
    "replay.begins": Failpoint("replay", False, ("A4",)),
    "replay.over": Failpoint("replay", True, ("A4",)),
    "turn.decided": Failpoint("turns are stored", False, ("A5",)),
    "turn.in_store": Failpoint("transaction", False, ("A6",)),
    "turn.stored": Failpoint("turns were stored", False, ("A6", "A10", "A12")),
    "turn.over": Failpoint("turns were stored", True, ("A6",)),
    "step.admitted": Failpoint("step is admitted", True, ("A7",)),
    "step.begins": Failpoint("step runs", False, ("A7",)),
    "step.returned": Failpoint("step returned", False, ("A9",)),
    "step.over": Failpoint("outcome is queued", True, ("A9",)),
    "result.returned": Failpoint("result is taken", False, ("A9",)),
    "result.taken": Failpoint("result is taken", True, ("A9",)),
    "timer.due": Failpoint("deadline", False, ("A11",)),
    "child.stored": Failpoint("children were stored", False, ("A13",)),
    "run.ended": Failpoint("run ended", False, ("A14",)),
    "generation.stored": Failpoint("generation was stored", False, ("A17",)),
    "send.asked": Failpoint("send", False, ("A15",)),
    "send.stored": Failpoint("send", True, ("A15",)),
    "cancel.asked": Failpoint("cancel", False, ("A16",)),
    "cancel.stored": Failpoint("cancel", True, ("A16",)),
    "migration.begins": Failpoint("migration", False, ("A18",)),
    "migration.locked": Failpoint("schema is recognised", True, ("A18", "A20")),
    "migration.over": Failpoint("migration", True, ("A18",)),
    "prune.begins": Failpoint("delete", False, ("A19",)),
    "prune.uncommitted": Failpoint("delete", True, ("A19",)),
}


@contextlib.contextmanager
def armed(name: str, action: Callable[[], object], *, hit: int = 1) -> Generator[None]:
    """Call `action` when a failpoint is reached for the `hit`-th time; it may end the process or raise.

    Raises `BadArgument` for a name that is not in `FAILPOINTS`.
    """
    point = FAILPOINTS.get(name)
    if point is None:
        raise BadArgument(f"there is no failpoint {name!r}. There are: {', '.join(FAILPOINTS)}.")
    owner, function = MOMENTS[point.moment]
    original = getattr(owner, function)
    setattr(owner, function, _wrapped(original, point.after, _Trigger(action, hit)))
    try:
        yield
    finally:
        setattr(owner, function, original)


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
