"""An order from validation to delivery, as it would be written without any thought of crashes. Kill it, run it again.

Run it: `python examples/auto/order.py`. There is no step in it: whatever the workflow calls is recorded once.
"""

import asyncio
from dataclasses import dataclass

from perdure import Engine, event, receive, workflow


@dataclass
class Order:
    id: str
    items: list[str]
    payment_info: str


@dataclass
class OrderResult:
    order_id: str
    tracking: str
    status: str


@event
@dataclass
class InventoryReady:
    items: list[str]


@event
@dataclass
class Delivered:
    tracking: str


def validate_order(order_id: str) -> Order:
    print("validating", order_id, flush=True)
    return Order(order_id, ["book", "lamp"], "card ending 4242")


def charge_payment(payment_info: str) -> str:
    print("charging", payment_info, flush=True)
    return "payment-1"


def ship_order(order: Order) -> str:
    print("shipping", " and ".join(order.items), flush=True)
    return f"parcel-{order.id}"


@workflow(auto=True, version="1.0")
async def order_processing(order_id: str) -> OrderResult:
    # Validate order
    order = validate_order(order_id)

    # Charge payment
    payment = charge_payment(order.payment_info)

    # Wait for inventory
    await receive(InventoryReady, match=lambda ready: ready.items == order.items)

    # Ship order
    tracking = ship_order(order)

    # Wait for delivery (could be days)
    await receive(Delivered)

    # Complete
    return OrderResult(order_id, tracking, status=f"delivered, {payment}")


async def main() -> None:
    async with Engine("order.db") as engine:
        run = await engine.start(order_processing("o-1"), id="order-1")
        await run.send(InventoryReady(["book", "lamp"]), key="inventory")
        await run.send(Delivered("parcel-o-1"), key="delivery")
        print(await run.result())


if __name__ == "__main__":
    asyncio.run(main())
