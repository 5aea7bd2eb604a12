"""Records that a replay passes over: taken back by `resume`, or of operations that the code declares `removed`."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from perdure.errors import Diverged
from perdure.kernel.frontier import Frontier, Waiting
from perdure.kernel.journal import Record
from perdure.kernel.operations.base import Operation


class Removal(msgspec.Struct, frozen=True):
    """One operation that is gone, and where the code says so."""

    kind: str
    site: str


class Changes:
    """What the code of one run has declared removed so far, by location. Runs that never do share NONE."""

    __slots__ = ("_removed",)

    def __init__(self) -> None:
        self._removed: dict[str, Removal] = {}

    def without(self, location: str, kind: str, site: str) -> Changes:
        """What counts from now on."""
        own = Changes() if self is NONE else self
        own._removed[location] = Removal(kind, site)
        return own

    def passes_over(self, record: Record) -> bool:
        removal = self._removed.get(record.location) if self._removed else None
        return removal is not None and record.body.about == removal.kind

    def withdrawn(self, frontier: Frontier) -> bool:
        """Whether the run waited for something that is gone."""
        return bool(self._removed) and any(self._is_gone(waiting) for waiting in frontier.operations)

    def rest(self, frontier: Frontier) -> Frontier:
        """The frontier without what is gone."""
        left = tuple(waiting for waiting in frontier.operations if not self._is_gone(waiting))
        return msgspec.structs.replace(frontier, operations=left, count=len(left))

    def _is_gone(self, waiting: Waiting) -> bool:
        removal = self._removed.get(waiting.location)
        return removal is not None and removal.kind == waiting.kind

    def explained(self, error: Diverged, pending: Iterable[Operation]) -> Diverged:
        """The report, with the likely cause if something declared removed is still called."""
        for operation in pending if self._removed else ():
            called = _call(operation.location)
            for location, removal in self._removed.items():
                if _call(location) == called and removal.kind == operation.kind:
                    return Diverged(
                        f"{error.message}\n  removed({called[1]!r}) in {removal.site} says that a "
                        f"{removal.kind} is gone which the code still asks for ({operation.site}): drop one of the two."
                    )
        return error


NONE = Changes()


def _call(location: str) -> tuple[str, str]:
    """The branch and the name of a call, whichever use of it in the branch it is."""
    branch, _, last = location.rpartition("/")
    return branch, last.partition("#")[0]
