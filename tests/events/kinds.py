"""Events that the tests of these folders send. Shared, because the registry takes each name once per process."""

from __future__ import annotations

from dataclasses import dataclass

from perdure import event


@event(name="tests.note")
@dataclass(frozen=True)
class Note:
    text: str


@event(name="tests.tick")
@dataclass(frozen=True)
class Tick:
    number: int


@event(name="tests.stop")
@dataclass(frozen=True)
class Stop:
    pass
