"""Plain turns go by the commit lane, whatever their runs are called and from which worker they come: a fast path that
is never taken would answer right, and be no use."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.store.model import CLAIMABLE, Status
from perdure.store.postgres import batches
from perdure.store.turn import NO_EFFECTS, Turn
from perdure.testing.store import CHECKS, Check
from perdure.testing.store.kit import accept, create, finishing, step_row, stepping, turn, watch
from stores.postgres_holds import stores_on
from stores.store_kit import World
from support.lives import PATIENCE_SECONDS, STORES, run_async, until
from support.postgres import server

pytestmark = pytest.mark.skipif("postgres" not in STORES, reason="PostgreSQL is left out of this run")

#: So many runs, each with so many records, are committed at once.
KINDS = {
    "lane_step": (1, 1),
    "lane_steps": (3, 1),
    "lane_step_seek": (1, batches._MANY_TURNS),
    "lane_step_here": (1, batches._MANY_TURNS),
    "lane_turns": (3, 1),
    "lane_ends": (3, 1),
}


def _of(kind: str, key: int, seq: int) -> Turn:
    if kind == "lane_turns":
        return turn(key, seq, step_row(seq), status=Status.WAITING, wake_at=5)
    return finishing(key, seq) if kind == "lane_ends" else stepping(key, seq)


def refuse_the_general_way(lane: Any, general: list[Any]) -> None:
    """What goes the general way fails."""

    def refuse(*call: Any) -> Any:
        general.append(call)
        failed = asyncio.get_running_loop().create_future()
        failed.set_exception(AssertionError("it goes the general way"))
        return failed

    lane._general = refuse


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the statements that lanes have sent."""
    names: list[str] = []
    own = batches.batches_of

    def noted(*arguments: Any) -> Sequence[batches.Batch]:
        found = own(*arguments)
        names.extend(batch.name.decode() for batch in found)
        return found

    monkeypatch.setattr(batches, "batches_of", noted)
    return names


#: By its place a row is found only as the turn before has left it.
CASES = [
    (kind, status, owned)
    for kind in KINDS
    for status in sorted(CLAIMABLE)
    for owned in (True, False)
    if kind != "lane_step_here" or (status is Status.RUNNING and owned)
]


@pytest.mark.parametrize(("kind", "status", "owned"), CASES)
def test_plain_turns_are_committed_by_the_lane_alone(kind: str, status: Status, owned: bool, sent: list[str]) -> None:
    """FAULTS C5: also those of a run that was taken from its owner and that nobody has yet."""
    schema = server().fresh_schema(keep_sessions=True)
    runs, records = KINDS[kind]

    async def main() -> None:
        async with stores_on(schema, 1) as (store,):
            general: list[Any] = []
            watched = await create(store, "watched")
            keys = [await create(store, f"r{number}") for number in range(runs)]
            await create(store, "watched, too")
            watcher = await create(store, "watcher")
            await accept(store, turn(watcher, 2, watch(2, "watched"), watch(3, "watched, too")))
            assert watched < keys[0]
            for key in keys:
                await accept(store, turn(key, 2, *[step_row(seq) for seq in range(2, 2 + records)]))
                if kind == "lane_step_here":
                    await accept(store, stepping(key, 2 + records))
            first = 2 + records + (kind == "lane_step_here")
            if kind != "lane_step_here":
                as_it_is = (status.value, "w1" if owned else None)
                server().execute(f'UPDATE "{schema}".runs SET status = %s, owner = %s', as_it_is)
            assert store._lane is not None
            refuse_the_general_way(store._lane, general)
            assert await store.commit([_of(kind, key, first) for key in keys]) == [NO_EFFECTS] * runs
            assert sent[-1:] == [kind]
            assert general == []

    run_async(main())


def test_a_store_that_closes_while_its_lane_is_opened_again_leaves_no_connection() -> None:
    """FAULTS B12: closing does not wait for a server that may be gone, and what arrives after that is closed."""
    schema = server().fresh_schema()
    connecting, go_on = threading.Event(), threading.Event()
    made: list[Any] = []

    async def main() -> None:
        async with stores_on(schema, 1) as (store,):
            connect = store._connect_lane

            def slowly() -> Any:
                connecting.set()
                assert go_on.wait(PATIENCE_SECONDS)
                made.append(connect())
                return made[0]

            store._connect_lane = slowly  # type: ignore[method-assign]
            end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s"
            server().execute(end, (f"{schema} lane",))
            assert await asyncio.to_thread(connecting.wait, PATIENCE_SECONDS)
        go_on.set()
        await until(lambda: bool(made) and made[0].is_broken)

    run_async(main())


#: A turn alone, in every way late and in no way late; and turns that are repeated.
FENCED = [
    check
    for check in CHECKS
    if (check.id.startswith("late-") and check.id.endswith("-alone]")) or check.id.startswith("turns-")
]


@pytest.mark.parametrize("check", FENCED, ids=lambda check: check.id)
def test_runs_with_many_turns_are_fenced_as_others(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Laws 6 and 7: their turns are statements of their own, which the suite would not come by."""
    monkeypatch.setattr(batches, "_MANY_TURNS", 0)
    check(World("postgres", tmp_path))


def test_a_place_where_another_run_is_by_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 6: a run was deleted, its place was cleaned and given to a new one, which stands where the old one stood."""
    schema = server().fresh_schema()
    monkeypatch.setattr(batches, "_MANY_TURNS", 0)

    async def main() -> None:
        async with stores_on(schema, 1) as (store,):
            old, new = await create(store, "old"), await create(store, "new")
            assert store._lane is not None
            place = server().execute(f'SELECT ctid::text FROM "{schema}".runs WHERE key = %s', (new,)).fetchone()[0]
            store._lane._places.note(old, place.encode())
            assert await store.commit([stepping(old, 2)]) == [NO_EFFECTS]
            assert [row.seq for row in await store.journal(old, 1)] == [1, 2]
            assert [row.seq for row in await store.journal(new, 1)] == [1]

    run_async(main())
