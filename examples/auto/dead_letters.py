"""Events that came too late: one goes to another run that waits for it, one is kept for a person to look at.

Run it: `python examples/auto/dead_letters.py`.
"""

import asyncio
from dataclasses import dataclass

from perdure import Engine, event, receive, workflow


@event(undelivered="broadcast")
@dataclass
class PaymentConfirmation:
    order_id: str
    amount: int


@event(undelivered="dead_letter")
@dataclass
class CriticalAlert:
    alert_id: str
    message: str


@event
@dataclass
class Close:
    pass


def book(order_id: str, amount: int) -> str:
    print("booking", amount, "for", order_id, flush=True)
    return f"{order_id} booked"


def page_somebody(message: str) -> str:
    print("paging:", message, flush=True)
    return f"somebody knows: {message}"


@workflow(auto=True)
async def short_lived() -> str:
    await receive(Close)
    return "closed"


@workflow(auto=True)
async def accountant() -> str:
    confirmation = await receive(PaymentConfirmation)
    return book(confirmation.order_id, confirmation.amount)


@workflow(auto=True)
async def on_call() -> str:
    alert = await receive(CriticalAlert)
    return page_somebody(alert.message)


async def main() -> None:
    async with Engine("dead_letters.db") as engine:
        first = await engine.start(short_lived(), id="first")
        books = await engine.start(accountant(), id="accountant")
        person = await engine.start(on_call(), id="on-call")
        # All three are there when it closes: the two events are not read any more.
        await first.send(PaymentConfirmation("o-1", 1999), key="confirmation")
        await first.send(CriticalAlert("a-1", "the cellar is wet"), key="alert")
        await first.send(Close(), key="close")
        print(await first.result())
        print(await books.result())

        for dead in await engine.admin.dead_letters(type="CriticalAlert"):
            print(f"alert {dead.data['alert_id']} not delivered to {dead.target!r}: {dead.target_status}")
            await engine.admin.replay_dead_letter(dead.id, "on-call")
        print(await person.result())


if __name__ == "__main__":
    asyncio.run(main())
