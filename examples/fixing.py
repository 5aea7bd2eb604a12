"""A run that failed goes on: find out why, fix what was broken, resume. Nothing that succeeded runs again.

Run it: `python examples/fixing.py`. On the command line the same is

    perdure why order-1
    perdure resume order-1 --app examples/fixing.py
"""

import asyncio

from perdure import Engine, RunFailed, step, workflow

CARRIER = {"answers": False}


@step
async def charge(order_id: str) -> str:
    print(f"charging {order_id}")
    return f"receipt for {order_id}"


@step(max_attempts=2, initial_delay=0.01)
async def ship(order_id: str) -> str:
    if not CARRIER["answers"]:
        raise ConnectionError("the carrier does not answer")
    return f"{order_id} is on its way"


@step(max_attempts=5, initial_delay=3600)
async def tell_customer(text: str) -> str:
    if not CARRIER["answers"]:
        raise ConnectionError("no mail today")
    return f"told: {text}"


@workflow
async def fulfil(order_id: str) -> str:
    receipt = await charge(order_id)
    tracking = await ship(order_id)
    return f"{tracking} ({receipt})"


@workflow
async def newsletter(text: str) -> str:
    return await tell_customer(text)


async def main() -> None:
    async with Engine(":memory:") as engine:
        run = await engine.start(fulfil("order-1"), id="order-1")
        try:
            await run.result()
        except RunFailed:
            print("why:", (await engine.admin.why("order-1")).text)
        mailing = await engine.start(newsletter("spring sale"), id="mailing-1")
        while (await engine.admin.why("mailing-1")).kind != "step-backoff":
            await asyncio.sleep(0.01)

        CARRIER["answers"] = True  # somebody fixes the outside world
        await engine.admin.resume("order-1")  # the failed step is tried again, with all of its attempts
        print(await run.result())
        await engine.admin.retry("mailing-1")  # a step in a backoff of an hour begins its next attempt now
        print(await mailing.result())


if __name__ == "__main__":
    asyncio.run(main())
