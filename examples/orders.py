"""An order that waits for approval, ships, and asks for an opinion 30 days later.

Run it: `python examples/orders.py`. It stops when the order is asleep; run it again, today or in 30 days, and it
goes on from there. Or give it to a worker, and look at it from another terminal:

    perdure worker --app examples/orders.py --store orders.db
    perdure show order-1 --store orders.db
"""

import asyncio
import sys
from dataclasses import dataclass

from perdure import Engine, event, receive, step, workflow


@event
@dataclass
class Approved:
    by: str


@step(max_attempts=5)
async def charge(order_id: str, cents: int) -> str:
    print(f"charging {cents / 100:.2f} for {order_id}")
    return f"receipt-{order_id}"


@step
async def refund(receipt: str) -> None:
    print(f"refunding {receipt}")


@step
async def ship(order_id: str) -> str:
    print(f"shipping {order_id}")
    return f"parcel-{order_id}"


@step
async def notify(who: str) -> None:
    print(f"telling {who}")


@step
async def survey(order_id: str) -> None:
    print(f"how was {order_id}?")


@workflow
async def fulfil(order_id: str, cents: int) -> str:
    receipt = await charge(order_id, cents)  # recorded: never runs again once its result is stored
    try:
        async with asyncio.timeout(7 * 86400):  # plain asyncio, made durable
            approval = await receive(Approved)
    except TimeoutError:
        await refund(receipt)
        return "expired"
    tracking, _ = await asyncio.gather(ship(order_id), notify(approval.by))
    await asyncio.sleep(30 * 86400)  # 30 days, over any number of restarts
    await survey(order_id)
    return tracking


async def main(store: str, patience: float = 2.0) -> None:
    async with Engine(store) as engine:  # one file; ":memory:" for a try
        run = await engine.start(fulfil("o-1", 1999), id="order-1")
        await engine.send("order-1", Approved(by="ann"), key="ann's approval")
        try:
            print(await run.result(timeout=patience))
        except TimeoutError:
            view = await run.status()
            asleep = view.waiting[0]
            print(
                f"{view.id} is {view.status} at {asleep.site} until {asleep.until:%Y-%m-%d %H:%M} UTC; come back then"
            )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "orders.db"))
