"""Everything in asyncio happens in the same order on every replay and in every process."""

from __future__ import annotations

import asyncio

import pytest

from plain_python.orders import WORKFLOWS, record, replay
from support.processes import Process


@pytest.mark.parametrize("name", sorted(WORKFLOWS))
def test_the_order_is_the_same_on_every_replay(name: str) -> None:
    """CONFORMANCE P3, FAULTS D8, D11: begin, end and cancellation of every task, in the same order."""
    drive, lines = record(name)
    try:
        assert lines
        for _ in range(3):
            run, again = replay(drive)
            assert again == lines
            assert run.outcome == drive.run.outcome
    finally:
        drive.close()


def test_the_order_is_the_same_under_three_hash_seeds() -> None:
    """CONFORMANCE P3, FAULTS D7, D8: processes differ in hash seed and in addresses, journals and orders do not."""
    processes = [Process("plain_python.orders:digests", env={"PYTHONHASHSEED": s}) for s in ("0", "1", "4711")]
    try:
        outputs = [[process.line() for _ in WORKFLOWS] for process in processes]
    finally:
        for process in processes:
            process.__exit__(None, None, None)
    for first, second, third in zip(*outputs, strict=True):
        assert first.startswith("order_of_")
        assert first == second == third


def test_the_order_does_not_depend_on_addresses() -> None:
    """FAULTS D8: `wait` over gathers goes by creation, wherever in memory each of them happens to be."""
    loop = asyncio.new_event_loop()
    keep: list[object] = []
    try:
        drive, lines = record("order_of_waiting_for_gathers")
        for number in range(20):
            # Futures of other sizes of history leave holes; the next ones land in other places.
            junk = [asyncio.gather(loop.create_future(), loop.create_future()) for _ in range(number * 7)]
            keep.append(junk[:: number % 5 + 2])
            del junk
            assert replay(drive)[1] == lines
        drive.close()
    finally:
        loop.close()
