"""Calls that are wrong, each with `# E` on its line: both checkers must refuse every one, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from perdure import Engine, event, receive, sleep, start_child, step, wait_for_any, workflow


@event
@dataclass
class Arrived:
    at: int


@step
async def count_up(number: int, label: str = "x") -> int:
    return number


@step(max_attempts="five")  # E
async def bad_option() -> None: ...


@workflow
async def takes_text(text: str, *, twice: bool = False) -> str:
    await count_up("1")  # E
    await count_up()  # E
    await count_up(1, "x", 3)  # E
    await count_up(1, label=2)  # E
    await count_up(1, other=2)  # E
    await count_up.options(timeout=5)("1")  # E
    text = await count_up(1)  # E
    wrong: str = await takes_number(1)  # E
    await takes_number("1")  # E
    await takes_number()  # E
    handle = await start_child(takes_number("1"))  # E
    number: str = await handle  # E
    await start_child(takes_number)  # E
    await sleep(None)  # E
    await wait_for_any("run-1")  # E
    await wait_for_any({"run-1", "run-2"})  # E
    arrived: str = await receive(Arrived)  # E
    return f"{text}{wrong}{number}{arrived}"


@workflow
async def takes_number(number: int) -> int:
    return number


@workflow
def not_async(number: int) -> int:  # E?
    return number


async def outside(engine: Engine) -> None:
    await engine.start(takes_text(5), id="a")  # E
    await engine.start(takes_text(), id="a")  # E
    await engine.start(takes_text("a", False), id="a")  # E
    await engine.start(takes_text("a", once=True), id="a")  # E
    await engine.start(takes_text, id="a")  # E
    run = await engine.start(takes_number(1))
    result: str = await run.result()  # E
    await engine.start(takes_number(1), id=5)  # E
    print(result)
