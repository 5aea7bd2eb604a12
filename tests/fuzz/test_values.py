"""Hostile values through every public call: a short series of the fuzzer that `make fuzz` runs for long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fuzz import calls
from fuzz.calls import INSIDE, OUTSIDE, World
from fuzz.hostile import Draws, Trap
from fuzz.values import fuzz

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    # What a hostile value does when it is finalised is nobody's affair.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.parametrize("seed", [1_000_000, 2_000_000])
def test_each_call_works_exactly_or_raises_a_documented_error(seed: int, tmp_path: Path) -> None:
    """And an ordinary workflow runs after it. No value hangs a call, ends the loop or is stored as something else."""
    found = fuzz(200, seed, directory=tmp_path)
    assert found.problems == []
    assert found.outcomes["worked"] > 20
    assert found.outcomes["NotStorable"] > 20
    assert found.outcomes["BadArgument"] > 20


def test_a_call_that_lets_out_what_a_value_raised_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzzer can fail: on an error of the value's code, on a lost value, on something left to the event loop."""

    async def traps(world: World, draws: Draws) -> None:
        raise Trap

    async def loses(world: World, draws: Draws) -> None:
        calls.same([1], [1.5])

    async def leaves(world: World, draws: Draws) -> None:
        import asyncio

        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(0)

    def series(act: Any) -> str:
        for known in (OUTSIDE, INSIDE):
            monkeypatch.setattr(f"fuzz.values.{'OUTSIDE' if known is OUTSIDE else 'INSIDE'}", {})
        monkeypatch.setattr("fuzz.values.OUTSIDE", {"act": act})
        return fuzz(1, 1, directory=tmp_path).problems[0]

    assert "Trap came out" in series(traps)
    assert "came back as" in series(loses)
    assert "left to the event loop" in series(leaves)
