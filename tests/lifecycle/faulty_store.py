"""A store that fails at a chosen call, before doing anything or after having done it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from perdure import StoreUnavailable

CALLS = frozenset(
    {
        "create", "create_all", "append", "request_cancel", "terminate", "resume", "renew", "reap", "claim", "held",
        "load", "commit", "release", "park", "news", "get", "journal", "list_runs", "inbox",
    }
)  # fmt: skip

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


class FaultyStore:
    """Counts calls; the one with number `fail_at` raises `StoreUnavailable`. 0: none does.

    With `only`, calls of that name are counted by themselves. `times` makes a row of calls fail.
    """

    def __init__(self, store: Any, fail_at: int, *, after: bool, only: str | None = None, times: int = 1) -> None:
        self.store = store
        self.fail_at = range(fail_at, fail_at + times if fail_at else 0)
        self.after = after
        self.only = only
        self.counts: Counter[str] = Counter()
        self.failed: list[str] = []

    def __getattr__(self, name: str) -> Any:
        target = getattr(self.store, name)
        if name not in CALLS:
            return target

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.counts[name] += 1
            number = self.counts[name] if self.only else self.counts.total()
            fatal = number in self.fail_at and self.only in (None, name)
            if fatal:
                self.failed.append(name)
            if fatal and not self.after:
                raise StoreUnavailable("the test said so, before")
            result = await target(*args, **kwargs)
            if fatal:
                raise StoreUnavailable("the test said so, after")
            return result

        return call


def every_call(counts: Counter[str]) -> Iterator[tuple[str, int]]:
    """Each call of a calm run, by name and number. Sweeps come by time, so only the first few of theirs count."""
    for name, count in counts.items():
        for number in range(1, min(count, COUNTED.get(name, 5)) + 1):
            yield name, number
