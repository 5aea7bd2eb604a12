"""A run of production on your machine: export it, import it, take another way from some point, and clean up.

Run it: `python examples/copying.py`. On the command line the same is

    perdure export order-7 --store production.db -o order-7.json
    perdure import order-7.json --store mine.db
    perdure fork order-7 --id what-if --at price --result 0 --store mine.db
    perdure prune --older-than '30 days' --status completed --store production.db
"""

import asyncio

from perdure import Engine, step, workflow


@step
async def price(item: str) -> int:
    print(f"asking for the price of {item}")
    return 1999


@step
async def charge(cents: int) -> str:
    return f"charged {cents / 100:.2f}"


@workflow
async def order(item: str, count: int = 1) -> str:
    return await charge(await price(item) * count)


async def main() -> None:
    async with Engine(":memory:") as production, Engine(":memory:") as mine:
        run = await production.start(order("lamp"), id="order-7")
        print(await run.result())

        copy = mine.get(
            await mine.admin.import_run(await production.admin.export_run("order-7"), source="order-7.json")
        )
        print(f"{copy.id}: {len(await mine.admin.history(copy.id))} records here, too")
        what_if = mine.get(await mine.admin.fork("order-7", id="what-if", at="price", result=0))
        print("free:", await what_if.result())
        three = mine.get(
            await mine.admin.fork("order-7", id="three", arguments={"count": 3})
        )  # from the start, with another input
        print("three:", await three.result())

        print("pruned:", await production.admin.prune(older_than="0 s", status="completed"))


if __name__ == "__main__":
    asyncio.run(main())
