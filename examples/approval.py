"""A person in the loop, with a deadline: wait for a decision, remind once, give up politely.

Run it: `python examples/approval.py`. In real life the decision comes from elsewhere:

    perdure send expense-1 Decision --data '{"approved": true, "by": "ann"}' --store approval.db
"""

import asyncio
from dataclasses import dataclass

from perdure import Engine, event, receive, status, step, workflow


@event
@dataclass
class Decision:
    approved: bool
    by: str


@step
async def tell(who: str, text: str) -> None:
    print(f"to {who}: {text}")


@step
async def pay(expense_id: str, cents: int) -> str:
    return f"paid {cents / 100:.2f} for {expense_id}"


@workflow
async def reimburse(expense_id: str, cents: int, remind_after: float = 86400.0, give_up_after: float = 604800.0) -> str:
    status("waiting for a decision")  # what `perdure show` says about it
    await tell("boss", f"please decide about {expense_id}")
    try:
        decision = await receive(Decision, timeout=remind_after)
    except TimeoutError:
        await tell("boss", f"{expense_id} is still waiting for you")
        try:
            decision = await receive(Decision, timeout=give_up_after)
        except TimeoutError:
            await tell("author", f"nobody decided about {expense_id}")
            return "expired"
    if not decision.approved:
        return f"refused by {decision.by}"
    return await pay(expense_id, cents)


async def main(store: str = ":memory:") -> None:
    async with Engine(store) as engine:
        decided = await engine.start(reimburse("expense-1", 4200), id="expense-1")
        await decided.send(Decision(approved=True, by="ann"))
        print(await decided.result())
        forgotten = await engine.start(reimburse("expense-2", 100, 0.1, 0.1), id="expense-2")
        print(await forgotten.result())


if __name__ == "__main__":
    asyncio.run(main())
