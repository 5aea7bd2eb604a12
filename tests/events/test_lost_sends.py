"""A store that does not answer while an event is handed over: without a key of the caller's it still counts once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from events.kinds import Note, Stop
from perdure import Engine, event, limits, receive, workflow
from perdure.admin.admin import Admin
from perdure.errors import StoreUnavailable
from perdure.kernel.definitions import DEFAULT_POLICY
from support.faulty_stores import DisturbedStore, lose_answer, raising, unavailable
from support.lives import Lives, run_async


@event
@dataclass
class LostBell:
    number: int


@workflow
async def lost_notes() -> list[str]:
    taken: list[str] = []
    while isinstance(one := await receive(Note, Stop), Note):
        taken.append(one.text)
    return taken


@workflow
async def lost_bells() -> list[int]:
    return [(await receive(LostBell)).number for _ in range(3)]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STORAGE_RETRY_SECONDS_MIN", 0.001)


async def with_engine(lives: Lives, act: Callable[[Engine, DisturbedStore], Awaitable[None]]) -> None:
    store = DisturbedStore(lives.store())
    async with Engine(store, sweep_interval=60) as engine:  # type: ignore[arg-type]
        await act(engine, store)


@pytest.mark.parametrize("times", [1, 2, limits.SEND_TRIES_MAX - 1])
@pytest.mark.parametrize("after", [True, False], ids=["raised but sent", "raised and not sent"])
def test_an_event_sent_arrives_once(lives: Lives, after: bool, times: int) -> None:
    """FAULTS B1, B2: the caller hears of nothing, the event is there once and in its place, and the run has it at once
    (the sweep comes once a minute here)."""

    async def act(engine: Engine, store: DisturbedStore) -> None:
        run = await engine.start(lost_notes(), id="run")
        await run.send(Note("first"))
        (store.after if after else store.before)("append", lose_answer if after else unavailable(), times=times)
        await run.send(Note("second"))
        await run.send(Note("second"))
        await run.send(Stop())
        assert await run.result() == ["first", "second", "second"]

    run_async(with_engine(lives, act))


@pytest.mark.parametrize("after", [True, False], ids=["raised but published", "raised and not published"])
def test_an_event_published_arrives_once(lives: Lives, after: bool) -> None:
    async def act(engine: Engine, store: DisturbedStore) -> None:
        run = await engine.start(lost_bells(), id="run")
        (store.after if after else store.before)("publish", lose_answer if after else unavailable(), times=2)
        for number in (1, 2, 2):
            await engine.publish(LostBell(number))
        assert await run.result() == [1, 2, 2]
        assert not await engine.admin.published()

    run_async(with_engine(lives, act))


@pytest.mark.parametrize("kind", ["send", "publish"])
def test_a_store_that_stays_away_is_told_of(lives: Lives, kind: str) -> None:
    """After so many tries. With a key the caller hears of it at once, and may repeat the call."""

    async def act(engine: Engine, store: DisturbedStore) -> None:
        run = await engine.start(lost_notes(), id="run")
        rule = store.before(("append", "publish"), unavailable())

        async def hand_over(key: str | None) -> None:
            await (run.send(Note("a"), key=key) if kind == "send" else engine.publish(LostBell(1), key=key))

        with pytest.raises(StoreUnavailable, match="the test said so"):
            await hand_over(None)
        assert rule.hits == limits.SEND_TRIES_MAX
        with pytest.raises(StoreUnavailable):
            await hand_over("k")
        assert rule.hits == limits.SEND_TRIES_MAX + 1

    run_async(with_engine(lives, act))


def test_a_store_that_takes_long_to_fail_is_not_tried_for_ever(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite waits ten seconds for a lock: six times that is longer than a caller believes in."""
    monkeypatch.setattr(limits, "SEND_SECONDS_MAX", 0.0)

    async def act(engine: Engine, store: DisturbedStore) -> None:
        run = await engine.start(lost_notes(), id="run")
        rule = store.before("append", unavailable())
        with pytest.raises(StoreUnavailable):
            await run.send(Note("a"))
        assert rule.hits == 1

    run_async(with_engine(lives, act))


def test_other_errors_are_told_at_once(lives: Lives) -> None:
    async def act(engine: Engine, store: DisturbedStore) -> None:
        run = await engine.start(lost_notes(), id="run")
        rule = store.before("append", raising(ValueError, "of the store"))
        with pytest.raises(ValueError, match="of the store"):
            await run.send(Note("a"))
        assert rule.hits == 1

    run_async(with_engine(lives, act))


def test_without_a_worker_too(lives: Lives) -> None:
    """What `perdure send` does: an `Admin` of a store alone."""

    async def act(engine: Engine, store: DisturbedStore) -> None:
        run = await engine.start(lost_notes(), id="run")
        store.after("append", lose_answer, times=1)
        await Admin(store).send_json("run", "tests.note", b'{"text":"a"}', policy=DEFAULT_POLICY)  # type: ignore[arg-type]
        await run.send(Stop())
        assert await run.result() == ["a"]

    run_async(with_engine(lives, act))
