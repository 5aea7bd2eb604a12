"""`race`: the first record decides; the others are cancelled and nobody waits for them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    Engine,
    RaceFailed,
    RunFailed,
    RunFinished,
    Winner,
    event,
    race,
    receive,
    sleep,
    start_child,
    step,
    workflow,
)
from perdure.errors import BadArgument, BranchCancelled
from perdure.types import Invocation, Status
from support.effects import Effects
from support.lives import Lives, run_async, until


@event
@dataclass
class Go:
    number: int


class Refused(Exception):
    pass


GATES: dict[str, asyncio.Event] = {}
SEEN: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    GATES.clear()
    SEEN.clear()


@step
async def quick(value: str) -> str:
    return value


@step(max_attempts=1)
async def fail(value: str) -> str:
    raise Refused(value)


@step
async def for_ever(name: str) -> str:
    SEEN.append(f"{name} began")
    try:
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        SEEN.append(f"{name} cancelled")
        raise
    return name


@step
async def await_began(name: str) -> str:
    await until(lambda: f"{name} began" in SEEN)
    return "after"


_tries: dict[str, int] = {}


@step(max_attempts=3, initial_delay=0.001, jitter=0)
async def third_time(name: str) -> str:
    _tries[name] = _tries.get(name, 0) + 1
    if _tries[name] < 3:
        raise Refused(f"try {_tries[name]}")
    return name


async def nothing(value: str) -> str:
    return value


# -- who wins ------------------------------------------------------------------------------------------------


@workflow
async def first_of_two() -> list[Any]:
    winner = await race(slow=for_ever("slow"), fast=await_began("slow"))
    return [winner.name, winner.value, *winner]


def test_the_first_to_settle_wins_and_the_loser_is_cancelled_for_real(lives: Lives) -> None:
    """CONFORMANCE C1: the running step of the loser is cancelled, and nobody waits for it."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(first_of_two(), id="run")
            assert await run.result() == ["fast", "after", "fast", "after"]
            assert SEEN == ["slow began", "slow cancelled"]
            kinds = [(entry.kind, entry.location) for entry in await engine.admin.history("run")]
            assert kinds == [("started", ""), ("step_done", "race/fast/await_began"), ("completed", "")]

    run_async(main())


@workflow
async def tie() -> list[str]:
    return [
        (await race(b=nothing("b"), a=nothing("a"))).name,
        (await race(a=nothing("a"), b=nothing("b"))).name,
    ]


def test_ties_go_to_the_branch_given_first(lives: Lives) -> None:
    """CONFORMANCE C1: both are there at the same moment."""

    async def main() -> None:
        async with lives.engine() as engine:
            assert await (await engine.start(tie())).result() == ["b", "a"]

    run_async(main())


@workflow
async def error_wins() -> str:
    try:
        await race(bad=fail("no"), slow=sleep("1 day"))
    except Refused as error:
        return f"refused {error}"
    return "?"


@workflow
async def success_wins() -> list[str]:
    winner = await race(first="success", bad=fail("no"), good=third_time("good"))
    return list(winner)


@workflow
async def none_succeeds() -> list[str]:
    try:
        await race(first="success", one=fail("1"), two=fail("2"))
    except RaceFailed as failed:
        (refused,) = failed.split(Refused)[:1]
        assert isinstance(refused, RaceFailed)
        return [*failed.errors, *map(str, failed.errors.values()), failed.message, *refused.names]
    return []


def test_an_error_settles_a_race_but_not_one_for_success(lives: Lives) -> None:
    """CONFORMANCE C1, C2: both modes; a branch that is being retried does not lose."""

    async def main() -> None:
        async with lives.engine() as engine:
            _tries.clear()
            assert await (await engine.start(error_wins())).result() == "refused no"
            assert await (await engine.start(success_wins())).result() == ["good", "good"]
            assert await (await engine.start(none_succeeds())).result() == [
                "one", "two", "1", "2", "none of the 2 branches succeeded: one (Refused), two (Refused).", "one", "two",
            ]  # fmt: skip

    run_async(main())


