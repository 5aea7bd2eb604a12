"""A bug in a store, or in ours, does not end the sweep for ever: what was let go of is found again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from perdure import Engine, step, workflow
from perdure.store.base import Turn
from perdure.store.memory import MemoryStore
from support.lives import run_async


@step
async def double(number: int) -> int:
    return 2 * number


@workflow
async def doubled(number: int) -> int:
    return await double(number)


class Buggy(MemoryStore):
    """Raises what no store should: once for a turn, and then for the sweep that looks after its run."""

    def __init__(self) -> None:
        super().__init__()
        self.bugs = {"commit": 1, "news": 0}

    def _meet(self, what: str) -> None:
        self.bugs[what] -= 1
        if self.bugs[what] >= 0:
            raise AttributeError(f"a bug in {what}")

    def commit(self, turns: Sequence[Turn]) -> Any:
        if self.bugs["commit"] == 1:
            self.bugs["news"] = 2
        self._meet("commit")
        return super().commit(turns)

    def news(self, *args: Any) -> Any:
        self._meet("news")
        return super().news(*args)


def test_a_run_is_picked_up_again_after_bugs_in_the_sweep(caplog: pytest.LogCaptureFixture) -> None:
    """Law 8: nothing is left hanging, and what happened is said with its traceback."""

    async def main() -> None:
        store = Buggy()
        async with Engine(store) as engine:
            run = await engine.start(doubled(1), id="a")
            assert await run.result(timeout=20) == 2
            assert store.bugs["news"] < 0, "the sweep met the bugs"

    with caplog.at_level(logging.CRITICAL, "perdure"):
        run_async(main())
    assert any("the sweep" in record.message and record.exc_info for record in caplog.records)
