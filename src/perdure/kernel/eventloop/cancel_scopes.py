"""Cancel scopes of anyio inside of each other, gone through in the order in which they were entered.

A scope that is cancelled cancels those inside of it, which it keeps in a set, and they hash to their address: their
tasks would be cancelled in an order that differs from process to process. In a run that set is one with an order.
Nothing is imported here: the change is made when workflow code makes a task and anyio is there (decision 0110).
"""

from __future__ import annotations

import sys
from asyncio import events
from collections.abc import Iterable, Iterator, MutableSet
from typing import Any

_BACKEND = "anyio._backends._asyncio"
_scopes_in_order = False


class _InOrder(MutableSet[Any]):
    """A set that is gone through in the order in which it was filled."""

    def __init__(self, members: Iterable[Any]) -> None:
        self._members = dict.fromkeys(members)

    def __contains__(self, member: object) -> bool:
        return member in self._members

    def __iter__(self) -> Iterator[Any]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def add(self, value: Any) -> None:
        self._members[value] = None

    def discard(self, value: Any) -> None:
        self._members.pop(value, None)


def is_new() -> bool:
    """Whether anyio was imported since the last look."""
    return not _scopes_in_order and _BACKEND in sys.modules


def put_in_order(task: Any) -> None:
    """Once per process: for scopes made from now on in runs, and for those that this task is in already."""
    global _scopes_in_order
    _scopes_in_order = True
    backend = sys.modules[_BACKEND]
    scope_class: Any = getattr(backend, "CancelScope", None)
    if scope_class is None:
        return
    make = scope_class.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        if getattr(events._get_running_loop(), "is_of_run", False):
            _order(self)

    init.__name__, init.__doc__ = make.__name__, make.__doc__
    scope_class.__init__ = init
    state = getattr(backend, "_task_states", {}).get(task)
    scope = getattr(state, "cancel_scope", None)
    while scope is not None:
        _order(scope)
        scope = scope._parent_scope


def _order(scope: Any) -> None:
    if isinstance(getattr(scope, "_child_scopes", None), set):
        scope._child_scopes = _InOrder(scope._child_scopes)
