"""Which runs are suspected of killing their worker, and how many of them are tried at once.

A run that kills its worker takes the blame of all its neighbours with it: they lose their worker as often. One death
says nothing, so whatever was in memory then is taken again at once, all of it. Runs that were there at several deaths
in a row, without a record in between, are suspects. They are taken in groups, those with the most deaths first; the
next group comes when every run of the last one has made progress, has come to rest, or has gone on for
`SUSPECT_SECONDS`. The nearer to being parked, the smaller the group: in the end a run is alone, and its neighbours are
not blamed (docs/decisions/0114-suspects-are-tried-in-shrinking-groups.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perdure import limits
from perdure.store.model import Acquittal, RunKey, RunRow

#: How many suspects are tried together, by the deaths that are left until they are parked.
_SIZES = {8: 64, 7: 16, 6: 4}
_SIZE_MOST = 64
#: Fewer deaths left than this: alone.
_LEFT_MIN = 6


def group_size(deaths_left: int) -> int:
    if deaths_left < _LEFT_MIN:
        return 1
    return _SIZES.get(deaths_left, _SIZE_MOST)


class Probation:
    """The suspects of one worker. `time` is the event loop's."""

    def __init__(self, recoveries_max: int, time: Callable[[], float]) -> None:
        self._recoveries_max = recoveries_max
        self._time = time
        #: The most deaths without progress that make no suspect of a run: one, where there are enough to go on with.
        self.trusted = 1 if recoveries_max > 2 else 0
        #: The group being tried: those of it that have shown nothing yet, as they are acquitted.
        self.members: dict[RunKey, Acquittal] = {}
        self._survivors: list[Acquittal] = []
        self._size = self._taken = 0
        self._growth = 1
        self._until = 0.0

    @property
    def wanted(self) -> int:
        """How many suspects may be claimed now. The first of a group tells how large that may be."""
        if self._taken and (self._taken < self._size or (self.members and self._time() < self._until)):
            return self._size - self._taken
        if self._taken:
            self._end_group()
        return 1

    def _end_group(self) -> None:
        """The worker is still alive: the next group may be larger."""
        self._survivors += self.members.values()
        self.members.clear()
        self._growth *= 2
        self._size = self._taken = 0

    def is_suspect(self, row: RunRow) -> bool:
        """Of a row that was just claimed, which is counted in it."""
        return row.recoveries - 1 > self.trusted

    def begin(self, row: RunRow) -> None:
        """A suspect enters memory."""
        if not self._size:
            usual = group_size(self._recoveries_max - row.recoveries + 1)
            self._size = usual if usual == 1 else usual * self._growth
        self._taken += 1
        self.members[row.key] = Acquittal(row.key, row.epoch, row.recoveries - 1)
        self._until = self._time() + limits.SUSPECT_SECONDS

    def close_group(self) -> None:
        """There are no more to fill it with."""
        self._size = min(self._size, self._taken)

    def clear(self, key: RunKey) -> bool:
        """The run has made progress, rests or has left. Whether that was the last one of the group."""
        return self.members.pop(key, None) is not None and not self.members

    def take_survivors(self) -> Sequence[Acquittal]:
        """Those that went on for long enough: what happens with the next group is not their fault, so the claim is not
        counted. Only if there is a next one: where nobody else can have killed the workers, it counts."""
        survivors, self._survivors = self._survivors, []
        return survivors
