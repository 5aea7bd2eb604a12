"""A synchronous standby that is gone: commits wait, the log says for what, nothing counts before it is confirmed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from chaos.failover.machines import Machines
from chaos.failover.nodes import Node, url
from chaos.failover.work import engine_on, journey
from perdure import Engine
from perdure.errors import StoreUnavailable
from perdure.store.postgres import connection
from support.effects import Effects
from support.lives import run_async, until

pytestmark = pytest.mark.long

WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


class Pair:
    """A primary, and the one standby that must have each commit."""

    def __init__(self, machines: Machines) -> None:
        self.primary = Node(machines, "first").initialise()
        self.standby = Node(machines, "second").follow(self.primary.port, "second")
        self.primary.set("synchronous_standby_names", "'second'")
        self.url = url(self.primary.port, self.standby.port)

    def waiting(self) -> list[int]:
        return [pid for (pid,) in self.primary.execute(WAITING)]

    def cancel(self) -> None:
        """What an administrator does who is tired of waiting."""
        self.primary.execute(f"SELECT pg_cancel_backend(pid) FROM ({WAITING}) AS waiting")

    async def fail_over(self, *engines: Engine) -> None:
        await asyncio.to_thread(self.primary.lose)
        self.standby.start()
        await asyncio.to_thread(self.standby.promote)


@pytest.fixture
def pair(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> Pair:
    monkeypatch.setattr(connection, "POSTGRES_CALL_SECONDS", 2)
    return Pair(machines)


def said(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


@contextlib.asynccontextmanager
async def abandoned_at_the_end(engine: Engine) -> AsyncIterator[Engine]:
    """Closing in order would wait for a commit."""
    await engine.open()
    try:
        yield engine
    finally:
        with contextlib.suppress(StoreUnavailable):
            await engine.close()


def test_commits_wait_for_the_standby_and_the_log_says_so(
    pair: Pair, effects: Effects, caplog: pytest.LogCaptureFixture
) -> None:
    """FAULTS B24: longer than a call may take, on the same connection: cutting it would leave a session on the server
    that waits on. When the standby is back all goes on, and the log says that, too."""
    caplog.set_level("INFO", "perdure.store.postgres")

    async def main() -> None:
        async with engine_on(pair.url, 60) as engine:
            await (await engine.start(journey(str(effects.path), "a", 1, 0), id="a")).result()
            pair.standby.lose()
            start = asyncio.create_task(engine.start(journey(str(effects.path), "b", 1, 0), id="b"))
            await until(lambda: bool(said(caplog, "for a synchronous standby to confirm it")))
            (waiting,) = pair.waiting()
            assert "'second'" in said(caplog, "for a synchronous standby")[0]
            await asyncio.sleep(5)  # two and a half times what a call may take: the point is that time passes
            assert pair.waiting() == [waiting], "the same session waits, and no other one"
            assert not start.done()
            assert effects.lines() == ["a 0"], "nothing was released that is not confirmed"
            pair.standby.start()
            assert await (await start).result() == []
            await until(lambda: bool(said(caplog, "are confirmed by a standby again")))
            assert not said(caplog, "did not answer")
        assert effects.lines() == ["a 0", "b 0"]

    run_async(main(), patience=60)


def test_a_wait_that_is_cancelled_acknowledges_nothing(pair: Pair, effects: Effects) -> None:
    """FAULTS B2: the server commits, with a warning, when a wait for the standby is cancelled. That is no answer, and
    the repeated call waits again, although it finds the run that it wants to make: what was acknowledged survives the
    loss of the primary, and what was not is not there."""

    async def main() -> None:
        async with abandoned_at_the_end(engine_on(pair.url, 60, worker=False)) as engine:
            await engine.start(journey(str(effects.path), "a", 1, 0), id="a")
            pair.standby.lose()
            start = asyncio.create_task(engine.start(journey(str(effects.path), "b", 1, 0), id="b"))
            await until(lambda: len(pair.waiting()) == 1)
            pair.cancel()
            with pytest.raises(StoreUnavailable, match="did not confirm"):
                await start
            assert (await engine.status("b")).status == "pending", "the primary has it"
            again = asyncio.create_task(engine.start(journey(str(effects.path), "b", 1, 0), id="b"))
            await until(lambda: len(pair.waiting()) == 1 or again.done())
            assert not again.done(), "acknowledged, and the standby does not have it"
            await pair.fail_over()
            # The same call goes on until somebody has it for good: here the standby, which never had it.
            with contextlib.suppress(StoreUnavailable):
                await again
            await engine.start(journey(str(effects.path), "b", 1, 0), id="b")
            async with engine_on(pair.url, 60) as worker:
                assert await worker.get("a").result() == []
                assert await worker.get("b").result() == []
        assert sorted(effects.lines()) == ["a 0", "b 0"]

    run_async(main(), patience=60)


def test_a_lease_does_not_wait_for_the_standby(pair: Pair, effects: Effects, caplog: pytest.LogCaptureFixture) -> None:
    """FAULTS C6: a worker keeps its runs while its commits wait: its heartbeats need no standby."""

    async def main() -> None:
        async with engine_on(pair.url, 2) as engine:
            assert engine.worker is not None
            before = engine.worker.id
            pair.standby.lose()
            start = asyncio.create_task(engine.start(journey(str(effects.path), "a", 1, 0), id="a"))
            await until(lambda: len(pair.waiting()) == 1)
            await asyncio.sleep(5)  # longer than two leases: the point is that time passes
            assert engine.worker is not None
            assert engine.worker.id == before
            pair.standby.start()
            assert await (await start).result() == []
            assert engine.worker.id == before

    run_async(main(), patience=60)
