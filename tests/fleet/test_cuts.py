"""Connections that are cut exactly at a commit: just before it reaches the server, or just after it was carried out."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from urllib.parse import urlsplit

import pytest

from fleet.work import GoOn, fleet_engine, many_notes, two_notes
from perdure import Engine
from perdure.errors import StoreUnavailable
from support.effects import Effects
from support.lives import run_async, until
from support.postgres import server
from support.proxy import Proxy

#: How many commits are cut in a row: each call is made again on a new connection, which is cut again.
CUTS = 3


@contextlib.contextmanager
def through_a_proxy(schema: str) -> Iterator[tuple[Proxy, str]]:
    """A proxy, and the URL of the schema through it."""
    url = server().url(schema)
    parts = urlsplit(url)
    with Proxy((parts.hostname or "", parts.port or 5432)) as proxy:
        yield proxy, url.replace(f":{parts.port}/", f":{proxy.port}/")


@pytest.fixture
def place() -> Iterator[tuple[Proxy, str]]:
    with through_a_proxy(server().fresh_schema()) as found:
        yield found


def cut(proxy: Proxy, when: str, count: int = CUTS) -> None:
    (proxy.cut_before_commits if when == "before" else proxy.cut_after_commits)(count)


async def repeated(call: Callable[[], Awaitable[object]]) -> int:
    """As users do; how often it was refused."""
    for refused in range(50):
        with contextlib.suppress(StoreUnavailable):
            await call()
            return refused
    raise AssertionError("refused fifty times")


def was_cut(proxy: Proxy, when: str, count: int = CUTS) -> bool:
    return proxy.done[f"cut {when} a commit"] >= count


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_turn_whose_commit_is_cut_is_committed_once(when: str, place: tuple[Proxy, str], effects: Effects) -> None:
    """FAULTS B12, B13: in the fast way and the general one, while steps follow each other; a cut after the commit is
    recognised, one before it repeated, and no step is done twice."""
    proxy, url = place

    async def main() -> None:
        async with fleet_engine(url, 60) as engine:
            runs = [await engine.start(many_notes(str(effects.path), f"r{n}", 40), id=f"r{n}") for n in range(5)]
            cut(proxy, when)
            assert [await run.result() for run in runs] == [40] * 5
            assert was_cut(proxy, when)
            for run in runs:
                kinds = Counter([record.kind for record in await engine.admin.history(run.id)])
                assert kinds == Counter({"started": 1, "step_done": 40, "completed": 1})

    run_async(main(), patience=60)
    assert effects.counts() == Counter({f"r{n} {step}": 1 for n in range(5) for step in range(40)})


@pytest.mark.parametrize("when", ["before", "after"])
def test_calls_of_clients_whose_commit_is_cut_may_be_repeated(
    when: str, place: tuple[Proxy, str], effects: Effects
) -> None:
    """FAULTS B12, B13: starts by their id, events by their key, and events without one, which are repeated inside."""
    proxy, url = place

    async def main() -> None:
        async with fleet_engine(server_url(url, proxy), 60) as engine, Engine(url, worker=False) as client:
            for number in range(4):
                cut(proxy, when, 1)
                run = f"r{number}"
                await repeated(lambda: client.start(two_notes(str(effects.path), run), id=run))  # noqa: B023
                await until(lambda: f"{run} 1" in effects.lines())  # noqa: B023
                cut(proxy, when, 1)
                if number % 2:
                    await repeated(lambda: client.send(run, GoOn(), key="go"))  # noqa: B023
                else:
                    await client.send(run, GoOn())
                assert await engine.result(run) == [f"{run} 1", f"{run} 2"]
                assert not await engine.store.inbox((await engine.store.get(run)).key, 10)  # type: ignore[union-attr]
            assert was_cut(proxy, when, 8)
            assert await client.admin.dead_letters() == []

    run_async(main(), patience=60)
    assert effects.counts() == Counter({f"r{n} {part}": 1 for n in range(4) for part in (1, 2)})


def server_url(url: str, proxy: Proxy) -> str:
    """The same schema, past the proxy."""
    return url.replace(f":{proxy.port}/", f":{proxy.target[1]}/")


def test_a_connection_that_is_half_open_is_given_up(
    place: tuple[Proxy, str], effects: Effects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULTS B3, C8: nothing passes any more, and nobody is told; calls are given up and repeated on other connections,
    which work."""
    from perdure.store.postgres import connection

    monkeypatch.setattr(connection, "POSTGRES_CALL_SECONDS", 1)
    proxy, url = place

    async def main() -> None:
        async with fleet_engine(url, 60) as engine:
            run = await engine.start(many_notes(str(effects.path), "a", 5), id="a")
            assert await run.result() == 5
            assert proxy.mute_all() >= 4
            await repeated(lambda: engine.start(many_notes(str(effects.path), "b", 5), id="b"))
            assert await engine.result("b") == 5

    run_async(main(), patience=60)
    assert effects.counts() == Counter({f"{name} {step}": 1 for name in "ab" for step in range(5)})


