"""The mover: everything goes over, whatever breaks at whatever moment, and never is a run in two stores."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from moving.stores import PAIRS, TARGET, claimable, mover, opened, rows_of
from perdure.admin.move import Moved, Progress
from perdure.errors import MoveRefused, RunMoved, StoreUnavailable
from perdure.store.model import Status
from perdure.store.protocol import Store
from perdure.testing.store.kit import accept, create, event, finishing, new_run, row_of
from perdure.testing.store.moving import CLAIMED, fill
from support.faulty_stores import DisturbedStore, nothing
from support.lives import run_async

#: Every call of the mover.
CALLS = (
    "identity", "departure", "depart", "stay", "leave", "pack", "remainder", "receive", "confirm", "received",
    "withdraw", "arrive", "has_arrived", "count_runs", "list_runs", "get",
)  # fmt: skip


class Killed(BaseException):
    """The mover is gone at this call."""


def dies_at(old: Store, new: Store, number: int, *, before: bool) -> tuple[Any, Any, list[str]]:
    """Both stores, until the call with this number, counted over both."""
    asked: list[str] = []

    def die(call: Any) -> None:
        asked.append(call.name)
        if len(asked) == number:
            raise Killed(call.name)

    wrapped = [DisturbedStore(old), DisturbedStore(new)]
    for one in wrapped:
        one.around(CALLS, die, before=before)
    return wrapped[0], wrapped[1], asked


async def check_nobody_twice(old: Store, new: Store, everything: set[str]) -> None:
    """No run can be claimed, or be made to, in both stores; decided or not, each is in one of them."""
    departure = await old.departure()
    here, there = await claimable(old), await claimable(new)
    if departure is None:
        assert not there
        assert here == everything
    else:
        assert not {
            run_id for run_id in here if (await row_of(old, run_id)).status in ("pending", "running", "waiting")
        }
        assert not there or (departure.gone and there == everything)


async def check_all_is_there(old: Store, new: Store) -> None:
    verified = await mover(old, new).verify()
    assert (verified.same, verified.went_on, verified.removed, verified.different) == (12, 0, 0, ())
    assert await claimable(new) == CLAIMED | {"parked", "paused"}
    assert len(await new.dead_letters(None, 9)) == 1
    assert len(await new.publications(None, 9)) == 5
    with pytest.raises(RunMoved) as error:
        await old.append("waits", event(), 9)
    assert error.value.location == TARGET


@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
def test_everything_goes_over(kinds: tuple[str, str], tmp_path: Path) -> None:
    """Between any two kinds of stores; a second call finds it done."""

    async def main() -> None:
        async with opened(kinds, tmp_path) as (old, new):
            await fill(old)
            heard: list[Progress] = []
            moved = await mover(old, new, tell=heard.append).move()
            assert (moved.runs, moved.open, moved.copied, moved.events, moved.dead_letters) == (12, 9, 12, 5, 1)
            assert moved.handed_over
            await check_all_is_there(old, new)
            assert [heard[0].phase, heard[-1]] == ["copying", Progress("done", 12, 12)]
            again = await mover(old, new).move()
            assert again == Moved(runs=12, open=9, handed_over=True)

    run_async(main())


@pytest.mark.parametrize("before", [True, False], ids=["before the call", "after the call"])
@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
def test_killed_at_every_call_it_goes_on(kinds: tuple[str, str], before: bool, tmp_path: Path) -> None:
    """FAULTS O27: one mover after another dies, each at a later call, until one comes to the end."""

    async def main() -> None:
        async with opened(kinds, tmp_path) as (old, new):
            await fill(old)
            everything = await claimable(old)
            for number in range(1, 200):
                first, second, _ = dies_at(old, new, number, before=before)
                try:
                    await mover(first, second).move()
                except Killed:
                    await check_nobody_twice(old, new, everything)
                    continue
                break
            assert number > 20
            await check_all_is_there(old, new)

    run_async(main())


@pytest.mark.parametrize("before", [True, False], ids=["before the call", "after the call"])
@pytest.mark.parametrize("kinds", [("memory", "sqlite"), ("sqlite", "memory")], ids="-".join)
def test_killed_once_at_any_call_the_next_one_ends_it(kinds: tuple[str, str], before: bool, tmp_path: Path) -> None:
    """FAULTS O27: from each single moment on."""

    async def main() -> None:
        number = 0
        while True:
            number += 1
            async with opened(kinds, tmp_path / str(number)) as (old, new):
                await fill(old)
                everything = await claimable(old)
                first, second, asked = dies_at(old, new, number, before=before)
                try:
                    await mover(first, second).move()
                except Killed:
                    await check_nobody_twice(old, new, everything)
                else:
                    assert len(asked) > 30
                    return
                await mover(old, new).move()
                await check_all_is_there(old, new)

    run_async(main())


@pytest.mark.parametrize("number", range(1, 60, 6))
def test_taken_back_at_any_moment_until_it_is_decided(number: int, tmp_path: Path) -> None:
    """`--undo` after a mover that died: the old store works on and the new one has nothing; or it is too late."""

    async def main() -> None:
        async with opened(("sqlite", "memory"), tmp_path) as (old, new):
            await fill(old)
            everything = await claimable(old)
            first, second, _ = dies_at(old, new, number, before=False)
            with contextlib.suppress(Killed):
                await mover(first, second).move()
            departure = await old.departure()
            if departure is not None and departure.gone:
                with pytest.raises(MoveRefused, match="gone"):
                    await mover(old, new).undo()
                return
            await mover(old, new).undo()
            assert await rows_of(new) == {}
            assert await claimable(old) == everything
            assert not await mover(old, new).undo()
            await mover(old, new).move()
            await check_all_is_there(old, new)

    run_async(main())


def test_what_changes_while_ended_runs_are_copied_is_right_in_the_end(tmp_path: Path) -> None:
    """Ended since, deleted since, reopened since, and started anew under the same id."""

    async def main() -> None:
        async with opened(("sqlite", "memory"), tmp_path) as (old, new):
            await fill(old)
            await accept(old, finishing(await create(old, "to be deleted"), 2))
            await accept(old, finishing(await create(old, "to be another"), 2))
            copied = await mover(old, new).move(hand_over=False)
            assert (copied.runs, copied.handed_over) == (5, False)
            assert await old.departure() is None
            await old.delete([(await row_of(old, name)).key for name in ("to be deleted", "to be another")])
            await old.create(new_run("to be another", owner=None, digest=b"second"), None)
            await accept(old, finishing(await create(old, "ended since"), 2))
            moved = await mover(old, new).move()
            assert (moved.runs, moved.open) == (14, 10)
            rows = await rows_of(new)
            assert "to be deleted" not in rows
            assert (rows["to be another"].status, rows["to be another"].input_digest) == (Status.PENDING, b"second")
            assert rows["ended since"].status is Status.COMPLETED
            verified = await mover(old, new).verify()
            assert (verified.same, verified.different) == (14, ())

    run_async(main())


def test_a_target_that_is_away_is_waited_for(tmp_path: Path) -> None:
    """FAULTS O29: also in the middle; what was copied is not copied again."""

    async def main() -> None:
        async with opened(("sqlite", "memory"), tmp_path) as (old, new):
            await fill(old)
            for name in ("receive", "confirm", "arrive"):
                away = DisturbedStore(new)

                def refuse(_call: Any) -> None:
                    raise StoreUnavailable("the server restarts")

                hits = away.after(name, refuse, times=3)
                patient = mover(old, away, retry_seconds=30.0)
                await patient.move(hand_over=name == "arrive")
                assert hits.hits == (3 if name != "confirm" else 0)
            await check_all_is_there(old, new)

    run_async(main())


def test_away_for_too_long_it_says_so_and_the_next_call_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(("sqlite", "memory"), tmp_path) as (old, new):
            await fill(old)
            away = DisturbedStore(new)

            def refuse(_call: Any) -> None:
                raise StoreUnavailable("the server is off")

            away.before("arrive", refuse)
            with pytest.raises(StoreUnavailable, match="is off"):
                await mover(old, away).move()
            await mover(old, new).move()
            await check_all_is_there(old, new)

    run_async(main())


def test_an_id_that_is_taken_stops_it_before_anything_departs(tmp_path: Path) -> None:
    """Bad input: open or ended, with the ids and the way out; the old store works on."""

    async def main() -> None:
        for name in ("waits", "ended"):
            async with opened(("sqlite", "memory"), tmp_path / name) as (old, new):
                await fill(old)
                await new.create(new_run(name, owner=None, digest=b"other"), None)
                with pytest.raises(MoveRefused, match=f"ids: '{name}'.*Delete them there") as refused:
                    await mover(old, new).move()
                assert refused.value.code == "P-309"
                assert await old.departure() is None
                assert (await row_of(new, name)).input_digest == b"other"

    run_async(main())


def test_an_id_that_is_taken_in_the_last_moment_gives_everything_back(tmp_path: Path) -> None:
    """Somebody starts a run in the new store while the open ones come: nothing was decided, the old store works on."""

    async def main() -> None:
        async with opened(("sqlite", "memory"), tmp_path) as (old, new):
            await fill(old)
            everything = await claimable(old)
            watched = DisturbedStore(old)

            async def start(_call: Any) -> None:
                await new.create(new_run("newest", owner=None, digest=b"other"), None)

            watched.after("depart", start)
            with pytest.raises(MoveRefused, match="newest"):
                await mover(watched, new).move()
            assert await old.departure() is None
            assert await claimable(old) == everything
            assert await claimable(new) == {"newest"}

    run_async(main())


def test_a_copy_that_differs_is_never_let_go_on(tmp_path: Path) -> None:
    """The checksums of both sides are compared before it is decided: a target that changes bytes is found out."""

    async def main() -> None:
        async with opened(("sqlite", "memory"), tmp_path) as (old, new):
            await fill(old)
            await mover(old, new).move(hand_over=False)
            lies = DisturbedStore(new)

            def change(call: Any) -> None:
                for one in call.args[1]:
                    if one.run.id == "answers":
                        key = new.tables.by_id["answers"].key  # type: ignore[attr-defined]
                        new.tables.runs[key].state = b'{"other": 1}'  # type: ignore[attr-defined]

            lies.after("receive", change, times=1)
            with pytest.raises(MoveRefused, match="'answers' is not the same"):
                await mover(old, lies).move()
            assert await old.departure() is None
            await mover(old, new).move()
            await check_all_is_there(old, new)

    run_async(main())


def test_afterwards_a_changed_run_is_found(tmp_path: Path) -> None:
    """`--verify`: what went on since is fine, what lost a record is not."""

    async def main() -> None:
        async with opened(("sqlite", "memory"), tmp_path) as (old, new):
            await fill(old)
            with pytest.raises(MoveRefused, match="not complete"):
                await mover(old, new).verify()
            await mover(old, new).move()
            await new.terminate("newest", "enough", 10**13)
            await new.delete([(await row_of(new, "ended")).key])
            verified = await mover(old, new).verify()
            assert (verified.same, verified.went_on, verified.removed, verified.different) == (10, 1, 1, ())
            run = new.tables.by_id["answers"]  # type: ignore[attr-defined]
            run.journal[1][1] = run.journal[1][1]._replace(data=b'{"changed": true}')
            verified = await mover(old, new).verify()
            assert verified.different == ("answers",)

    run_async(main())


def test_two_stores_that_are_one_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(("sqlite", "memory"), tmp_path) as (old, new):
            await fill(old)
            with pytest.raises(MoveRefused, match="the same store"):
                await mover(old, old).move()
            await mover(old, new).move()
            async with opened(("memory", "memory"), tmp_path / "others") as (third, _):
                with pytest.raises(MoveRefused, match="is moved to postgresql://shop@db/orders"):
                    await mover(old, third).move()
                await create(third, "c", owner=None)
                with pytest.raises(MoveRefused, match="target itself is moved"):
                    await mover(third, old).move()

    run_async(main())


def test_and_back(tmp_path: Path) -> None:
    """From the new store to a third one, and everything is as it was."""

    async def main() -> None:
        async with opened(("sqlite", "memory"), tmp_path) as (old, new):
            await fill(old)
            await mover(old, new).move()
            async with opened(("sqlite", "memory"), tmp_path / "back") as (back, _):
                await mover(new, back).move()
                verified = await mover(new, back).verify()
                assert (verified.same, verified.different) == (12, ())
                assert await claimable(back) == CLAIMED | {"parked", "paused"}
                assert await claimable(new) == {"parked", "paused"}

    run_async(main())


def test_two_movers_at_once(tmp_path: Path) -> None:
    """Nobody keeps two people from it: both come to the same end."""

    async def main() -> None:
        async with opened(("memory", "memory"), tmp_path) as (old, new):
            await fill(old)
            slow = DisturbedStore(new)
            slow.before(CALLS, lambda _call: asyncio.sleep(0))
            await asyncio.gather(mover(old, slow).move(), mover(old, new).move())
            await check_all_is_there(old, new)

    run_async(main())


def test_counting_changes_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(("sqlite", "memory"), tmp_path) as (old, new):
            await fill(old)
            looked = DisturbedStore(old)
            rule = looked.before(("depart", "stay", "leave"), nothing)
            counts = await mover(looked, new).count()
            assert sum(counts.values()) == 12
            assert rule.hits == 0
            assert await rows_of(new) == {}

    run_async(main())
