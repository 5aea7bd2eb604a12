"""What a worker decides by itself: that its lease is over, that the database has another past, that a call hangs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from fleet.work import GoOn, fleet_engine, two_notes, until_told
from perdure import Engine, workflow
from perdure.engine.tenure import Tenure
from perdure.store.postgres import PostgresStore, connection, store
from perdure.store.postgres.server import History
from support.effects import Effects
from support.lives import run_async, until
from support.postgres import server


@workflow
async def one_after_the_other(path: str) -> list[str]:
    return [await until_told(path, "first"), await until_told(path, "second")]


@pytest.fixture
def schema() -> str:
    return server().fresh_schema()


def said(caplog: pytest.LogCaptureFixture, text: str) -> Callable[[], bool]:
    return lambda: any(text in record.getMessage() for record in caplog.records)


def id_of(engine: Engine) -> str:
    assert engine.worker is not None
    return engine.worker.id


@contextlib.contextmanager
def no_renewal(schema: str) -> Iterator[None]:
    """Somebody keeps the rows of all workers: renewing them waits, and is given up."""
    with psycopg.connect(server().admin_url) as outside:
        outside.execute(f'SELECT * FROM "{schema}".workers FOR UPDATE')
        yield


def test_a_worker_that_cannot_renew_begins_nothing_more_and_then_lets_go(
    schema: str, effects: Effects, caplog: pytest.LogCaptureFixture
) -> None:
    """FAULTS C6: work stops before the lease ends; what had ended counts; later it goes on under another id."""

    async def main() -> None:
        async with fleet_engine(server().url(schema), lease=3) as engine:
            lost = id_of(engine)
            run = await engine.start(one_after_the_other(str(effects.path)), id="run")
            await until(lambda: effects.lines() == ["first"])
            with no_renewal(schema):
                await until(said(caplog, "begins no new step"))
                Effects(Path(f"{effects.path}.go")).add("go")
                await until(said(caplog, "could not renew its lease, so others may have its runs"))
                history = [record.kind for record in await engine.admin.history("run")]
                assert history == ["started", "step_done"], "what ended was recorded: nobody else has the run yet"
                assert effects.lines() == ["first"], "the second step was not begun"
            assert await run.result() == ["first", "second"]
            assert id_of(engine) != lost
            assert effects.counts() == Counter({"first": 1, "second": 1})

    run_async(main(), patience=60)


def test_a_lease_that_is_renewed_after_all_changes_nothing(
    schema: str, effects: Effects, caplog: pytest.LogCaptureFixture
) -> None:
    """FAULTS C6: a short outage is waited out, under the same id."""
    caplog.set_level("INFO", "perdure.worker")

    async def main() -> None:
        async with fleet_engine(server().url(schema), lease=6) as engine:
            before = id_of(engine)
            run = await engine.start(one_after_the_other(str(effects.path)), id="run")
            await until(lambda: effects.lines() == ["first"])
            with no_renewal(schema):
                await until(said(caplog, "begins no new step"))
                Effects(Path(f"{effects.path}.go")).add("go")
            await until(said(caplog, "is renewed again"))
            assert await run.result() == ["first", "second"]
            assert id_of(engine) == before
            assert effects.counts() == Counter({"first": 1, "second": 1})

    run_async(main(), patience=60)


def test_a_worker_whose_lease_is_over_claims_nothing(
    schema: str, effects: Effects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULTS C3: a process that was stopped may sweep before it has judged itself; what it claimed then it would begin,
    and lose a moment later."""
    looks = Looks(over_for=1_000_000)
    url = server().url(schema)

    async def main() -> None:
        async with fleet_engine(url, lease=600) as engine, Engine(url, worker=False) as client:
            monkeypatch.setattr(Tenure, "look", lambda self: None)
            looks.instead_of(engine, monkeypatch)
            run = await client.start(two_notes(str(effects.path), "a"), id="run")
            await run.send(GoOn())
            await until(lambda: looks.count > 5)
            assert effects.lines() == []
            looks.over_for = 0
            assert await run.result() == ["a 1", "a 2"]

    run_async(main(), patience=60)