@workflow
async def retrying_against_time() -> list[Any]:
    return list(await race(work=third_time("work"), timeout=sleep("1 hour")))


def test_a_retrying_branch_does_not_lose(lives: Lives) -> None:
    """CONFORMANCE C2: a failed attempt that is followed by another settles nothing."""

    async def main() -> None:
        _tries.clear()
        async with lives.engine() as engine:
            run = await engine.start(retrying_against_time(), id="run")
            assert await run.result() == ["work", "work"]
            kinds = [entry.kind for entry in await engine.admin.history("run")]
            assert kinds == ["started", "step_retry", "step_retry", "step_done", "completed"]

    run_async(main())


# -- losers --------------------------------------------------------------------------------------------------


@workflow
async def child() -> str:
    await receive(Go)
    return "never"


@workflow
async def child_loses() -> str:
    return (await race(child=child(), now=quick("done"))).name


def test_a_losing_child_is_cancelled(lives: Lives) -> None:
    """CONFORMANCE C1: losers are cancelled for real."""

    async def main() -> None:
        async with lives.engine() as engine:
            assert await (await engine.start(child_loses(), id="run")).result() == "now"

            async def ended() -> bool:
                return (await engine.status("run/race/child/child")).status is Status.CANCELLED

            await until(ended)

    run_async(main())


async def two_steps(path: str) -> str:
    await note(path, "one")
    await receive(Go)
    return "two"


@step
async def note(path: str, line: str) -> str:
    Effects(Path(path)).add(line)
    return line


@workflow
async def records_stay(path: str) -> list[str]:
    async def fast() -> str:
        await receive(Go)
        return "two"

    winner = await race(slow=two_steps(path), fast=fast())
    await note(path, "after")  # a suspension after the race is over
    await sleep(0.001)
    return [winner.name]


def test_records_of_losers_stay_and_nothing_repeats_over_crashes(lives: Lives, tmp_path: Path) -> None:
    """CONFORMANCE C1, C3: what the loser recorded is in the journal and replays, with a crash at every record."""
    effects = [Effects(tmp_path / "0")]

    def invocation() -> Invocation[list[str]]:
        return records_stay(str(effects[-1].path))

    async def drive(engine: Engine, _run: Any) -> None:
        async def is_past_the_note() -> bool:
            return any(e.location == "race/slow/note" for e in await engine.admin.history("run"))

        await until(is_past_the_note)
        with contextlib.suppress(RunFinished):
            await engine.send("run", Go(1), key="go")

    async def main() -> None:
        for limit in range(1, 7):
            other = lives.fresh()
            effects.append(Effects(tmp_path / str(limit)))

            async def act(engine: Engine) -> list[str]:
                run = await engine.start(invocation(), id="run")
                await drive(engine, run)
                return await run.result()

            died = await other.live_until(limit, act)
            assert died
            async with other.engine() as engine:
                # The branch that waited first gets the event, although it was given second.
                assert await act(engine) == ["fast"]
                locations = [entry.location for entry in await engine.admin.history("run")]
            assert locations == ["", "race/slow/note", "race/fast/receive", "note", "sleep", ""]
            assert effects[-1].lines() == ["one", "after"]

    run_async(main())


@workflow
async def cleans_up(path: str) -> str:
    async def slow() -> None:
        try:
            await sleep("1 day")
        finally:
            await note(path, "cleaned up")

    winner = await race(slow=slow(), fast=quick("x"))
    await receive(Go)
    return winner.name


