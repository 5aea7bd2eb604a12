"""`start` of a run that exists returns it, whatever today's code would do in the first turn of a new one."""

from __future__ import annotations

import asyncio

import pytest

from perdure import Engine, limits, step, workflow
from perdure.errors import NotDecodable, Spinning
from support.lives import Lives, run_async


@step
async def same(number: int) -> int:
    return number


class _Today:
    """What the code does today."""

    spins = False


@workflow(name="typed", version="1")
async def typed_before(value: str) -> str:
    return value


@workflow(name="typed", version="2")
async def typed_today(value: int) -> int:
    return value


def test_code_that_leaves_its_turn_with_an_error(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first turn that cannot be taken today (here: it never waits and is given up) is not the caller's business if
    the run is there; a new one is refused with the error."""

    monkeypatch.setattr(limits, "TURN_CALLBACKS_MAX", 1_000)

    @workflow(name="spins")
    async def spins(number: int) -> int:
        if _Today.spins:
            while True:
                await asyncio.sleep(0)
        return await same(number)

    async def main() -> None:
        async with lives.engine() as engine:
            assert await (await engine.start(spins(3), id="a")).result() == 3
            _Today.spins = True
            try:
                assert await (await engine.start(spins(3), id="a")).result() == 3
                with pytest.raises(Spinning):
                    await engine.start(spins(3), id="b")
            finally:
                _Today.spins = False

    run_async(main())


def test_input_that_todays_types_refuse(lives: Lives) -> None:
    """The run was started with what is a wrong type today; starting it again finds it, with and without a worker."""

    async def main(engine: Engine) -> None:
        today = typed_today(7)
        today.data = typed_before("seven").data  # what a caller with other types sends
        handle = await engine.start(today, id="a")
        assert handle.id == "a"
        assert (await handle.status()).version == "1"
        with pytest.raises(NotDecodable):
            await engine.start(today, id="b")

    async def both() -> None:
        async with lives.engine() as engine:
            assert await (await engine.start(typed_before("seven"), id="a")).result() == "seven"
            await main(engine)
            async with lives.engine(worker=False) as client:
                await main(client)

    run_async(both())
