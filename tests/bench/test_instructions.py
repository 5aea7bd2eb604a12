"""The bytecodes of two kernels stay within their budget: a guard that no busy machine disturbs."""

from __future__ import annotations

import pytest
from bench.instructions import STEPS, TOLERANCE, VERSION, Counter, budgets, counted

from perdure.engine import fast_path


@pytest.mark.skipif(not fast_path.IN_USE, reason="the budget is that of the fast path, which is switched off")
def test_the_kernels_stay_within_their_budget() -> None:
    """If more work is wanted, `make instructions` renews the budget, and the change shows by how much."""
    known = budgets().get(VERSION)
    if known is None:
        pytest.skip(f"there is no budget for Python {VERSION}; `make instructions` makes one")
    found = counted()
    assert found.keys() == known.keys()
    for name, budget in known.items():
        assert found[name] <= budget * (1 + TOLERANCE), (
            f"{name}: {found[name]:,} bytecodes for {STEPS} steps, {found[name] / budget - 1:+.1%} from the budget"
        )


def test_the_counter_counts_what_is_executed_here_and_nothing_else() -> None:
    def work(times: int) -> int:
        total = 0
        for number in range(times):
            total += number
        return total

    def count(times: int) -> int:
        counter = Counter(__file__)
        with counter.counting():
            work(times)
            sorted(range(times))
        return counter.count

    count(10)  # on Python 3.13 the first look at a function only makes it ready
    few, many, more = count(10), count(20), count(30)
    assert few > 10
    assert many - few == more - many > 0
    elsewhere = Counter("/nowhere")
    with elsewhere.counting():
        work(10)
    assert elsewhere.count == 0
