"""race, join, attempt, traverse, loop and saga keep the types of what they are given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

from perdure import Break, Err, Ok, Winner, attempt, join, loop, race, saga, step, traverse, workflow


@dataclass
class Receipt:
    number: int


@dataclass
class Progress:
    cursor: int


@step
async def refund(receipt: Receipt) -> None: ...


@step
def release(room: str) -> bool:
    return bool(room)


@step(undo=refund)
async def charge(order: str, cents: int) -> Receipt:
    return Receipt(cents)


@step
async def reserve(order: str) -> str:
    return order


@workflow
async def parcel(item: str) -> int:
    return len(item)


@workflow
async def composed(order: str) -> int:
    winner = await race(one=charge(order, 1), two=charge(order, 2))
    assert_type(winner, Winner[Receipt])
    assert_type(winner.value, Receipt)
    found = await join("fetch", a=reserve("a"), b=reserve("b"))
    assert_type(found, dict[str, str])
    settled = await join(settle=True, a=reserve("a"))
    assert_type(settled, dict[str, Ok[str] | Err])
    tried = await attempt(charge(order, 5))
    match tried:
        case Ok(receipt):
            assert_type(receipt, Receipt)
        case Err(kind=kind, attempts=attempts, error=error):
            assert_type(attempts, int)
            assert_type(error, Exception)
            print(kind == "timeout")
    assert_type(await traverse([1, 2], double), list[int])
    assert_type(await traverse(["a"], reserve, limit=3), list[str])

    async def body(progress: Progress) -> Progress | Break[str]:
        return Break("done") if progress.cursor else Progress(1)

    assert_type(await loop(body, Progress(0), keep=5, commit_every=2), str)

    async def poll() -> Break[int] | None:
        return None

    assert_type(await loop(poll), int)

    async def endless(number: int) -> int:
        return number + 1

    ticks = await race(ticks=loop(endless, 0), other=reserve("x"))
    assert_type(ticks.name, str)
    async with saga() as s:
        assert_type(await s.do(charge, order, 5), Receipt)
        assert_type(await s.do(charge(order, cents=5), undo=refund), Receipt)
        assert_type(await s.do(reserve, order, undo=release), str)
        assert_type(await s.do(parcel("x"), undo=undo_parcel), int)
    return 1


def double(number: int) -> int:
    return number * 2


async def undo_parcel(size: int) -> None: ...


@workflow
async def wrong(order: str) -> None:
    await race(one=5)  # E
    await race(first="fastest", one=reserve("a"))  # E
    await join(settle=5, one=reserve("a"))  # E
    await attempt(5)  # E
    await traverse(5, double)  # E
    await traverse(["a"], double)  # E

    async def body(progress: Progress) -> Progress | Break[str]:
        return progress

    await loop(body, 5)  # E
    await loop(body)  # E
    number: int = await loop(body, Progress(0))  # E
    async with saga() as s:
        await s.do(charge, order)  # E
        await s.do(charge, order, "5")  # E
        await s.do(reserve, order, undo=refund)  # E
        await s.do(reserve(order), undo=refund)  # E
    print(number)
