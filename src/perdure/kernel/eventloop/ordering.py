"""Small patches of asyncio, so that everything in it happens in the same order on every replay (decision 0007).

asyncio keeps tasks and futures in sets, whose order follows their hash, which is their address: it differs from process
to process. Those that a run's loop makes hash to a number that is the same on every replay. Here is the rest: where
asyncio, or code that calls it, makes futures and tasks without asking the loop. On any other loop nothing changes.
"""

from __future__ import annotations

import asyncio
from asyncio import events, futures, tasks
from collections.abc import Iterable, Iterator
from typing import Any

from perdure.errors import Forbidden
from perdure.kernel.eventloop.loop import RunLoop
from perdure.kernel.eventloop.tasks import RunFuture

_get_running_loop = events._get_running_loop

_Future: Any = futures.Future
_Task: Any = tasks.Task


def _numbered_hash(future: Any) -> int:
    """Numbered on first use, if it is of a run. In an attribute: futures in C have them, but no `__dict__` to see."""
    try:
        return int(future.perdure_number)
    except AttributeError:
        loop = future.get_loop()
    if type(loop) is not RunLoop:
        return object.__hash__(future)
    future.perdure_number = number = loop.next_number()
    return number


# -- gather ------------------------------------------------------------------------------------------------

# `gather` makes its future from a class of its own: `wait({gather(...), ...})`.
_gathering_future: Any = getattr(tasks, "_GatheringFuture")  # noqa: B009
_gathering_future.__hash__ = _numbered_hash


# -- asyncio.Future() and asyncio.Task() -------------------------------------------------------------------


class _Original(type):
    """Stands in for a class of asyncio's. Calling it gives what the run's loop makes, or else the original; classes
    made from it are ordinary subclasses whose objects have a number."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        loop: Any = kwargs.get("loop") or _get_running_loop()
        is_of_run = type(loop) is RunLoop
        if cls is Future:
            return RunFuture(loop=loop) if is_of_run else _Future(*args, **kwargs)
        if cls is Task:
            return loop.create_task(*args, **_without_loop(kwargs)) if is_of_run else _Task(*args, **kwargs)
        made = super().__call__(*args, **kwargs)
        if is_of_run and isinstance(made, _Task):
            loop.adopt(made)
        return made

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _ORIGINALS[cls]) if cls in _ORIGINALS else super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _ORIGINALS[cls]) if cls in _ORIGINALS else super().__subclasscheck__(subclass)


def _without_loop(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "loop"}


class Future(_Future, metaclass=_Original):  # type: ignore[misc]
    __doc__ = _Future.__doc__
    __hash__ = _numbered_hash


class Task(_Task, metaclass=_Original):  # type: ignore[misc]
    __doc__ = _Task.__doc__
    __hash__ = _numbered_hash


_ORIGINALS: dict[Any, Any] = {Future: _Future, Task: _Task}
for _stand_in in (Future, Task):
    _stand_in.__module__ = "asyncio"

#: For functions that have the originals by name, from an import that came before this one (`kernel.shims`).
STAND_INS = {id(_Future): Future, id(_Task): Task}


# -- wait --------------------------------------------------------------------------------------------------

_wait = tasks.wait


class _InOrder(set[Any]):
    """A set that is gone through in the order in which it was filled."""

    def __init__(self, members: list[Any]) -> None:
        super().__init__(members)
        self._order = members

    def __iter__(self) -> Iterator[Any]:
        return iter([one for one in self._order if one in self])

    def pop(self) -> Any:
        for one in self:
            self.discard(one)
            return one
        return super().pop()  # raises


def _hashes_to_address(future: Any) -> bool:
    kind: Any = type(future)
    return kind.__hash__ is object.__hash__


def _wait_in_order(fs: Iterable[Any], *, timeout: float | None = None, return_when: str = asyncio.ALL_COMPLETED) -> Any:
    # Futures and tasks of asyncio's own classes, made by code that had these before perdure was imported.
    if (
        type(_get_running_loop()) is RunLoop
        and isinstance(fs, (list, tuple, set, frozenset))
        and any(map(_hashes_to_address, fs))
    ):
        return _wait_for_addressed(fs, timeout, return_when)
    return _wait(fs, timeout=timeout, return_when=return_when)


async def _wait_for_addressed(fs: Any, timeout: float | None, return_when: str) -> Any:
    if isinstance(fs, (set, frozenset)) and sum(map(_hashes_to_address, fs)) > 1:
        raise Forbidden(
            "workflow code waits for a set of plain futures, whose order differs from process to process. They were "
            "made by code that imported asyncio's classes by name before perdure was imported: write asyncio.Future(), "
            "loop.create_future() or asyncio.create_task() there, or give asyncio.wait() a list."
        )
    done, pending = await _wait(fs, timeout=timeout, return_when=return_when)
    order = list(dict.fromkeys(fs))
    return _InOrder([one for one in order if one in done]), _InOrder([one for one in order if one in pending])


# -- all_tasks ---------------------------------------------------------------------------------------------

_all_tasks = tasks.all_tasks


def _all_tasks_in_order(loop: asyncio.AbstractEventLoop | None = None) -> set[asyncio.Task[Any]]:
    # The original goes through the tasks of all loops, and how those fall depends on the other runs in memory.
    of = loop or _get_running_loop()
    return set(of.unfinished_tasks()) if type(of) is RunLoop else _all_tasks(loop)


# -- as_completed ------------------------------------------------------------------------------------------

_as_completed = tasks.as_completed


def _as_completed_in_order(fs: Iterable[Any], *, timeout: float | None = None) -> Any:
    # The original makes its tasks from `set(fs)`: coroutines hash to their address, so they would start in an
    # order that differs from process to process (tests/plain_python/test_asyncio_order.py). Making the tasks first,
    # in the order given, is all it takes.
    if isinstance(_get_running_loop(), RunLoop):
        fs = [asyncio.ensure_future(f) for f in dict.fromkeys(fs)]
    return _as_completed(fs, timeout=timeout)


def _put(original: Any, replacement: Any) -> None:
    replacement.__doc__ = original.__doc__
    replacement.__name__ = replacement.__qualname__ = original.__name__
    replacement.__module__ = original.__module__
    for module in (tasks, asyncio):
        setattr(module, original.__name__, replacement)


for _original, _replacement in (
    (_wait, _wait_in_order),
    (_all_tasks, _all_tasks_in_order),
    (_as_completed, _as_completed_in_order),
):
    _put(_original, _replacement)
# Not in `asyncio.futures` and `asyncio.tasks`, from where other loops take the classes for all they make.
setattr(asyncio, "Future", Future)  # noqa: B010
setattr(asyncio, "Task", Task)  # noqa: B010