def test_answers_that_come_late_and_in_pieces_are_waited_for(place: tuple[Proxy, str], effects: Effects) -> None:
    """FAULTS B24: each answer takes 0.1 s longer, and comes seven bytes at a time; slow, and right."""
    proxy, url = place

    async def main() -> None:
        async with fleet_engine(url, 10) as engine:
            proxy.be_slow(0.1, 7)
            runs = [await engine.start(many_notes(str(effects.path), f"r{n}", 4), id=f"r{n}") for n in range(3)]
            assert [await run.result() for run in runs] == [4] * 3
            proxy.heal()

    run_async(main(), patience=60)
    assert effects.counts() == Counter({f"r{n} {step}": 1 for n in range(3) for step in range(4)})


async def waits(client: Engine, run_id: str) -> bool:
    return (await client.status(run_id)).status == "waiting"


def test_a_network_that_splits_leaves_each_side_right(effects: Effects) -> None:
    """FAULTS C8: the worker reaches the server and the client does not, then the other way round; what the client
    repeats has happened once, and what the worker could not store is done by another one."""
    schema, path = server().fresh_schema(), str(effects.path)

    async def main() -> None:
        with through_a_proxy(schema) as (of_worker, worker_url), through_a_proxy(schema) as (of_client, client_url):
            url = f"{client_url}&connect_timeout=2"
            async with Engine(url, worker=False) as client, fleet_engine(f"{worker_url}&connect_timeout=2", 3) as one:
                await client.start(two_notes(path, "a"), id="a")
                await until(lambda: effects.lines() == ["a 1"])
                of_client.cut_all()
                of_client.refuse()
                refused = 0
                for _ in range(3):
                    try:
                        await client.send("a", GoOn(), key="go")
                    except StoreUnavailable:
                        refused += 1
                assert refused == 3
                of_client.heal()
                await repeated(lambda: client.send("a", GoOn(), key="go"))
                assert await client.result("a") == ["a 1", "a 2"]
                # The other side: the worker hears nothing for longer than its lease, and says nothing.
                await client.start(two_notes(path, "b"), id="b")
                await until(lambda: waits(client, "b"))
                before = one.worker.id  # type: ignore[union-attr]
                of_worker.silence()
                async with fleet_engine(server_url(client_url, of_client), 3) as other:
                    await repeated(lambda: client.send("b", GoOn(), key="go"))
                    assert await client.result("b") == ["b 1", "b 2"]
                    row = await client.store.get("b")
                    assert row is not None
                    assert row.epoch == 2, "another worker has claimed it"
                    of_worker.heal()
                    await until(lambda: one.worker is not None and one.worker.id != before)
                    assert other.worker is not None
                await client.start(two_notes(path, "c"), id="c")  # of the worker that is back
                await client.send("c", GoOn())
                assert await client.result("c") == ["c 1", "c 2"]

    run_async(main(), patience=90)
    assert effects.counts() == Counter({f"{name} {part}": 1 for name in "abc" for part in (1, 2)})
