"""What was published and nobody took goes away in time, by the sweep of any worker."""

from __future__ import annotations

from typing import Any

import pytest

from events.published_kinds import Flash, Gift, Rule
from perdure import limits
from support.lives import Lives, run_async, until


@pytest.fixture(autouse=True)
def tidy_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TIDY_SECONDS", 0.02)
    monkeypatch.setattr(limits, "TIDY_ROWS_MAX", 3)


@pytest.mark.parametrize(("kind", "retention"), [(Gift, 0.05), (Rule, 0.05), (Flash, 1000.0)])
def test_published_events_go_away_in_time(lives: Lives, kind: Any, retention: float) -> None:
    """`event_retention` and `expires`, in bounded parts; single ones that went unread are counted."""

    async def main() -> None:
        async with lives.engine(event_retention=retention) as engine:
            for number in range(10):
                await engine.publish(kind(number))

            async def empty() -> bool:
                return not await engine.admin.published()

            await until(empty)
            counted = dict(await engine.store.expired_events())
            assert counted == ({} if kind is Rule else {kind.__perdure_event__.name: 10})

    run_async(main())


def test_what_is_young_enough_stays(lives: Lives) -> None:
    async def main() -> None:
        async with lives.engine() as engine:
            await engine.publish(Gift(1))
            await engine.publish(Flash(2))

            async def only_the_lasting_one() -> bool:
                return [one.data for one in await engine.admin.published()] == [{"number": 1}]

            await until(only_the_lasting_one)

    run_async(main())
