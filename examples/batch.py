"""A long job in small generations: `continue_as` starts each page of work with a fresh journal, under the same id.

A journal is replayed after a crash, so one that grows for ever makes recovery slow. Here it never holds more than
one page, however many there are. Run it: `python examples/batch.py`.
"""

import asyncio

from perdure import Engine, continue_as, state, step, workflow

PAGE_SIZE = 10


@step
async def fetch_page(first: int, count: int) -> list[int]:
    return list(range(first, first + count))


@step
def handle(item: int) -> int:
    return item * item


@workflow
async def process(items: int, first: int = 0, total: int = 0) -> int:
    page = await fetch_page(first, min(PAGE_SIZE, items - first))
    total += sum(await asyncio.gather(*(handle(item) for item in page)))
    state["handled"] = first + len(page)  # readable from outside, kept from generation to generation
    if first + len(page) < items:
        await continue_as(process(items, first + len(page), total))
    return total


async def main(items: int = 95) -> None:
    async with Engine(":memory:") as engine:
        run = await engine.start(process(items), id="squares")
        print("sum of squares:", await run.result())
        view = await run.status()
        print(f"{view.state['handled']} items in {view.generation} generations, {view.records} records in the last")


if __name__ == "__main__":
    asyncio.run(main())
