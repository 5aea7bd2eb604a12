"""Wrong arguments and wrong ids are refused at the call, before anything is written."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import PerdureError, step, workflow
from perdure.errors import BadArgument
from support.lives import Lives, run_async


@step
async def takes_two(first: int, second: str = "b") -> str:
    return f"{first}{second}"


@workflow
async def takes_three(order: str, cents: int, *, fast: bool = False) -> str:
    return f"{order} {cents} {fast}"


@workflow
async def calls_wrongly(how: str) -> str:
    try:
        match how:
            case "missing":
                await takes_two()  # type: ignore[call-arg]
            case "extra":
                await takes_two(1, "b", 3)  # type: ignore[call-arg]
            case "keyword":
                await takes_two(1, third=3)  # type: ignore[call-arg]
            case "child type":
                await takes_three("o", "not a number")  # type: ignore[arg-type]
            case "child missing":
                await takes_three("o")  # type: ignore[call-arg]
    except (TypeError, PerdureError) as error:
        return str(error)
    return "was allowed"


WRONG: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    (("o",), {}),
    (("o", 1, True), {}),
    (("o", 1), {"slow": True}),
    (("o", 1), {"order": "p"}),
]


@pytest.mark.parametrize(("args", "kwargs"), WRONG, ids=str)
def test_a_wrong_call_of_a_workflow_is_a_type_error(args: Any, kwargs: Any) -> None:
    """FAULTS F6: at the call, as for any function, naming the workflow."""
    with pytest.raises(TypeError, match="takes_three"):
        takes_three(*args, **kwargs)


@pytest.mark.parametrize(
    "args", [("o", "1999"), (5, 1), ("o", None), ("o", object())], ids=["text", "number", "none", "object"]
)
def test_a_wrong_type_is_refused_before_anything_is_written(lives: Lives, args: Any) -> None:
    """FAULTS F6: at the call or at start, on a worker and on a client without one."""

    async def main() -> None:
        for settings in ({}, {"worker": False}):
            async with lives.engine(**settings) as engine:
                with pytest.raises(PerdureError, match=r"order|cents"):
                    await engine.start(takes_three(*args), id="run")
                assert await engine.list() == []

    run_async(main())


@pytest.mark.parametrize("how", ["missing", "extra", "keyword", "child missing", "child type"])
def test_a_wrong_call_inside_a_workflow_raises_there(lives: Lives, how: str) -> None:
    """FAULTS F6: in the workflow's own code, where it can be caught; no child is created to hang."""

    async def main() -> str:
        async with lives.engine() as engine:
            said = await (await engine.start(calls_wrongly(how), id="run")).result(timeout=10)
            assert [view.id for view in await engine.list()] == ["run"]
            return said

    assert "takes_t" in run_async(main())


BAD_IDS: list[Any] = [
    "",
    " ",
    "\t",
    " padded",
    "padded ",
    "a\0b",
    "a\nb",
    "x" * 501,
    "ü" * 251,
    "a/b",
    ".",
    "..",
    "\ud800",
    5,
    b"x",
]


@pytest.mark.parametrize("run_id", BAD_IDS, ids=lambda v: ascii(v)[:20])
def test_an_id_that_cannot_be_one_is_refused_with_the_rule(lives: Lives, run_id: Any) -> None:
    """FAULTS F1: nothing is written, and the message says what an id is."""

    async def main() -> None:
        async with lives.engine() as engine:
            with pytest.raises(BadArgument, match="run id"):
                await engine.start(takes_three("o", 1), id=run_id)
            assert await engine.list() == []

    run_async(main())


GOOD_IDS = ["x" * 500, "order 1", "größe-€", "🧾", "a'b\"c;--", "%_", "-", "a.b..c"]


@pytest.mark.parametrize("run_id", GOOD_IDS, ids=lambda v: ascii(v)[:20])
def test_an_unusual_id_is_kept_exactly(lives: Lives, run_id: str) -> None:
    """An id comes back as it was given, character by character. FAULTS F1, E19."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(takes_three("o", 1), id=run_id)
            assert await run.result() == "o 1 False"
            assert [view.id for view in await engine.list()] == [run_id]

    run_async(main())
