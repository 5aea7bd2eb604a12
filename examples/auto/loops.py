"""Loops: with a fresh journal for each round, by recursion, by one call for each item, or all in one record.

Run it: `python examples/auto/loops.py`.
"""

import perdure
from perdure import continue_as, sleep, traverse, workflow


def process(item: str) -> str:
    print("processing", item, flush=True)
    return item.upper()


@workflow(auto=True)
async def process_items(items: list[str], acc: list[str], pause: str = "1 minute") -> list[str]:
    match items:
        case []:
            return acc
        case [h, *t]:
            r = process(h)  # recorded
            await sleep(pause)
            await continue_as(t, [*acc, r], pause)  # go on with the rest, and an empty journal
    raise AssertionError("continue_as does not come back")


@workflow(auto=True)
async def process_recursively(items: list[str], acc: list[str], pause: str = "1 minute") -> list[str]:
    match items:
        case []:
            return acc
        case [h, *t]:
            r = process(h)  # recorded
            await sleep(pause)
            return await process_recursively(t, [*acc, r], pause)  # recurse: a child
    raise AssertionError("every list is empty or not")


@workflow(auto=True)
def process_each(items: list[str]) -> list[str]:
    return traverse(items, process)


def http_get(url: str) -> str:
    print("GET", url, flush=True)
    return f"page {url}"


@workflow(auto=True)
def fetch_all(urls: list[str]) -> list[str]:
    results = [http_get(x) for x in urls]  # one record: the whole list
    return results


@workflow(auto=True)
def fetch_each(urls: list[str]) -> list[str]:
    results = traverse(urls, http_get)  # each recorded by itself
    return results


@workflow(auto=True)
async def fetch_recursively(urls: list[str]) -> list[str]:
    match urls:
        case []:
            return []
        case [first, *rest]:
            page = http_get(first)
            return [page, *await fetch_recursively(rest)]  # each in a run of its own
    raise AssertionError("every list is empty or not")


@workflow(auto=True)
async def countdown(count: int) -> int:
    if count <= 0:
        return count  # base case: the result
    else:
        await continue_as(count - 1)


@workflow(auto=True, name="sum")
async def sum_up(count: int, acc: int) -> int:
    if count <= 0:
        return acc
    else:
        await continue_as(count - 1, acc + count)


@workflow(auto=True)
async def hand_over(count: int) -> int:
    await continue_as(sum_up(count, 0))  # go on as another workflow, under the same id


if __name__ == "__main__":
    store = "loops.db"
    print(perdure.run(process_items(["a", "b"], [], "10 ms"), store=store, id="items"))
    print(perdure.run(process_each(["c", "d"]), store=store, id="each"))
    print(perdure.run(fetch_all(["1", "2"]), store=store, id="all"))
    print(perdure.run(countdown(3), store=store, id="countdown"))
    print(perdure.run(sum_up(4, 0), store=store, id="sum"))
    print(perdure.run(hand_over(5), store=store, id="handed-over"))