def test_a_loser_may_clean_up_behind_the_back_of_the_winner(lives: Lives, effects: Effects) -> None:
    """CONFORMANCE C1: nobody waits for it, and it is carried out all the same."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(cleans_up(str(effects.path)), id="run")
            await until(lambda: effects.lines() == ["cleaned up"])
            await engine.send("run", Go(1))
            assert await run.result() == "fast"

    run_async(main())


@workflow
async def noisy_loser() -> str:
    async def slow() -> None:
        try:
            await sleep("1 day")
        finally:
            raise ValueError("while leaving")

    winner = await race(slow=slow(), fast=quick("x"))
    await sleep(0.001)
    return winner.name


def test_a_loser_that_fails_on_its_way_out_is_reported(lives: Lives, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing happens without a word."""

    async def main() -> None:
        async with lives.engine() as engine:
            assert await (await engine.start(noisy_loser())).result() == "fast"

    with caplog.at_level(logging.WARNING, "perdure.run"):
        run_async(main())
    assert "the branch 'slow' of a race" in caplog.text
    assert "while leaving" in caplog.text


@workflow
async def handles() -> list[Any]:
    handle = await start_child(quick_child("kid"))
    first = await race("pick", kid=handle, never=asyncio.get_running_loop().create_future())
    again = await race("pick", one=quick("1"))
    return [*first, *again]


@workflow
async def quick_child(value: str) -> str:
    return await quick(value)


def test_anything_that_can_be_awaited_can_race_under_a_name(lives: Lives) -> None:
    """Handles and futures too; the race's own name is part of its locations."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(handles(), id="run")
            assert await run.result() == ["kid", "kid", "one", "1"]
            assert "pick#2/one/quick" in [entry.location for entry in await engine.admin.history("run")]

    run_async(main())


@workflow
async def cancels_itself() -> str:
    async def odd() -> None:
        raise asyncio.CancelledError

    try:
        await race(odd=odd(), other=sleep(60))
    except BranchCancelled as error:
        return error.message
    return "?"


def test_a_branch_that_cancels_itself_does_not_cancel_the_workflow(lives: Lives) -> None:
    async def main() -> None:
        async with lives.engine() as engine:
            assert "branch 'odd' ended by a CancelledError" in await (await engine.start(cancels_itself())).result()

    run_async(main())


@workflow
async def bad_races(which: str) -> Any:
    match which:
        case "empty":
            return await race()
        case "value":
            return await race(good=quick("x"), bad=5)  # type: ignore[arg-type]
        case "mode":
            return await race(first="fastest", good=quick("x"))  # type: ignore[arg-type]
        case "name":
            return await race("a/b", good=quick("x"))
    raise AssertionError


@pytest.mark.parametrize(
    ("which", "says"),
    [
        ("empty", "needs at least one branch"),
        ("value", "the branch 'bad' of a race is int"),
        ("mode", "'settled' or 'success'"),
        ("name", "without spaces"),
    ],
)
def test_a_wrong_race_is_refused(lives: Lives, which: str, says: str) -> None:
    """What happened and what to do; nothing of it was begun."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(bad_races(which), id="run")
            with pytest.raises(RunFailed, match=says) as caught:
                await run.result()
            assert isinstance(caught.value.__cause__, BadArgument)
            assert [entry.kind for entry in await engine.admin.history("run")] == ["started", "failed"]

    run_async(main())


@workflow
async def over_crashes() -> list[Any]:
    one = await race(a=third_time("a"), b=sleep(60))
    two = await race(first="success", bad=fail("x"), good=quick("y"))
    await sleep(0.001)
    three: Winner[Any] = await race(inner=race(x=quick("x"), never=sleep(60)), never=sleep(60))
    return [*one, *two, three.name, *three.value]


def test_races_survive_a_crash_at_every_record(lives: Lives) -> None:
    """CONFORMANCE C1, C3: the same winners, with a suspension after each race."""
    for before in (False, True):
        _tries.clear()
        result = run_async(lives.fresh().crash_at_every_record(over_crashes, before=before))
        assert result == ["a", "a", "good", "y", "inner", "x", "x"]
