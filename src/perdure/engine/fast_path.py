"""The fast path, as the general path knows it: an interface, the switch, and three places that ask.

`fastlane/` holds the implementation. The law: removing that folder changes no journal and no answer, only time. The
general path asks where the code of a step returns (`attempts.serving`), where turns are taken (`worker.pump`) and where
they are durable (`worker.committing`); each place goes on as if there were none when it is switched off.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from perdure.engine.resident import Resident
from perdure.store.turn import CommitResult, Turn

if TYPE_CHECKING:
    from perdure.engine.attempts import Attempt, StepRunner
    from perdure.engine.turns import Turns
    from perdure.engine.worker.deadlines import Deadlines
    from perdure.engine.worker.residents import Residents

#: The one switch: PERDURE_FASTLANE=off leaves everything to the general path.
IN_USE = os.environ.get("PERDURE_FASTLANE", "") != "off"

Durable: TypeAlias = Iterable[tuple[Resident, Turn, CommitResult]]


class FastPath(Protocol):
    """Takes results of steps that are all their runs wait for, and leaves everything else to the general path."""

    def take_result(self, attempt: Attempt, value: Any) -> bool:
        """The code of an attempt returned a value: the run is made ready. False: not taken, nothing was done."""
        ...

    def take_turn(self, resident: Resident, now: int) -> Turn | None:
        """The turn of a run that is ready, if a result was taken for it. None: the general path takes it, which has the
        result if there was one. Raises what the kernel raises."""
        ...

    def release(self, durable: Durable) -> Durable:
        """Carry out what follows from durable turns where that is one step; the rest is answered back."""
        ...


def fast_path_of(attempts: StepRunner, turns: Turns, residents: Residents, deadlines: Deadlines) -> FastPath | None:
    if not IN_USE:
        return None
    from perdure.fastlane import Lane

    return Lane(attempts, turns, residents, deadlines)
