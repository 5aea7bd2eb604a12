"""An event that arrives just after an engine was opened is not lost between its first look and its first sweep."""

from __future__ import annotations

from events.kinds import Note
from perdure import Engine, receive, workflow
from support.faulty_stores import DisturbedStore, Hold
from support.lives import Lives, run_async


@workflow
async def hears_a_note() -> str:
    return (await receive(Note)).text


def test_event_from_elsewhere_before_the_first_sweep_is_received(lives: Lives) -> None:
    """CONFORMANCE E1, law 6: news begin with the opening of the engine, not with its first sweep."""

    async def main() -> None:
        store = DisturbedStore(lives.store())
        engine = await Engine(store, sweep_interval=0.02).open()
        store.before("news", news := Hold())
        async with lives.engine(worker=False) as client:
            run = await engine.start(hears_a_note(), id="run")
            await client.send("run", Note("early"))
            news.release.set()
            assert await run.result(timeout=5) == "early"
        await engine.close()

    run_async(main())
