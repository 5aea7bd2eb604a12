"""`crash_everywhere` passes what is right, and says what is wrong with what is not."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perdure import event, now, random, receive, send, sleep, step, uuid4, workflow
from perdure.authoring.registry import Registry, registry
from perdure.testing import Effects, NotCrashProof, VirtualEngine, crash_everywhere
from testing.wrong_helpers import stamp

EXAMPLES = Path(__file__).parents[2] / "examples"

done = Effects()
listed: list[str] = []
counter = 0
cache: dict[str, str] = {}
numbers = itertools.count(1)


@event
@dataclass
class Go:
    where: str


@step(max_attempts=3)
async def note(label: str) -> str:
    done.add(label)
    listed.append(label)
    return label


@workflow
async def pair(label: str) -> list[str]:
    return [await note(f"{label} a"), await note(f"{label} b")]


@workflow
async def drawn() -> list[str]:
    await note("drawing")
    return [f"{random()}", str(uuid4())]


# -- right ones ------------------------------------------------------------------------------------------------


@workflow
async def right() -> list[Any]:
    drawn_here = [f"{random()}", str(uuid4()), now().isoformat()]
    first = await note("first")
    both = await asyncio.gather(note("left"), pair("child"), note("right"))
    await sleep("30 days")
    await send("run", Go("there"))
    go = await receive(Go, timeout="1 hour")
    try:
        async with asyncio.timeout(60):
            await receive(Go)
    except TimeoutError:
        await note("cleaned up")
    return [*drawn_here, first, both, go.where, len({*drawn_here, *await drawn()})]


def test_a_right_workflow_passes_at_every_point() -> None:
    """FAULTS A: every commit, before and after it."""
    report = crash_everywhere(right(), effects=done)
    assert report.result[3:] == ["first", ["left", ["child a", "child b"], "right"], "there", 5]
    assert report.points >= 16
    assert report.lives == 2 + 2 * report.points
    assert report.records >= 14


async def test_it_can_be_called_from_an_async_test(engine: VirtualEngine) -> None:
    assert crash_everywhere(pair("x"), hash_seeds=()).result == ["x a", "x b"]
    assert await (await engine.start(pair("y"))).result() == ["y a", "y b"]


@workflow
async def flaky() -> str:
    try:
        return await note("flaky")
    except ConnectionError:
        return "gave up"


def test_mocks_outlive_the_crash_as_the_outside_does() -> None:
    """An attempt that runs again gets the answer it got before; the attempts recorded before the crash stay counted."""
    tried: list[VirtualEngine] = []

    def setup(engine: VirtualEngine) -> None:
        tried.append(engine)
        engine.mock(note, sequence=[ConnectionError("down"), ConnectionError("down"), "up"])

    assert crash_everywhere(flaky(), setup=setup, hash_seeds=()).result == "up"
    assert len(tried) > 3


def test_a_workflow_that_fails_must_fail_the_same_way() -> None:
    def setup(engine: VirtualEngine) -> None:
        engine.mock(note, error=ValueError("no"))

    assert "ValueError" in str(crash_everywhere(pair("x"), setup=setup, hash_seeds=()).result)


@workflow
async def waits() -> str:
    return (await receive(Go)).where


def test_clients_act_in_every_life() -> None:
    assert crash_everywhere(waits(), send=[Go("a")], hash_seeds=()).result == "a"

    async def drive(engine: VirtualEngine, run: Any) -> None:
        await engine.wait_until(run, waiting_for=Go)
        await run.send(Go("b"), key="b")

    assert crash_everywhere(waits(), drive=drive, hash_seeds=()).result == "b"


# -- the examples ------------------------------------------------------------------------------------------------


def _example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _hello(module: ModuleType) -> dict[str, Any]:
    return {"invocation": module.hello("world"), "expected": "Hello, world!"}


def _orders(module: ModuleType) -> dict[str, Any]:
    return {
        "invocation": module.fulfil("o-1", 5),
        "send": [module.Approved(by="ann")],
        "expected": "parcel-o-1",
    }


def _approval(module: ModuleType) -> dict[str, Any]:
    return {"invocation": module.reimburse("e", 5), "expected": "expired"}


def _subscription(module: ModuleType) -> dict[str, Any]:
    return {"invocation": module.subscribe("ann"), "expected": 12}


def _batch(module: ModuleType) -> dict[str, Any]:
    return {"invocation": module.process(25), "expected": sum(n * n for n in range(25))}


def _log_store(module: ModuleType) -> dict[str, Any]:
    return {"invocation": module.stamp_all(2), "expected": ["page 1 stamped", "page 2 stamped"]}


def _batch_loop(module: ModuleType) -> dict[str, Any]:
    module.ROWS = 23  # type: ignore[attr-defined]
    return {"invocation": module.import_all(), "expected": 23}


def _copying(module: ModuleType) -> dict[str, Any]:
    return {"invocation": module.order("lamp", 2), "expected": "charged 39.98"}


def _countdown(module: ModuleType) -> dict[str, Any]:
    return {"invocation": module.countdown(4), "expected": "lift-off"}


def _deploying(module: ModuleType) -> dict[str, Any]:
    # Made by a function, so that no other process can import it.
    invocation = module.deploy("careful")("o-9")
    return {"invocation": invocation, "send": [module.Paid(5)], "expected": "o-9 shipped", "hash_seeds": ()}


def _human_in_the_loop(module: ModuleType) -> dict[str, Any]:
    verdicts = [module.Verdict("look up tea", go=True), module.Verdict("pay for tea", go=False)]
    return {
        "invocation": module.agent("tea"),
        "send": verdicts,
        "expected": ["did look up tea", "left out pay for tea"],
    }


def _fixing(module: ModuleType) -> dict[str, Any]:
    module.CARRIER["answers"] = True
    return {"invocation": module.fulfil("o-1"), "expected": "o-1 is on its way (receipt for o-1)"}


def _order_saga(module: ModuleType) -> dict[str, Any]:
    return {
        "invocation": module.fulfil("o-1", ["book", "lamp"], 1999),
        "expected": "undone: no parcel service goes to the address of o-1",
    }


CASES = {
    "batch_loop": _batch_loop,
    "copying": _copying,
    "countdown": _countdown,
    "deploying": _deploying,
    "human_in_the_loop": _human_in_the_loop,
    "fixing": _fixing,
    "order_saga": _order_saga,
    "log_store": _log_store,
    "hello": _hello,
    "orders": _orders,
    "approval": _approval,
    "subscription": _subscription,
    "batch": _batch,
}


@pytest.mark.parametrize("name", CASES)
def test_every_example_survives_every_crash(name: str) -> None:
    """Bar 2, first half."""
    with registry.replaced(Registry()):  # examples are programs of their own, with names of their own
        case = CASES[name](_example(name))
        expected = case.pop("expected")
        report = crash_everywhere(case.pop("invocation"), **case)
    assert report.result == expected
    assert report.points >= 6


def test_every_example_with_a_workflow_is_in_the_list() -> None:
    with_workflows = {path.stem for path in EXAMPLES.glob("*.py") if "workflow" in path.read_text()}
    assert with_workflows == set(CASES)


def test_the_example_that_is_cancelled_cleans_up_at_every_crash() -> None:
    module = _example("subscription")

    async def drive(engine: VirtualEngine, run: Any) -> None:
        began = (await run.status()).created_at
        await engine.advance(until=began.replace(month=began.month + 2))
        await run.cancel("moved abroad")

    report = crash_everywhere(module.subscribe("ann"), drive=drive)
    assert "moved abroad" in str(report.result)


# -- wrong ones --------------------------------------------------------------------------------------------------


@step
async def numbered() -> int:
    return next(numbers)


@workflow
async def hidden_state_in_a_step() -> list[int]:
    return [await numbered(), await numbered()]


@step
async def remember(key: str) -> None:
    cache[key] = f"value of {key}"


@step
async def recall(key: str) -> str:
    return cache.get(key, "nothing")


@workflow
async def memory_between_steps() -> str:
    await remember("a")
    return await recall("a")


@workflow
async def effect_outside_a_step() -> str:
    await note("before")
    done.add("mail sent")
    listed.append("mail sent")
    return await note("after")


@workflow
async def writes_a_file(path: str) -> str:
    with open(path, "a") as file:
        file.write("x")
    return await note("after")


@workflow
async def wall_clock_through_a_helper() -> float:
    began = stamp()
    await note("between")
    return began


@workflow
async def wall_clock_as_an_argument() -> str:
    await note(f"{stamp()}")
    return await note("end")


@workflow
async def set_iteration() -> None:
    for name in {"ann", "bob", "cid", "dan", "eve", "fay", "gil", "hal"}:
        await sleep(1, name=name)


@workflow
async def mutable_module_global() -> int:
    global counter
    counter += 1
    await note("between")
    return counter


HERE = "test_crash_everywhere"

#: Workflow, effects to watch, what the report must say.
WRONG: dict[str, tuple[Any, Any, str]] = {
    "hidden state in a step": (hidden_state_in_a_step, None, rf"{HERE}.numbers was count\(1\) and became"),
    "memory between steps": (
        memory_between_steps,
        None,
        r"cache was {} and became {'a'.*Memory is lost in a crash",
    ),
    "an effect outside a step": (
        effect_outside_a_step,
        done,
        rf"the effect 'mail sent' is done outside a step, at {HERE}.py:\d+",
    ),
    "an effect outside a step, in a list": (
        effect_outside_a_step,
        listed,
        r"'mail sent' was done 2 times, and undisturbed once, although no step ran again: it is done outside a step",
    ),
    "a file": (writes_a_file, None, rf"workflow code called open\(\) at {HERE}.py:\d+"),
    "wall clock through a helper": (
        wall_clock_through_a_helper,
        None,
        r"its result was .*workflow code called time.time\(\) at wrong_helpers.py:7",
    ),
    "wall clock as an argument": (
        wall_clock_as_an_argument,
        None,
        r"time.time\(\) at wrong_helpers.py:7, which gives another value on replay",
    ),
    "set iteration": (set_iteration, None, r"PYTHONHASHSEED=\d.*the order of a set differs from process to process"),
    "mutable module global": (mutable_module_global, None, rf"{HERE}.counter was 0 and became 1 while it ran"),
    "waiting for ever": (
        waits,
        None,
        r"without any crash:\n    - it does not come to an end: .*receive 'receive' of 'Go'",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_workflow_is_told_what_is_wrong(name: str, tmp_path: Path) -> None:
    """Bar 2, second half."""
    function, effects, expected = WRONG[name]
    invocation = function(str(tmp_path / "file")) if function is writes_a_file else function()
    with pytest.raises(NotCrashProof) as raised:
        crash_everywhere(invocation, effects=effects)
    text = str(raised.value)
    assert re.search(expected, text, re.S), text
    assert f"workflow {invocation.spec.name!r} does not survive every crash" in text
    assert text.endswith("[P-903]")
    assert len(text) < 6_000


def test_the_report_reads_well() -> None:
    with pytest.raises(NotCrashProof) as raised:
        crash_everywhere(memory_between_steps())
    lines = str(raised.value).splitlines()
    assert re.fullmatch(
        r"workflow 'memory_between_steps' does not survive every crash: \d of \d+ crash points went wrong\.", lines[0]
    )
    assert lines[1] == "  killed after commit 2 (step_done 'remember'):"
    assert lines[2] == "    - its result was 'nothing', and undisturbed 'value of a'"
