"""An agent that asks a person before it acts, and tells anybody who asks what it is waiting for.

`engine.request` sends an event and waits for the workflow's `reply`; the answer of the person is an event of its own,
matched to the question it belongs to. Kill the program at any point and run it again on the same file: it goes on.
Run it: `python examples/human_in_the_loop.py`.
"""

import asyncio
from dataclasses import dataclass

from perdure import Engine, event, receive, reply, step, workflow


@event
@dataclass
class WhatNow:
    """What are you waiting for?"""


@event
@dataclass
class Verdict:
    action: str
    go: bool


@step
async def plan(goal: str) -> list[str]:
    return [f"look up {goal}", f"pay for {goal}"]


@step
async def act(action: str) -> str:
    print(f"doing: {action}")
    return f"did {action}"


async def ask_a_person(action: str) -> bool:
    while True:
        message = await receive(WhatNow, Verdict, match=lambda m: isinstance(m, WhatNow) or m.action == action)
        if isinstance(message, Verdict):
            return message.go
        await reply(message, f"may I {action}?")


@workflow
async def agent(goal: str) -> list[str]:
    return [await act(action) if await ask_a_person(action) else f"left out {action}" for action in await plan(goal)]


async def main(store: str = ":memory:") -> None:
    async with Engine(store) as engine:
        run = await engine.start(agent("a train ticket"), id="agent-1")
        await run.send(Verdict("pay for a train ticket", go=False))  # kept until that is the question
        print(await run.request(WhatNow()))
        await run.send(Verdict("look up a train ticket", go=True))
        print(await run.result())


if __name__ == "__main__":
    asyncio.run(main())
