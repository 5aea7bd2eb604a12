"""Code changes while runs are open: `check` finds what would break, `patched` and `removed` fix it.

Run it: `python examples/deploying.py`. In real life the three versions are three commits, and a CI job runs
`perdure check --app shop.orders --store copy-of-production.db`, which ends with exit code 6 for the careless one.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from perdure import Engine, event, patched, receive, removed, step, workflow


@event
@dataclass
class Paid:
    cents: int


@step
async def send_fax(order_id: str) -> None:
    print(f"a fax about {order_id}")


@step
async def reserve(order_id: str) -> None:
    print(f"reserving {order_id}")


@step
async def ship(order_id: str) -> str:
    return f"{order_id} shipped"


def deploy(commit: str) -> Any:
    """What `orders.py` looks like at each commit."""

    @workflow
    async def fulfil(order_id: str) -> str:
        match commit:
            case "first":
                await send_fax(order_id)
            case "careless":
                await reserve(order_id)
            case _:
                removed("send_fax")  # was: await send_fax(order_id)
                if patched("reserve-first"):  # False for runs that were already past this point
                    await reserve(order_id)
        await receive(Paid)
        return await ship(order_id)

    return fulfil


async def main() -> None:
    async with Engine(":memory:") as engine:
        old = await engine.start(deploy("first")("o-1"), id="o-1")
        while (await engine.admin.why("o-1")).kind != "event":
            await asyncio.sleep(0.01)

        deploy("careless")
        print("careless:", [f"{run.id} {run.verdict}" async for run in engine.admin.check()])
        fulfil = deploy("careful")
        print("careful:", [f"{run.id} {run.verdict}" async for run in engine.admin.check()])

        new = await engine.start(fulfil("o-2"), id="o-2")
        for run in (old, new):
            await run.send(Paid(100))
            print(await run.result())


if __name__ == "__main__":
    asyncio.run(main())
