"""An event that arrives just after an engine was opened is not lost between its first look and its first sweep."""

from __future__ import annotations

import asyncio
from typing import Any

from events.kinds import Note
from perdure import Engine, receive, workflow
from perdure.store.base import News, Store
from support.lives import Lives, run_async


class SlowNews:
    """A store whose news, once the engine is open, come only when the test lets them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_open = False
        self.let_go = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def news(self, worker_id: str, cursor: int) -> News:
        if self.is_open:
            await self.let_go.wait()
        return await self._store.news(worker_id, cursor)


@workflow
async def hears_a_note() -> str:
    return (await receive(Note)).text


def test_event_from_elsewhere_before_the_first_sweep_is_received(lives: Lives) -> None:
    """CONFORMANCE E1, law 6: news begin with the opening of the engine, not with its first sweep."""

    async def main() -> None:
        store = SlowNews(lives.store())
        engine = await Engine(store, sweep_interval=0.02).open()  # type: ignore[arg-type]
        store.is_open = True
        async with lives.engine(worker=False) as client:
            run = await engine.start(hears_a_note(), id="run")
            await client.send("run", Note("early"))
            store.let_go.set()
            assert await run.result(timeout=5) == "early"
        await engine.close()

    run_async(main())
