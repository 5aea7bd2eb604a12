"""Published events of every kind, and runs that wait for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perdure import Engine, event, receive, workflow
from support.lives import until


@dataclass(frozen=True)
class _Numbered:
    number: int


@event(name="tests.job")
@dataclass(frozen=True)
class Job(_Numbered):
    """Defaults: created before it, the first reader takes it."""


@event(name="tests.news", consume=False)
@dataclass(frozen=True)
class News(_Numbered):
    """Every run that was created before it reads it once."""


@event(name="tests.alarm", delivery="after_wait", consume=False)
@dataclass(frozen=True)
class Alarm(_Numbered):
    """Every run that waits at that moment."""


@event(name="tests.call", delivery="after_wait")
@dataclass(frozen=True)
class Call(_Numbered):
    """One of the runs that wait at that moment."""


@event(name="tests.rule", delivery="all", consume=False)
@dataclass(frozen=True)
class Rule(_Numbered):
    """Every run, also later ones."""


@event(name="tests.gift", delivery="all")
@dataclass(frozen=True)
class Gift(_Numbered):
    """One run, perhaps a later one."""


@event(name="tests.prize", delivery="first", consume=False)
@dataclass(frozen=True)
class Prize(_Numbered):
    """One run, whatever `consume` says."""


@event(name="tests.medal", delivery="first")
@dataclass(frozen=True)
class Medal(_Numbered):
    """One run."""


@event(name="tests.flash", expires=0.2, delivery="all")
@dataclass(frozen=True)
class Flash(_Numbered):
    """Soon over."""


@event(name="tests.glow", expires=0.2, delivery="all", consume=False)
@dataclass(frozen=True)
class Glow(_Numbered):
    """Soon over, for everybody."""


@event(name="tests.stray", undelivered="broadcast", delivery="all")
@dataclass(frozen=True)
class Stray(_Numbered):
    """Goes on to somebody else if its run ends."""


@event(name="tests.whisper", undelivered="discard")
@dataclass(frozen=True)
class Whisper(_Numbered):
    """Gone with its run."""


KINDS: dict[str, type[_Numbered]] = {
    kind.__perdure_event__.name: kind  # type: ignore[attr-defined]
    for kind in (Job, News, Alarm, Call, Rule, Gift, Prize, Medal, Flash, Glow, Stray, Whisper)
}


@event(name="tests.open")
@dataclass(frozen=True)
class Open:
    """Lets `collect_later` begin to wait."""


@workflow
async def collect(kind: str, count: int) -> list[int]:
    return [(await receive(KINDS[kind])).number for _ in range(count)]


@workflow
async def collect_later(kind: str, count: int) -> list[int]:
    await receive(Open)
    return [(await receive(KINDS[kind])).number for _ in range(count)]


@workflow
async def collect_in_time(kind: str, seconds: float) -> list[int]:
    """Everything that comes, until nothing came for so long."""
    found: list[int] = []
    while True:
        try:
            found.append((await receive(KINDS[kind], timeout=seconds)).number)
        except TimeoutError:
            return found


def name_of(kind: Any) -> str:
    return kind.__perdure_event__.name  # type: ignore[no-any-return]


async def waiting_for(engine: Engine, kind: Any, run_id: str) -> None:
    """Until the store says that the run waits for this kind."""

    async def waits() -> bool:
        view = await engine.status(run_id)
        return any(repr(name_of(kind)) in wait.detail for wait in view.waiting if wait.kind == "receive")

    await until(waits)
