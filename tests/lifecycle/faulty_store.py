"""Store faults for engines that are open: the calls of opening and closing are left out, where the engine gives up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from perdure.testing import wrappers

#: Calls that the scenario makes, rather than the sweep: all of them are tried.
COUNTED = {
    "create": 100,
    "create_all": 100,
    "commit": 100,
    "append": 100,
    "request_cancel": 100,
    "terminate": 100,
    "park": 100,
}


class FaultyStore(wrappers.FaultyStore):
    calls = wrappers.CALLS - {"register_worker", "unregister_worker", "count_runs", "workers"}


def every_call(counts: Counter[str]) -> Iterator[tuple[str, int]]:
    """Each call of a calm run, by name and number. Sweeps come by time, so only the first few of theirs count."""
    for name, count in counts.items():
        for number in range(1, min(count, COUNTED.get(name, 5)) + 1):
            yield name, number
