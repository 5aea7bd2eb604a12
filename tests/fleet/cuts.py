"""Clients behind connections that are cut around their commits: what was acknowledged is there once."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field

from fleet.work import Told, told_so_often
from perdure import Engine
from perdure.errors import StoreUnavailable
from perdure.store.model import RunFilter
from perdure.store.postgres import PostgresStore
from support.cutting import CuttingProxy

SENDS = 5
_PAUSE_SECONDS = 0.001


@dataclass
class Cut:
    """What clients did while their connections were cut, and how often they had to say it again."""

    sent: dict[str, list[int]] = field(default_factory=dict)
    starts_repeated: int = 0
    sends_repeated: int = 0


async def start_and_send(url: str, proxy: CuttingProxy, name: str, cut: Cut) -> None:
    """A client with connections of its own, until there were enough cuts. Half of its events have a key, and are
    repeated here; the others have none, and perdure repeats them."""
    async with contextlib.AsyncExitStack() as stack:
        engine = await _opened(url, stack)
        number = 0
        while not proxy.is_done:
            run = f"{name}-{number}"
            number += 1
            while True:
                try:
                    await engine.start(told_so_often(SENDS), id=run)
                    break
                except StoreUnavailable:
                    cut.starts_repeated += 1
                    await asyncio.sleep(_PAUSE_SECONDS)
            for event in range(SENDS):
                key = f"k{event}" if event % 2 else None
                while True:
                    try:
                        await engine.send(run, Told(event), key=key)
                        break
                    except StoreUnavailable:
                        assert key is not None, "without a key perdure repeats by itself, six times"
                        cut.sends_repeated += 1
                        await asyncio.sleep(_PAUSE_SECONDS)
            cut.sent[run] = list(range(SENDS))


async def _opened(url: str, stack: contextlib.AsyncExitStack) -> Engine:
    """Opening makes the schema and prepares statements: these are cut, too, and the call is repeated."""
    while True:
        with contextlib.suppress(StoreUnavailable):
            return await stack.enter_async_context(Engine(PostgresStore(url), worker=False))


async def check_neither_lost_nor_doubled(url: str, cut: Cut) -> None:
    """A worker with good connections brings all runs to their end: each event was received once, in its order."""
    async with Engine(PostgresStore(url)) as engine:
        for run, sent in cut.sent.items():
            assert await engine.get(run).result() == sent, run
        found = await engine.store.list_runs(RunFilter(), 10 * len(cut.sent))
        assert Counter(row.id for row in found) == Counter(list(cut.sent)), "a run that is lost, or there twice"


async def cut_around_commits(plain: str, proxied: str, proxy: CuttingProxy, clients: int) -> Cut:
    cut = Cut()
    await asyncio.gather(*[start_and_send(proxied, proxy, f"c{number}", cut) for number in range(clients)])
    await check_neither_lost_nor_doubled(plain, cut)
    return cut
