"""CONFORMANCE W1: what every store promises about published events, below the engine.

The memory store is the reference: whatever is done in whatever order, SQLite shows the same afterwards.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from perdure.kernel.definitions import EventPolicy
from perdure.store.memory import MemoryStore
from perdure.store.memory import events as memory_events
from perdure.store.protocol import Store
from perdure.store.sql import events as sqlite_events
from perdure.store.sqlite import SQLiteStore, migrate
from perdure.store.sqlite.session import connect_writer, prepare_file
from perdure.testing.store.events import waiting
from stores.event_lives import Pair
from stores.store_kit import SHARED, World, accept, create, published, row_of


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishing serves two runs at once, so that spreading has something to do."""
    for module in (memory_events, sqlite_events):
        monkeypatch.setattr(module, "SPREAD_RUNS_MAX", 2)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("seed", range(40))
def test_memory_and_sqlite_do_the_same_whatever_happens(tmp_path: Path, seed: int) -> None:
    """CONFORMANCE E6, E7: 150 random calls; an event is held by one run, a copy given to a run once."""

    async def main() -> None:
        stores: list[Store] = [MemoryStore(), SQLiteStore(tmp_path / "a.db", "relaxed")]
        for store in stores:
            await store.open()
        pair = Pair(stores, seed)
        for _ in range(150):
            await pair.step()
        for store in stores:
            await store.close()

    asyncio.run(main())


# -- the parts, one by one -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_parts")
def test_spreading_goes_on_where_it_was(world: World) -> None:
    """Bounded parts, by any process: each run that waits gets it once."""

    async def check(store: Store) -> None:
        keys = [await create(store, f"r{number}") for number in range(7)]
        for key in keys:
            await accept(store, waiting(key, ping=1))
        assert (await store.publish(published(policy=SHARED), 10)).more
        assert [len(await store.inbox(key, 10)) for key in keys] == [1] * 2 + [0] * 5
        # A second one overtakes nothing: each run that it reaches gets the first one, too, and in order.
        second = await store.publish(published(policy=EventPolicy(consume=False, delivery="all")), 10)
        assert second.more
        assert [len(await store.inbox(key, 10)) for key in keys] == [2] * 2 + [0] * 5
        # One gives up before it is reached: it has what was published while it waited.
        await accept(store, waiting(keys[6]))
        parts = 0
        while (await store.spread(100, 2, 10)).more:
            parts += 1
        assert parts >= 3
        assert [len(await store.inbox(key, 10)) for key in keys] == [2] * 7
        for key in keys:
            assert [item.publication for item in await store.inbox(key, 10)] == [1, 2]

    world.run(check)


def test_an_existing_file_finds_its_waiting_runs_and_unread_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its runs wait for is in their frontiers; what ended ones left unread becomes dead letters."""
    path = str(tmp_path / "old.db")
    prepare_file(path)
    with monkeypatch.context() as patched:
        patched.setattr(migrate, "MIGRATIONS", migrate.MIGRATIONS[:1])
        session = connect_writer(path, "full")
        migrate.migrate(session, path)
        session.close()
    old = apsw.Connection(path)
    receive = b'{"kind":"receive","location":"receive","since":1,"detail":"\'ping\' or \'pong\'"}'
    frontier = b'{"seq":1,"count":1,"digest":1,"operations":[%b,{"kind":"timer","location":"t","since":1}]}' % receive
    for run_id, shown in (("waits", frontier), ("damaged", b"{"), ("none", None)):
        old.execute(
            "INSERT INTO runs (id, generation, workflow, version, status, epoch, ready_at, next_seq, created_at,"
            " updated_at, recoveries, input_digest, cancel_requested, frontier)"
            " VALUES (?, 1, 'w', '1', 'waiting', 1, 0, 2, 1, 1, 0, x'00', 0, ?)",
            (run_id, shown),
        )
    old.execute("UPDATE runs SET status = 'completed', finished_at = 7 WHERE id = 'none'")
    for number, kind in ((2, "event"), (3, "cancel")):
        old.execute(
            "INSERT INTO inbox VALUES (?, (SELECT key FROM runs WHERE id = 'none'), ?, 'left', x'7b7d', 5, 0)",
            (number, kind),
        )
    old.close()

    async def main() -> None:
        store = SQLiteStore(path)
        await store.open()
        (letter,) = await store.dead_letters(None, 10)
        assert (letter.type, letter.target, letter.target_status, letter.died_at) == ("left", "none", "completed", 7)
        assert list(await store.inbox((await row_of(store, "none")).key, 10)) == []
        for kind in ("ping", "pong", "other"):
            await store.publish(published(kind, SHARED), 10)
        row = await row_of(store, "waits")
        assert [item.type for item in await store.inbox(row.key, 10)] == ["ping", "pong"]
        await store.close()

    asyncio.run(main())
