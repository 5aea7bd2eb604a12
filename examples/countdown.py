"""A countdown that goes on where it was: kill it, run it again.

Run it: `python examples/countdown.py`. Each iteration hands its state to the next; a finished one is never repeated.
"""

import sys

import perdure
from perdure import Break, loop, sleep, step, workflow


@step
async def say(number: int) -> None:
    print(number, "...", flush=True)


@workflow
async def countdown(start: int) -> str:
    async def tick(left: int) -> int | Break[str]:
        if left == 0:
            return Break("lift-off")
        await say(left)
        await sleep(0.2)
        return left - 1

    return await loop(tick, start)


if __name__ == "__main__":
    store = sys.argv[1] if len(sys.argv) > 1 else "countdown.db"
    print(perdure.run(countdown(10), store=store, id="countdown"))
