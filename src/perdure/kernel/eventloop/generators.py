"""The async generators of runs: which are open, and whose they are.

Python tells once that a generator was begun and once that it was left in the middle: at the moment its last reference
goes, or at some later collection if it is part of a cycle. The first is the same on every replay; the second is not,
and may come in the middle of another run's turn, or of no turn at all. So every generator is noted with its loop when
it is begun. One that its own run lets go of in its own turn is closed at once, as asyncio does; any other is kept until
the moment at which all that are still open are closed (`Run`, and `iterations` for those of a durable loop), in the
order in which they were begun. Whether a collection came before makes no difference then.
"""

from __future__ import annotations

import weakref
from types import AsyncGeneratorType
from typing import TYPE_CHECKING, Any

from perdure import limits
from perdure.errors import Forbidden

if TYPE_CHECKING:
    from contextvars import Context

    from perdure.kernel.eventloop.loop import RunLoop
    from perdure.kernel.locations import Branch

Generator = AsyncGeneratorType[Any, Any]

#: What `id` is for, without the audit event that it raises.
_address = object.__hash__


class OpenGenerator(weakref.ref[Generator]):
    """A generator that was begun."""

    __slots__ = ("address", "branch", "context", "is_closing", "kept", "loop")
    address: int
    #: Weak: a run that is garbage itself closes nothing.
    loop: weakref.ref[RunLoop]
    #: Where it was begun, and the context of the task that did: tokens of context variables are of that one.
    branch: Branch
    context: Context | None
    #: The generator itself, once nobody else has it. Weak references to it are dead by then.
    kept: Generator | None
    is_closing: bool

    def generator(self) -> Generator | None:
        """The generator, if it is still to be closed."""
        found = self.kept or self()
        # `ag_running`: somebody is inside of it, and closing it would raise.
        if found is None or self.is_closing or found.ag_frame is None or found.ag_running:
            return None
        return found


#: By address. An entry is out of date once another generator has the same one, which is then begun and takes its place.
_begun: dict[int, OpenGenerator] = {}


class OpenGenerators:
    """Those of one run, in the order in which they were begun."""

    __slots__ = ("_begun", "_look_at")

    def __init__(self) -> None:
        self._begun: list[OpenGenerator] = []
        self._look_at = 64

    def begin(self, loop: RunLoop, generator: Generator, branch: Branch, context: Context | None) -> None:
        entry = OpenGenerator(generator)
        entry.loop, entry.branch, entry.context = weakref.ref(loop), branch, context
        entry.kept, entry.is_closing = None, False
        entry.address = _address(generator)
        _begun[entry.address] = entry
        self._begun.append(entry)
        if len(self._begun) >= self._look_at:
            self._forget_closed()

    def _forget_closed(self) -> None:
        left: list[OpenGenerator] = []
        for entry in self._begun:
            if not entry.is_closing and _is_unfinished(entry.kept or entry()):
                left.append(entry)
            else:
                _forget(entry)
        self._begun = left
        self._look_at = max(64, 2 * len(left))
        if len(left) >= limits.OPEN_GENERATORS_MAX:
            raise Forbidden(
                f"workflow code has left {len(left):,} async generators open. Each is kept until the workflow ends, "
                "because its cleanup must run at the same point of every replay. Close them where they are left: "
                "`async with contextlib.aclosing(generator()) as items: ...`."
            )

    def to_close(self, scope: object = None) -> list[OpenGenerator]:
        """Those that are open, in the order in which they were begun; of one iteration of a durable loop if given."""
        return [
            one for one in self._begun if (scope is None or one.branch.scope is scope) and one.generator() is not None
        ]

    def forget(self) -> None:
        """The run has left memory, or its end: its generators are simply let go."""
        for entry in self._begun:
            entry.is_closing = True
            entry.kept = None
            _forget(entry)
        self._begun.clear()


def _forget(entry: OpenGenerator) -> None:
    if _begun.get(entry.address) is entry:
        del _begun[entry.address]


def _is_unfinished(generator: Generator | None) -> bool:
    return generator is not None and generator.ag_frame is not None


def entry_of(generator: Generator) -> OpenGenerator | None:
    """What was noted when this generator was begun. Asked once, when it is let go of."""
    return _begun.pop(_address(generator), None)
