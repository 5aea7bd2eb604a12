"""Processes that publish to many waiting runs, and die on the way."""

from __future__ import annotations

from events.published_kinds import Job, News
from perdure import Engine
from perdure.store.sqlite import SQLiteStore
from support.faulty_stores import DisturbedStore, die, holds


async def publish_and_die(database: str, kind: str, point: str, number: str, before: str) -> None:
    """Dies around the chosen call of `publish` or `spread`, or around the commit that receives so many events."""
    store, is_before = DisturbedStore(SQLiteStore(database)), before == "True"
    match point:
        case "receive":
            store.around("commit", die, holds("event_received"), before=is_before, at=int(number))
        case "spread" if not is_before:
            store.after("spread", die, lambda call: bool(call.result.deliveries), at=int(number))
        case _:
            store.around(point, die, before=is_before, at=int(number))
    async with Engine(store, sweep_interval=0.02) as engine:
        await engine.publish(News(1) if kind == "news" else Job(1), key="first")
        print("published", flush=True)
        await engine.result("never")
