"""Opening, closing and opening again; many at once."""

from __future__ import annotations

import asyncio

from perdure.store.model import NewRun, RunFilter
from perdure.store.protocol import Store
from perdure.testing.store.kit import World, accept, create, event, everything, new_run, row_of, step_row, turn, worker


def check_an_empty_store_says_so(world: World) -> None:
    """FAULTS E17: nothing is an answer."""

    async def check(store: Store) -> None:
        assert await store.get("a") is None
        assert list(await store.list_runs(RunFilter(), 10)) == []
        assert dict(await store.count_runs()) == {}
        assert list(await store.journal(1, 1)) == []
        assert list(await store.inbox(1, 10)) == []
        assert list(await store.load([1, 2])) == []
        assert list(await store.claim("w1", 10**15, 10)) == []
        assert dict(await store.held("w1")) == {}
        assert await store.reap("w1", 1) == 0
        assert list(await store.workers()) == []
        assert list((await store.news("w1", 0)).items) == []

    world.run(check)


def check_many_open_at_once(world: World) -> None:
    """CONFORMANCE W1: ten stores on data that is not there yet; all of them work, and on the same data."""

    async def check(store: Store) -> None:
        fresh = world.fresh()
        stores = [fresh.store() for _ in range(10)]
        try:
            await asyncio.gather(*(one.open() for one in stores))
            await asyncio.gather(*(create(one, f"r{number}") for number, one in enumerate(stores)))
            for one in stores:
                assert len(await one.list_runs(RunFilter(), 100)) == 10
        finally:
            for one in stores:
                await one.close()

    world.run(check)


def check_opening_again_changes_nothing(world: World) -> None:
    """Migrations are done once: whatever a store does when it opens, data that is there stays as it is."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await accept(store, turn(key, 2, step_row(2), frontier=b"f", state=b"{}"))
        await store.append("a", event(dedup="k"), 9)
        before = await everything(store, "a")
        for _ in range(3):
            again = await world.connect()
            assert await everything(again, "a") == before

    world.run(check)


def check_closing_twice_is_fine(world: World) -> None:
    """FAULTS F15."""

    async def check(store: Store) -> None:
        await create(store, "a")
        await store.close()
        await store.close()

    world.run(check)


def check_what_was_accepted_before_closing_is_kept(world: World) -> None:
    """FAULTS O16: calls under way when the store closes are answered and durable, or refused; never half."""

    async def check(store: Store) -> None:
        calls = [asyncio.ensure_future(store.create(new, None)) for new in _new_runs(20)]
        await asyncio.sleep(0)
        await store.close()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        again = await world.connect()
        for number, answer in enumerate(answers):
            if not isinstance(answer, BaseException):
                assert (await row_of(again, f"r{number}")).id == f"r{number}"

    world.run(check)


def _new_runs(count: int) -> list[NewRun]:
    return [new_run(f"r{number}") for number in range(count)]


def check_workers_are_listed_as_they_registered(world: World) -> None:
    """CONFORMANCE W1: every field comes back, the oldest first or not, each once."""

    async def check(store: Store) -> None:
        infos = [worker(f"w{number}", at=number + 1) for number in range(3)]
        for info in infos:
            await store.register_worker(info)
        assert sorted(await store.workers(), key=lambda info: info.id) == infos
        await store.unregister_worker("w1", 50)
        await store.unregister_worker("w1", 50)
        assert sorted(info.id for info in await store.workers()) == ["w0", "w2"]

    world.run(check)


def check_keys_are_never_used_again(world: World) -> None:
    """CONFORMANCE W1: a run created later never gets the key of another."""

    async def check(store: Store) -> None:
        other = await world.connect()
        keys = [await create((store, other)[number % 2], f"r{number}") for number in range(20)]
        assert len(set(keys)) == 20
        assert sorted(keys) == keys, "newer runs have higher keys: listing pages by them"

    world.run(check)


def old_data_is_understood(world: World) -> None:
    """CONFORMANCE V5: data of an earlier release is migrated once, and its runs go on."""

    async def check(store: Store) -> None:
        others = await asyncio.gather(*(world.connect() for _ in range(4)))
        row, journals, inbox = await everything(store, "old")
        assert not row.status.terminal
        assert [record.seq for record in journals[-1]] == list(range(1, row.next_seq))
        for one in others:
            assert await everything(one, "old") == (row, journals, inbox)
        await store.register_worker(worker("w-new"))
        await store.reap("w-new", 10**16)
        claimed = [one for one in await store.claim("w-new", 10**16, 100, 100) if one.id == "old"]
        assert [one.epoch for one in claimed] == [row.epoch + 1], "its worker is dead, so it can be claimed"
        step = step_row(row.next_seq)
        position = {"epoch": row.epoch + 1, "generation": row.generation, "worker": "w-new"}
        await accept(store, turn(row.key, row.next_seq, step, **position))
        assert list(await others[0].journal(row.key, row.generation))[-1] == step
        await create(store, "new")

    world.run(check)