def test_a_lease_that_is_over_before_the_worker_begins_is_no_end(
    schema: str, effects: Effects, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """FAULTS C3: a process is stopped for longer than its lease just after it has registered; it registers again, as
    often as that happens."""
    looks = Looks(over_for=3)

    async def main() -> None:
        async with fleet_engine(server().url(schema), lease=600) as engine:
            first = id_of(engine)
            looks.instead_of(engine, monkeypatch)
            engine.store._leases[first].lose()  # type: ignore[attr-defined]
            await until(lambda: looks.count > 4)
            run = await engine.start(two_notes(str(effects.path), "a"), id="run")
            await run.send(GoOn())
            assert await run.result() == ["a 1", "a 2"]
            assert id_of(engine) != first

    run_async(main(), patience=60)
    assert not said(caplog, "the sweep of this worker ended")()


class Looks:
    """For `trusted_until`: the first answers say that the lease is over."""

    def __init__(self, over_for: int) -> None:
        self.count = 0
        self.over_for = over_for

    def instead_of(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        real = engine.store.trusted_until

        def trusted_until(worker_id: str) -> float | None:
            self.count += 1
            return time.monotonic() - 1.0 if self.count <= self.over_for else real(worker_id)

        monkeypatch.setattr(engine.store, "trusted_until", trusted_until)


def test_a_server_with_another_past_makes_a_worker_drop_its_memory(
    schema: str, effects: Effects, caplog: pytest.LogCaptureFixture
) -> None:
    """FAULTS B15: memory may be ahead of the store, so everything is read again, under another id; what was asked for
    before is refused."""

    async def main() -> None:
        async with fleet_engine(server().url(schema), lease=60) as engine:
            own = engine.store
            assert isinstance(own, PostgresStore)
            run = await engine.start(two_notes(str(effects.path), "a"), id="run")
            await until(lambda: waits(engine))
            before, residents = id_of(engine), engine.worker.residents  # type: ignore[union-attr]
            assert residents.holds("run")
            own.server.look_at(History(system=1, timeline=99))
            await until(said(caplog, "went back in time"))
            await until(lambda: engine.worker is not None and engine.worker.id != before)
            assert not residents.holds("run")
            await run.send(GoOn())
            assert await run.result() == ["a 1", "a 2"]
            assert effects.counts() == Counter({"a 1": 1, "a 2": 1})

    run_async(main(), patience=60)


async def waits(engine: Engine) -> bool:
    return (await engine.status("run")).status == "waiting"


def backends(schema: str) -> dict[str, int]:
    """The processes of the server for the sessions of a schema, by what each is for."""
    names = "SELECT application_name, pid FROM pg_stat_activity WHERE application_name LIKE %s"
    return {name.split()[-1]: pid for name, pid in server().execute(names, (f"{schema} %",))}


def patient_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (connection, store):  # connections, and that of the lane
        monkeypatch.setattr(module, "POSTGRES_CALL_SECONDS", 1)


@pytest.mark.parametrize("name", ["lane", "writer", "reader"])
def test_a_call_that_is_never_answered_is_given_up_and_repeated(
    name: str, schema: str, effects: Effects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULTS B3, B24: a process of the server stands still, and TCP does not notice; another connection takes over."""
    if server().pid is None:
        pytest.fail("the processes of a server that the tests did not start are not stopped")
    patient_for_a_second(monkeypatch)

    async def main() -> None:
        async with fleet_engine(server().url(schema), lease=60) as engine:
            run = await engine.start(two_notes(str(effects.path), "a"), id="run")
            await until(lambda: waits(engine))
            stopped = backends(schema)[name]
            os.kill(stopped, signal.SIGSTOP)
            try:
                await run.send(GoOn())
                assert await run.result() == ["a 1", "a 2"]
                others = [await engine.start(two_notes(str(effects.path), f"b{n}"), id=f"b{n}") for n in range(3)]
                for other in others:
                    await other.send(GoOn())
                assert [await other.result() for other in others] == [[f"b{n} 1", f"b{n} 2"] for n in range(3)]
            finally:
                os.kill(stopped, signal.SIGCONT)
            names = ["a", "b0", "b1", "b2"]
            assert effects.counts() == Counter({f"{each} {part}": 1 for each in names for part in (1, 2)})

    run_async(main(), patience=90)


def test_idle_connections_are_not_given_up(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS B3: only calls have a limit; a listener waits for days."""
    patient_for_a_second(monkeypatch)

    async def main() -> None:
        async with fleet_engine(server().url(schema), lease=60):
            # Each is opened by a thread of its own, the last one at the first renewal: within 0.3 heartbeats of 18 s.
            await until(lambda: {"lane", "writer", "reader", "listener", "lease"} <= set(backends(schema)))
            before = backends(schema)
            await asyncio.sleep(2.5)  # longer than two calls may take: the point is that time passes
            assert before.items() <= backends(schema).items()  # the one of the lease may have come meanwhile

    run_async(main(), patience=60)


def test_a_worker_that_hears_of_its_death_first_by_its_lease_says_so(
    schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    """FAULTS C3: the thread that renews is told before the sweep asks; the line is the same."""

    async def main() -> None:
        async with Engine(PostgresStore(server().url(schema)), sweep_interval=3_600, lease=2) as engine:
            before = id_of(engine)
            server().declare_dead(schema, before)
            await until(said(caplog, "goes on under the new id"))
            (line,) = [record.getMessage() for record in caplog.records if before in record.getMessage()]
            assert "was taken for dead, and its runs were given to others" in line

    run_async(main(), patience=60)
