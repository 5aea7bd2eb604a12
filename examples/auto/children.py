"""Children: awaited, with a default if they fail, or started and left to themselves.

Run it: `python examples/auto/children.py`.
"""

import asyncio

import perdure
from perdure import ChildFailed, start_child, workflow


def take_a_risk(n: int) -> int:
    print(f"taking risk {n}", flush=True)
    if n > 1:
        raise RuntimeError("too much")
    return n


def tidy_up(what: str) -> None:
    print(f"tidying {what}", flush=True)


@workflow(auto=True, max_attempts=1)
def risky(n: int) -> int:
    return take_a_risk(n)


@workflow(auto=True)
def background(what: str) -> None:
    tidy_up(what)


@workflow(auto=True)
async def parent() -> list[int]:
    default_value = -1

    # Await the child: its result or its exception arrives here
    first = await risky(1)
    try:
        result = await risky(2)
    except ChildFailed:
        result = default_value

    # Start and forget: nobody waits, no failure arrives
    await start_child(background("the attic"), id="attic", detach=True)

    return [first, result]


async def main() -> None:
    async with perdure.Engine("children.db") as engine:
        run = await engine.start(parent(), id="parent")
        print(await run.result())
        await engine.result("attic")


if __name__ == "__main__":
    asyncio.run(main())
