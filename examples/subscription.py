"""A subscription: bill every month until somebody cancels, then clean up, durably.

Cancelling raises `asyncio.CancelledError` where the code waits, as in any asyncio program; the cleanup below is made
of steps, so it survives a crash too. Run it: `python examples/subscription.py`.
"""

import asyncio

from perdure import Engine, RunCancelled, sleep, state, step, workflow

MONTH = 30 * 86400.0


@step(max_attempts=10)
async def bill(customer: str, month: int) -> str:
    print(f"billing {customer} for month {month}")
    return f"invoice-{customer}-{month}"


@step
async def close_account(customer: str, months: int) -> None:
    print(f"closing the account of {customer} after {months} months")


@workflow
async def subscribe(customer: str, period: float = MONTH, months: int = 12) -> int:
    """Bill `months` times (for ever would use `continue_as` once a year; see batch.py)."""
    try:
        for month in range(1, months + 1):
            await bill(customer, month)
            state["months"] = month
            await sleep(period)
    except asyncio.CancelledError:
        await close_account(customer, state["months"])
        raise
    return months


async def main(period: float = 0.05) -> None:
    async with Engine(":memory:") as engine:
        run = await engine.start(subscribe("ann", period), id="subscription-ann")
        await asyncio.sleep(period * 2.5)
        await run.cancel("moved abroad")
        try:
            await run.result()
        except RunCancelled as cancelled:
            print(cancelled.message)


if __name__ == "__main__":
    asyncio.run(main())
