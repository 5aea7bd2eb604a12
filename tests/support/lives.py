"""Several lives of one store: open an engine, crash it, open the next one.

`Lives` is what most tests of behaviour use. It runs on every store (the `lives` fixture), and crashes in process: the
engine is abandoned at a chosen record, exactly as if the process had died there, with nothing given back and the
worker's lock free. Tests that promise something about real crashes use `support.processes` instead.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar, cast

from perdure import Engine, RunHandle
from perdure.store import open_store
from perdure.store.memory import MemoryStore
from perdure.store.protocol import Store
from perdure.store.sqlite import SQLiteStore
from perdure.testing.wrappers import CrashingStore
from perdure.types import Invocation
from support import postgres

T = TypeVar("T")

_KINDS = ("memory", "sqlite", "postgres")
#: The kinds of stores that tests run on. `PERDURE_TEST_STORES=memory,sqlite` leaves PostgreSQL out.
STORES: tuple[str, ...] = tuple(
    kind.strip() for kind in os.environ.get("PERDURE_TEST_STORES", ",".join(_KINDS)).split(",")
)
if unknown := set(STORES) - set(_KINDS):
    raise ValueError(f"PERDURE_TEST_STORES names {', '.join(sorted(unknown))}; there are {', '.join(_KINDS)}")

#: Long enough for a loaded machine; tests never wait this long unless something hangs.
PATIENCE_SECONDS = 30.0


def run_async(main: Coroutine[Any, Any, T], patience: float = PATIENCE_SECONDS) -> T:
    """Run an async test; one that hangs fails with a timeout instead of blocking the suite."""

    async def limited() -> T:
        async with asyncio.timeout(patience):
            return await main

    return asyncio.run(limited())


async def until(condition: Callable[[], Awaitable[bool] | bool], patience: float = PATIENCE_SECONDS) -> None:
    """Wait for a condition that no signal announces (the state of another process, of a store)."""
    async with asyncio.timeout(patience):
        while True:
            met = condition()
            if met if isinstance(met, bool) else await met:
                return
            await asyncio.sleep(0.005)


class Crashed(Exception):
    """The engine was abandoned at the record a test chose."""


class Lives:
    """One store's data, and engines on it one after another."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self._directory = directory
        self._memory = MemoryStore()
        self._number = 0

    def fresh(self) -> Lives:
        """Another, empty store of the same kind."""
        self._number += 1
        return Lives(self.kind, self._directory / f"fresh-{self._number}")

    @property
    def path(self) -> Path:
        self._directory.mkdir(parents=True, exist_ok=True)  # the other kinds need none, and thousands take their time
        return self._directory / "test.db"

    @functools.cached_property
    def schema(self) -> str:
        """Where the data is in PostgreSQL. The first look starts the server; the schema is emptied after the test."""
        return postgres.server().fresh_schema(keep_sessions=True)

    @property
    def url(self) -> str:
        return postgres.server().url(self.schema)

    def give_back(self) -> None:
        """This store's data is not needed any more: a test of many lives can use its place again."""
        if self.kind == "postgres" and "schema" in self.__dict__:
            postgres.server().give_back(self.__dict__.pop("schema"))

    def store(self) -> Store:
        """A store object on the data (SQLite, PostgreSQL: new connections; memory: the same object)."""
        match self.kind:
            case "memory":
                return self._memory
            case "sqlite":
                return SQLiteStore(self.path)
            case "postgres":
                return open_store(self.url)
            case other:
                raise ValueError(f"there is no kind of store called {other!r}")

    def engine(self, **settings: Any) -> Engine:
        """An engine for `async with`; sweeps often, so that tests do not wait for intervals."""
        return Engine(self.store(), **{"sweep_interval": 0.02, **settings})

    async def crash(self, engine: Engine) -> None:
        """Abandon an engine as a kill would: nothing is released, and its lock is free."""
        worker = engine.worker
        assert worker is not None
        await engine.abandon()
        if self.kind == "memory":
            self._memory.kill_worker(worker.id)
        elif self.kind == "postgres":
            await cast("Any", engine.store).crash()  # no other store has it, and wrappers pass it on
        else:
            await engine.store.close()

    async def live_until(
        self,
        limit: int,
        act: Callable[[Engine], Awaitable[object]],
        *,
        before: bool = False,
        **settings: Any,
    ) -> bool:
        """One life: run `act` until it ends, or until `limit` records are durable and the engine dies.

        True if it died.
        """
        store = CrashingStore(self.store(), limit, before=before)
        engine = Engine(store, **{"sweep_interval": 0.02, **settings})  # type: ignore[arg-type]
        await engine.open()
        acting = asyncio.ensure_future(act(engine))
        dying = asyncio.ensure_future(store.dead.wait())
        await asyncio.wait({acting, dying}, return_when=asyncio.FIRST_COMPLETED)
        if store.dead.is_set():
            acting.cancel()
            await asyncio.gather(acting, return_exceptions=True)
            await self.crash(engine)
            return True
        dying.cancel()
        try:
            await acting
        finally:
            await engine.close()
        return False

    async def crash_at_every_record(
        self,
        invocation: Callable[[], Invocation[T]],
        *,
        drive: Callable[[Engine, RunHandle[T]], Awaitable[object]] | None = None,
        check: Callable[[T, Lives], object] | None = None,
        before: bool = False,
        run_id: str = "run",
        **settings: Any,
    ) -> T:
        """Run a workflow once undisturbed, then again and again with a crash after each record in turn.

        Each time a second life finishes it; its result must be the same. `drive` does what clients do (sends
        events); it is called in each life and must be safe to repeat. Returns the result.
        """

        async def act(engine: Engine) -> T:
            handle = await engine.start(invocation(), id=run_id)
            if drive is not None:
                await drive(engine, handle)
            return await handle.result()

        calm = self.fresh()
        async with calm.engine(**settings) as engine:
            expected = await act(engine)
            view = await engine.status(run_id)
            records = view.records + view.pruned
        calm.give_back()
        for limit in range(1, records + 1):
            lives = self.fresh()
            await lives.live_until(limit, act, before=before, **settings)
            async with lives.engine(**settings) as engine:
                result = await act(engine)
                assert result == expected, f"after a crash at record {limit}"
                if check is not None:
                    check(result, lives)
            lives.give_back()
        return expected
