"""An order that is undone, step by step, when the parcel service refuses it.

Run it: `python examples/order_saga.py`. Kill it at any moment and run it again: nothing is done twice, nothing is
left half done.
"""

import asyncio
import sys

import perdure
from perdure import Critical, join, saga, step, workflow


@step
async def put_back(item: str) -> None:
    print("putting back", item, flush=True)
    await asyncio.sleep(0.2)


@step(max_attempts=None)  # a refund is tried until it works
async def refund(receipt: str) -> None:
    print("refunding", receipt, flush=True)
    await asyncio.sleep(0.2)


@step(undo=put_back)  # in any saga, this undoes it, given its output
async def reserve(item: str) -> str:
    print("reserving", item, flush=True)
    return item


@step
async def charge(order_id: str, cents: int) -> str:
    print(f"charging {cents / 100:.2f}", flush=True)
    return f"receipt-{order_id}"


@step(max_attempts=5)
async def ship(order_id: str) -> str:
    raise Critical(f"no parcel service goes to the address of {order_id}")  # trying again would not help


@workflow
async def fulfil(order_id: str, items: list[str], cents: int) -> str:
    try:
        async with saga() as s:
            await join(**{item: reserve(item) for item in items})
            await s.do(charge, order_id, cents, undo=refund)  # the same for one call
            return await ship(order_id)
    except Critical as error:
        return f"undone: {error.message}"


if __name__ == "__main__":
    store = sys.argv[1] if len(sys.argv) > 1 else "order-saga.db"
    print(perdure.run(fulfil("o-1", ["book", "lamp"], 1999), store=store, id="order-1"))
