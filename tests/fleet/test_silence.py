"""A server that accepts connections and then says nothing: the process goes on all the same."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from fleet.test_cuts import repeated
from fleet.work import fleet_engine, many_notes, until_told
from perdure import workflow
from perdure.errors import StoreUnavailable
from perdure.store.postgres import connection
from perdure.store.postgres.connection import Connection
from perdure.store.postgres.server import Server
from perdure.store.postgres.url import parse
from support.effects import Effects
from support.lives import run_async, until
from support.postgres import server
from support.proxy import Messages, Proxy


@workflow
async def told_once(path: str) -> str:
    return await until_told(path, "begun")


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port that takes connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_other_threads_run_while_a_connection_is_made(nobody: int) -> None:
    """FAULTS B3: psycopg's blocking `connect` keeps the GIL: the whole process would stand still, its event loop and
    the renewal of its lease, for as long as the server does not answer."""
    gaps, stop = [0.0], threading.Event()

    def tick() -> None:
        last = time.monotonic()
        while not stop.wait(0.01):
            now = time.monotonic()
            gaps.append(now - last)
            last = now

    ticking = threading.Thread(target=tick)
    ticking.start()
    try:
        with pytest.raises(StoreUnavailable, match="timeout expired"):
            Connection(parse(f"postgresql://nobody@127.0.0.1:{nobody}/none?connect_timeout=2&sslmode=disable"))
    finally:
        stop.set()
        ticking.join()
    assert len(gaps) > 20, "it ticked while the other thread waited for two seconds"
    assert max(gaps) < 1.0


def test_a_server_that_falls_silent_after_the_greeting_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS B3: the first statements of a connection have a limit like all others."""
    monkeypatch.setattr(connection, "POSTGRES_CALL_SECONDS", 1)
    location = parse(server().url(server().fresh_schema()))
    parts = urlsplit(server().base_url)

    class AfterGreeting(Proxy):
        """Falls silent once a client is let in."""

        def _look(self, data: bytes) -> None:
            if any(letter == b"Z" for letter, _ in Messages(has_startup=False).feed(data)):
                self._loop.call_soon(self._audible.clear)

    with AfterGreeting((parts.hostname or "", parts.port or 0)) as proxy:
        changed = parse(server().url(location.schema).replace(f":{parts.port}/", f":{proxy.port}/"))
        shared = Server(changed)
        try:
            with pytest.raises(Exception, match=r"closed the connection|did not answer|broke"):
                Connection(changed, server=shared)
        finally:
            shared.patience.close()


def test_a_worker_without_a_server_judges_itself_in_time(effects: Effects, caplog: pytest.LogCaptureFixture) -> None:
    """FAULTS C6: every packet is dropped; the worker lets go of its runs when its lease is over, and not seconds later,
    because it waits for an answer; its event loop goes on meanwhile. When packets pass again it takes them up."""
    schema = server().fresh_schema()
    parts = urlsplit(server().url(schema))

    async def main() -> None:
        with Proxy((parts.hostname or "", parts.port or 0)) as proxy:
            url = server().url(schema).replace(f":{parts.port}/", f":{proxy.port}/")
            async with fleet_engine(f"{url}&connect_timeout=2", lease=3) as engine:
                run = await engine.start(told_once(str(effects.path)), id="run")
                await until(lambda: effects.lines() == ["begun"])
                loop, longest, last = asyncio.get_running_loop(), 0.0, time.monotonic()
                proxy.silence()
                began = loop.time()
                assert engine.parts is not None
                while engine.parts.worker is not None:
                    await asyncio.sleep(0.01)
                    longest, last = max(longest, time.monotonic() - last), time.monotonic()
                assert 1.0 < loop.time() - began < 4.0, "a lease of 3 s is over"
                assert longest < 1.0, "the event loop went on"
                Effects(effects.path.with_name(f"{effects.path.name}.go")).add("go")
                proxy.heal()
                await repeated(run.result)
                assert await run.result() == "begun"
                await (await engine.start(many_notes(str(effects.path), "b", 2), id="b")).result()

    run_async(main(), patience=60)
    assert effects.counts() == {"begun": 2, "b 0": 1, "b 1": 1}
