"""Movers that are killed: processes of their own, that kill themselves around a chosen call of a store."""

from __future__ import annotations

import asyncio

from perdure.admin.looking import wall_clock
from perdure.admin.move import Mover
from perdure.cli.migrate import url_of
from perdure.store import open_store
from support.faulty_stores import DisturbedStore, die


def move(old: str, new: str, name: str, moment: str, at: str) -> None:
    """Move, and die around the `at`-th call of this name."""

    async def main() -> None:
        stores = open_store(old), open_store(new)
        for store in stores:
            await store.open()
        first, second = (DisturbedStore(store) for store in stores)
        for one in (first, second):
            one.around(name, die, before=moment == "before", at=int(at))
        await Mover(first, second, url_of(stores[1]), now=wall_clock).move()
        print("moved", flush=True)

    asyncio.run(main())
