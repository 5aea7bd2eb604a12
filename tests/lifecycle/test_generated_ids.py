"""Ids of runs that were started without one."""

from __future__ import annotations

import asyncio
import random
import uuid
from pathlib import Path

import pytest

from perdure import Engine, workflow
from perdure.admin.ids import new_run_id
from support.lives import run_async

NOW = 1_790_000_000_123_456  # microseconds


@workflow
async def nothing() -> None:
    return None


def test_an_id_is_a_uuid_of_version_7_that_tells_its_moment() -> None:
    made = uuid.UUID(new_run_id(random.Random(1), NOW))
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == NOW // 1_000
    assert new_run_id(random.Random(1), NOW) == str(made), "written as everybody writes them"


def test_ids_sort_by_the_moment_they_were_made() -> None:
    """Every microsecond counts, over the end of a millisecond too."""
    rng = random.Random(2)
    made = [new_run_id(rng, NOW + later) for later in range(2_500)]
    assert made == sorted(made)


@pytest.mark.parametrize("now", [0, 1, 999, -5_000_000, 2**70])
def test_a_clock_that_is_far_off_makes_ids_too(now: int) -> None:
    assert uuid.UUID(new_run_id(random.Random(3), now)).version == 7


def test_ids_of_one_moment_differ() -> None:
    rng = random.Random(4)
    assert len({new_run_id(rng, NOW) for _ in range(20_000)}) == 20_000


class Ticking:
    """A clock that never stands still and never goes back."""

    def __init__(self) -> None:
        self._at = NOW

    def now(self) -> int:
        self._at += 1
        return self._at


def test_runs_started_one_after_another_sort_that_way(tmp_path: Path) -> None:
    async def main() -> None:
        async with Engine(tmp_path / "runs.db", clock=Ticking()) as engine:
            started = [(await engine.start(nothing())).id for _ in range(20)]
            at_once = [run.id for run in await asyncio.gather(*(engine.start(nothing()) for _ in range(20)))]
            assert sorted(started + at_once) == started + at_once
            assert uuid.UUID(started[0]).version == 7
            assert [await engine.result(run_id) for run_id in started + at_once] == [None] * 40

    run_async(main())
