"""Arguments whose own code raises, or that only look like what is wanted: refused in words, and nothing hangs.

What the fuzzer of hostile values found first; it goes on looking for more (tests/fuzz).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from perdure import (
    Engine,
    StepFailed,
    event,
    log,
    race,
    sleep,
    start_child,
    state,
    step,
    storable,
    wait_for_run,
    workflow,
)
from perdure.errors import BadArgument, BadDefinition, DefinitionError, NotStorable
from support.lives import Lives, run_async


def _trap(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise RuntimeError("code of an argument ran")


class Unhashable(type):
    def __eq__(cls, other: object) -> bool:
        return cls is other


class Odd(metaclass=Unhashable):
    __repr__ = __eq__ = __bool__ = __str__ = __len__ = _trap  # type: ignore[assignment]


class OddText(str):
    __repr__ = __eq__ = __hash__ = __str__ = __len__ = strip = encode = _trap  # type: ignore[assignment]


class OddNumber(int):
    __repr__ = __eq__ = __hash__ = __lt__ = __le__ = __gt__ = __ge__ = __float__ = __index__ = _trap  # type: ignore[assignment]


class OddError(Exception):
    """Raises when it is asked what it is, which `isinstance` does."""

    __class__ = property(_trap)  # type: ignore[assignment]


@step
async def same(number: int) -> int:
    return number


@step(max_attempts=1)
def raises_in_thread() -> None:
    raise OddError("thread")


@step(max_attempts=1)
async def raises() -> None:
    raise OddError("loop")


class Silent(type):
    __getattribute__ = _trap  # type: ignore[assignment]


SILENT: Any = object.__new__(Silent("Mute", (), {}))


@step(max_attempts=2, initial_delay=0, on_retry=lambda _failed: SILENT)
async def fails_twice() -> None:
    raise ValueError("as it should")


@workflow
async def retries() -> str:
    try:
        await fails_twice()
    except ValueError as error:
        return str(error)
    return "no failure"


@workflow
async def adds(number: int) -> int:
    return await same(number) + 1


ACTIONS: dict[str, Callable[[], Any]] = {
    "a child that is detached by a text": lambda: start_child(adds(1), detach="yes"),  # type: ignore[arg-type]
    "a sleep of 10 ** 400 seconds": lambda: sleep(10**400),
    "a sleep by a number that raises": lambda: sleep(Odd()),  # type: ignore[arg-type]
    "a name of a sleep": lambda: sleep(1, name="caf\udce9"),
    "a branch of a race": lambda: race(**{"caf\udce9": same(1)}),
    "the type of a result": lambda: wait_for_run("done", result=OddError()),  # type: ignore[call-overload]
}


@workflow
async def acts(name: str) -> str:
    try:
        await ACTIONS[name]()
    except (BadArgument, DefinitionError) as error:
        return error.message
    return "done"


@workflow
async def logs() -> str:
    log.info("%s", Odd())
    log.info(Odd(), Odd())  # type: ignore[arg-type]
    return f"logged {await same(1)}"


@workflow
async def fails(in_thread: bool) -> str:
    try:
        await (raises_in_thread() if in_thread else raises())
    except StepFailed as error:
        return error.type_name
    return "no failure"


@workflow
async def keeps() -> Any:
    state[OddText("key")] = 1
    await same(1)
    return state["key"]


@pytest.mark.parametrize("name", list(ACTIONS))
def test_a_verb_refuses_it_and_the_run_goes_on(lives: Lives, name: str) -> None:
    """No record is written that could not be read again."""

    async def main() -> str:
        async with lives.engine() as engine:
            await (await engine.start(adds(1), id="done")).result(timeout=20)
            told = await (await engine.start(acts(name), id="run")).result(timeout=20)
            assert all(one.is_fine for one in [checked async for checked in engine.admin.check()])
            await engine.admin.history("run")
            return told

    assert run_async(main()) != "done"


def test_a_line_that_cannot_be_logged_does_not_hold_the_run(lives: Lives, caplog: pytest.LogCaptureFixture) -> None:
    """The engine says so in its place."""

    async def main() -> str:
        async with lives.engine() as engine:
            return await (await engine.start(logs())).result(timeout=20)

    caplog.set_level(logging.INFO)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging, "raiseExceptions", False)
        patch.setattr(caplog.handler, "formatter", logging.Formatter("%(levelname)s"))  # the message raises
        assert run_async(main()) == "logged 1"


@pytest.mark.parametrize("in_thread", [False, True], ids=["loop", "thread"])
def test_an_exception_that_does_not_say_what_it_is_fails_its_step(lives: Lives, in_thread: bool) -> None:
    """It does not end the event loop."""

    async def main() -> str:
        async with lives.engine() as engine:
            return await (await engine.start(fails(in_thread))).result(timeout=20)

    assert run_async(main()).endswith("OddError")


def test_what_an_on_retry_hook_returns_does_not_matter(lives: Lives) -> None:
    """Asking it whether it can be awaited runs code of its class."""

    async def main() -> str:
        async with lives.engine() as engine:
            return await (await engine.start(retries())).result(timeout=20)

    assert run_async(main()) == "as it should"


def test_subclasses_of_text_and_numbers_are_what_they_hold(lives: Lives) -> None:
    """Ids, keys of `state`, limits: none of their methods is called."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(keeps(), id=OddText("run"))
            assert type(run.id) is str
            assert await run.result(timeout=20) == 1
            assert [view.id for view in await engine.list(limit=OddNumber(1), id_prefix=OddText("r"))] == ["run"]
            assert (await engine.status(OddText("run"))).id == "run"

    run_async(main())


