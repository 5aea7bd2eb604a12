"""When the loop's thread takes a busy writer for one that needs the interpreter (`store/sqlite/pace.py`)."""

from __future__ import annotations

import pytest

from perdure.store.sqlite import pace
from perdure.store.sqlite.pace import Pace


class Clocks:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.wall = 100.0
        self.cpu = 1.0

    def monotonic(self) -> float:
        return self.wall

    def thread_time(self) -> float:
        return self.cpu


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks()
    monkeypatch.setattr(pace, "time", clocks)
    return clocks


def learned(clocks: Clocks) -> Pace:
    """After many groups of 1,000 changes, 2 microseconds each, and a sync of 1 millisecond."""
    made = Pace()
    for _ in range(50):
        made.began(1_000)
        clocks.cpu += 0.002
        clocks.wall += 0.003
        made.ended()
    return made


def test_a_writer_that_has_not_begun_needs_it(clocks: Clocks) -> None:
    assert learned(clocks).probably_wants_gil()


def test_a_group_has_its_usual_time(clocks: Clocks) -> None:
    made = learned(clocks)
    made.began(500)
    clocks.wall += 0.0019
    assert not made.probably_wants_gil()
    clocks.wall += 0.0002
    assert made.probably_wants_gil()


def test_nobody_yields_twice_for_one_group(clocks: Clocks) -> None:
    made = learned(clocks)
    made.began(500)
    clocks.wall += 1.0
    assert made.probably_wants_gil()
    assert not made.probably_wants_gil()
    made.ended()
    assert not made.probably_wants_gil()
    made.began(500)
    clocks.wall += 1.0
    assert made.probably_wants_gil()


def test_waiting_for_the_interpreter_is_no_part_of_the_pace(clocks: Clocks) -> None:
    """Otherwise each wait would make the next one longer."""
    made = learned(clocks)
    for _ in range(5):
        made.began(1_000)
        clocks.cpu += 0.002
        clocks.wall += 0.050
        made.ended()
    made.began(1_000)
    clocks.wall += 0.0045
    assert made.probably_wants_gil()
