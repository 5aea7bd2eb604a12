"""Steps replaced by a test keep everything of a step but its code."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure import RunFailed, StepTimeout, current_step, step, workflow
from perdure.errors import BadArgument
from perdure.testing import TIMEOUT, VirtualEngine


@step(max_attempts=4, timeout="30 s")
async def charge(cents: int, *, currency: str = "EUR") -> str:
    raise AssertionError("the real one")


@step
def ship(order: str) -> str:
    return f"really shipped {order}"


@workflow
async def order(cents: int) -> list[str]:
    return [await charge(cents), await charge(cents + 1, currency="USD"), await ship("o")]


async def test_result_by_step_and_by_name(engine: VirtualEngine) -> None:
    by_step = engine.mock(charge, "paid")
    by_name = engine.mock("ship", "shipped")
    assert await (await engine.start(order(5), id="o")).result() == ["paid", "paid", "shipped"]
    assert [(call.args, call.kwargs, call.location) for call in by_step.calls] == [
        ((5,), {}, "charge"),
        ((6,), {"currency": "USD"}, "charge#2"),
    ]
    assert by_name.calls == [(("o",), {}, "o", "ship", 1)]
    assert repr(by_name) == "<mock of 'ship', called 1 times>"


async def test_unmocked_steps_are_real(engine: VirtualEngine) -> None:
    engine.mock(charge, "paid")
    assert (await (await engine.start(order(5))).result())[2] == "really shipped o"


async def test_a_location_comes_before_a_step(engine: VirtualEngine) -> None:
    engine.mock(charge, "paid")
    engine.mock("charge#2", "paid in dollars")
    assert (await (await engine.start(order(5))).result())[:2] == ["paid", "paid in dollars"]


async def test_a_sequence_goes_through_the_retries(engine: VirtualEngine) -> None:
    """Errors and timeouts count as attempts, wait for their backoff, and are recorded as such."""
    mock = engine.mock(charge, sequence=[ConnectionError("down"), TIMEOUT, "first", "second"])
    run = await engine.start(order(5))
    assert (await run.result())[:2] == ["first", "second"]
    assert [call.attempt for call in mock.calls] == [1, 2, 3, 1]
    entries = await engine.admin.history(run.id)
    assert [entry.kind for entry in entries][1:5] == ["step_retry", "step_retry", "step_done", "step_done"]
    assert entries[1].data["error"]["type"] == "builtins:ConnectionError"
    assert entries[2].data["error"]["type"].endswith(":StepTimeout")


async def test_a_used_up_sequence_says_so(engine: VirtualEngine) -> None:
    engine.mock(charge, sequence=["first"])
    with pytest.raises(RunFailed, match="mock of 'charge' has a sequence of 1, and was called once more"):
        await (await engine.start(order(5))).result()


async def test_an_error_ends_the_step_after_its_attempts(engine: VirtualEngine) -> None:
    mock = engine.mock(charge, error=ConnectionError("down"))
    with pytest.raises(RunFailed, match="down") as failed:
        await (await engine.start(order(5))).result()
    assert isinstance(failed.value.__cause__, ConnectionError)
    assert len(mock.calls) == 4


async def test_a_forced_timeout(engine: VirtualEngine) -> None:
    engine.mock(charge, timeout=True)
    with pytest.raises(RunFailed) as failed:
        await (await engine.start(order(5))).result()
    assert isinstance(failed.value.__cause__, StepTimeout)


async def test_a_delay_takes_virtual_time_and_meets_the_real_timeout(engine: VirtualEngine) -> None:
    """CONFORMANCE S3: the attempt is cancelled at 30 s; nothing is forced here."""
    engine.mock(charge, "late", delay="31 s")
    run = await engine.start(order(5))
    with pytest.raises(RunFailed) as failed:
        await run.result()
    assert isinstance(failed.value.__cause__, StepTimeout)
    assert engine.now - (await run.status()).created_at > timedelta(seconds=4 * 30)


async def test_a_callable_gets_the_arguments(engine: VirtualEngine) -> None:
    async def answer(cents: int, currency: str = "EUR") -> str:
        assert current_step().name == "charge"
        return f"{cents} {currency}"

    engine.mock(charge, call=answer)
    engine.mock(ship, call=lambda order: order.upper())
    assert await (await engine.start(order(5))).result() == ["5 EUR", "6 USD", "O"]


async def test_the_result_of_a_mock_is_checked_like_a_real_one(engine: VirtualEngine) -> None:
    engine.mock(charge, object())
    with pytest.raises(RunFailed, match="cannot be stored"):
        await (await engine.start(order(5))).result()


@pytest.mark.perdure(delays=False)
async def test_without_delays_retries_come_at_once(engine: VirtualEngine) -> None:
    engine.mock(charge, sequence=[OSError(), OSError(), "a", "b"], delay="1 h")
    run = await engine.start(order(5))
    assert (await run.result())[:2] == ["a", "b"]
    view = await run.status()
    assert view.finished_at == view.created_at


def test_a_mock_says_one_thing() -> None:
    engine = VirtualEngine()
    with pytest.raises(BadArgument, match="takes one of result, error"):
        engine.mock(charge, "a", error=ValueError())
    with pytest.raises(BadArgument, match="not function"):
        engine.mock(lambda: None)  # type: ignore[arg-type]


def test_mocks_belong_to_one_engine() -> None:
    async def main() -> list[Any]:
        async with VirtualEngine() as first, VirtualEngine() as second:
            first.mock(charge, "a")
            second.mock(charge, "b")
            runs = [await first.start(order(1)), await second.start(order(1))]
            return [(await run.result())[0] for run in runs]

    assert asyncio.run(main()) == ["a", "b"]