CALLS: dict[str, Callable[[Engine], Any]] = {
    "status": lambda engine: engine.status(Odd()),
    "start": lambda engine: engine.start(Odd()),
    "on_conflict": lambda engine: engine.start(adds(1), on_conflict=Odd()),
    "cancel": lambda engine: engine.cancel("run", Odd()),
    "fork at": lambda engine: engine.admin.fork("run", at=Odd()),
    "fork arguments": lambda engine: engine.admin.fork("run", arguments=Odd()),
    "fork paused": lambda engine: engine.admin.fork("run", paused="yes"),
    "list status": lambda engine: engine.list(status=Odd()),
    "list limit": lambda engine: engine.list(limit=10**5_000),
    "history": lambda engine: engine.admin.history("run", generation=Odd()),
    "published after": lambda engine: engine.admin.published(after=2**70),
    "prune": lambda engine: engine.admin.prune(10**400),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_a_call_refuses_it(lives: Lives, name: str) -> None:
    async def main() -> None:
        async with lives.engine() as engine:
            await (await engine.start(adds(1), id="run")).result(timeout=20)
            with pytest.raises(BadArgument) as caught:
                await CALLS[name](engine)
            assert len(str(caught.value)) < 300
            str(caught.value).encode()

    run_async(main())


def test_a_path_whose_code_raises_is_no_store() -> None:
    class OddPath:
        __fspath__ = _trap

    with pytest.raises(BadArgument, match="not OddPath"):
        Engine(OddPath())  # type: ignore[arg-type]


def test_an_edited_result_that_cannot_be_looked_at(lives: Lives) -> None:
    async def main() -> None:
        async with lives.engine() as engine:
            await (await engine.start(adds(1), id="run")).result(timeout=20)
            with pytest.raises(NotStorable, match="Odd"):
                await engine.admin.fork("run", at="same", result=Odd())

    run_async(main())


@pytest.mark.parametrize("define", [
    lambda: step(max_attempts=Odd()),  # type: ignore[typeddict-item]
    lambda: step(factor=10**400),
    lambda: step(isolation=Odd()),  # type: ignore[typeddict-item]
    lambda: step(Odd()),
    lambda: workflow(Odd()),
    lambda: workflow(version=Odd())(fails.function),
    lambda: workflow(auto=Odd()),
    lambda: event(delivery=Odd()),  # type: ignore[arg-type]
    lambda: storable(Odd, name=Odd(), encode=str, decode=str),  # type: ignore[arg-type]
    lambda: storable(Odd),
])  # fmt: skip
def test_a_definition_refuses_it(define: Callable[[], Any]) -> None:
    with pytest.raises(BadDefinition) as caught:
        define()
    str(caught.value).encode()
