"""A store that fails at a chosen call, before doing anything or after having done it."""

from __future__ import annotations

from typing import Any

from perdure import StoreUnavailable

CALLS = frozenset(
    {
        "create", "append", "request_cancel", "terminate", "resume", "renew", "reap", "claim", "held", "load", "commit",
        "release", "park", "news", "get", "journal", "list_runs", "inbox",
    }
)  # fmt: skip


class FaultyStore:
    """Counts calls; the one with number `fail_at` raises `StoreUnavailable`. 0: none does."""

    def __init__(self, store: Any, fail_at: int, *, after: bool, times: int = 1) -> None:
        self.store = store
        self.fail_at = range(fail_at, fail_at + times)
        self.after = after
        self.calls = 0
        self.failed: list[str] = []

    def __getattr__(self, name: str) -> Any:
        target = getattr(self.store, name)
        if name not in CALLS:
            return target

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            fatal = self.calls in self.fail_at
            if fatal:
                self.failed.append(name)
            if fatal and not self.after:
                raise StoreUnavailable("the test said so, before")
            result = await target(*args, **kwargs)
            if fatal:
                raise StoreUnavailable("the test said so, after")
            return result

        return call
