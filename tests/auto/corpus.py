"""Small functions of every statement and expression kind that auto mode rewrites. Each is also an ordinary function:
what it returns and does as plain Python is what it must return and do as a workflow."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import math
import operator
import re
from collections import Counter, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, Self

import pydantic

from perdure import sleep, step, traverse, workflow
from perdure.testing import Effects
from perdure.types import Workflow

done = Effects()
PLAIN: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
WORKFLOWS: dict[str, Workflow[..., Any]] = {}
Point = namedtuple("Point", "x y")


@dataclass
class Order:
    id: str
    cents: int

    def doubled(self) -> int:
        return 2 * self.cents

    @classmethod
    def parse(cls, text: str) -> Self:
        done.add(f"parse {text}")
        name, cents = text.split(":")
        return cls(name, int(cents))


class Color(Enum):
    RED = "red"
    BLUE = "blue"


def case(*args: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        PLAIN[function.__name__] = (function, args)
        WORKFLOWS[function.__name__] = workflow(auto=True, max_attempts=1)(function)
        return function

    return decorate


# -- what they call: each call is an effect ---------------------------------------------------------------------


def get(n: Any) -> Any:
    done.add(f"get {n}")
    return n


def double(n: int) -> int:
    done.add(f"double {n}")
    return 2 * n


def pair(n: int) -> tuple[int, int]:
    done.add(f"pair {n}")
    return n, n + 1


def load(order_id: str) -> Order:
    done.add(f"load {order_id}")
    return Order(order_id, len(order_id))


def fail(text: str) -> None:
    done.add(f"fail {text}")
    raise ValueError(text)


def keyed(a: int, /, b: int = 2, *rest: int, c: int, **more: int) -> list[Any]:
    done.add(f"keyed {a}")
    return [a, b, list(rest), c, more]


async def fetch(n: int) -> int:
    done.add(f"fetch {n}")
    return n + 100


@step
async def charge(n: int) -> int:
    done.add(f"charge {n}")
    return n * 10


def add_up(a: int, b: int) -> int:
    done.add(f"add {a} {b}")
    return a + b


class Client:
    def ask(self, n: int) -> int:
        done.add(f"ask {n}")
        return n + 1


client = Client()
handlers = {"double": double, "get": get}
SMALL = 3


# -- assignments ---------------------------------------------------------------------------------------------------


@case(2)
def plain_assignment(n):
    a = double(n)
    b = c = get(a)
    return [a, b, c]


@case(2)
def annotated_assignment(n: int) -> int:
    a: int = double(n)
    b: int
    b = get(a)
    return a + b


@case(2)
def augmented_assignment(n):
    a = 1
    a += double(n)
    a *= get(3)
    items = [1, 2]
    items[get(1)] += get(5)
    return [a, items]


@case(2)
def tuple_assignment(n):
    a, b = pair(n)
    (c, *d), e = get([1, 2, 3]), get(4)
    return [a, b, c, d, e]


@case(2)
def walrus(n):
    if (m := double(n)) > 3 and (k := get(m)):
        return [m, k]
    return None


@case()
def rebinding():
    a = get(1)
    a = double(a)
    a = double(a)
    del a
    a = get("new")
    return a


@case()
def into_attributes_and_items():
    order = Order("a", 1)
    order.cents = double(5)
    table = {}
    table[get("key")] = get("value")
    return [order.cents, table]


# -- conditions ----------------------------------------------------------------------------------------------------


@case(3)
def if_else(n):
    if get(n) > 5:
        return get("big")
    elif get(n) > 2:
        return get("middle")
    else:
        return get("small")


@case()
def while_loop():
    n, seen = 0, []
    while get(n) < 3:
        seen.append(double(n))
        n += 1
    else:
        seen.append(get("else"))
    return seen


@case()
def while_with_break_and_continue():
    n, seen = 0, []
    while True:
        n = get(n + 1)
        if n == 2:
            continue
        if n > 3:
            break
        seen.append(n)
    return seen


@case(0)
def ternary(n):
    return get("yes") if get(n) else get("no")


@case()
def boolean_operators():
    return [get(0) or get(2), get(0) and get(3), not get(""), get(1) < get(2) < get(3), get(3) < get(2) < get(9)]


@case()
def assertion():
    assert get(1), get("never")
    try:
        assert get(0), get("message")
    except AssertionError as error:
        return str(error)


@case(Order("abc", 5))
def match_statement(order: Order):
    match get([1, order.cents]):
        case [1, n] if get(n) == 6:
            return "wrong"
        case [1, n] if double(n) == 10:
            return get(n)
        case _:
            return "default"


@case()
def match_of_classes_and_mappings():
    seen = []
    for one in [load("ab"), get({"kind": "x", "rest": 1}), get([1, 2, 3]), get("text"), get(None)]:
        match one:
            case Order(id=name, cents=n):
                seen.append([name, n])
            case {"kind": kind, **rest}:
                seen.append([kind, rest])
            case [first, *others]:
                seen.append([first, others])
            case str() as text:
                seen.append(double(len(text)))
            case None:
                seen.append(None)
    return seen


# -- loops ---------------------------------------------------------------------------------------------------------


@case()
def for_over_a_recorded_iterable():
    seen = []
    for n in get([1, 2, 3]):
        if n == 3:
            break
        seen.append(double(n))
    else:
        seen.append("not here")
    return seen


@case()
def for_over_pure_iterables():
    seen = []
    for i, (a, b) in enumerate(zip([1, 2], "ab", strict=True)):
        seen.append([i, double(a), b])
    for key in {"x": 1, "y": 2}:
        seen.append(get(key))
    for n in range(get(2)):
        seen.append(n)
    return seen


@case()
def nested_loops():
    return_ = []
    for a in range(2):
        for b in range(2):
            if get(a) == b:
                return_.append(double(a + b))
    return return_


@case()
def over_a_set():
    total = 0
    for n in {1, 2, 3}:
        total += n
    return get(total)


# -- calls ---------------------------------------------------------------------------------------------------------


@case()
def nested_calls():
    return double(double(get(1)) + get(2))


@case()
def arguments_of_every_kind():
    first = keyed(1, c=3)
    args, kwargs = [1, 2, 3, 4], {"c": 5, "d": 6}
    return [first, keyed(*args, **kwargs), keyed(get(7), c=get(8), e=get(9))]


@case()
def expression_statements():
    get("one")
    double(2)
    get("one")


@case()
def methods_of_globals_are_recorded():
    return client.ask(client.ask(1))


@case("double")
def chosen_functions(name):
    function = handlers[name]
    return [function(1), handlers["get"](2), (get if function(2) > 9 else double)(3)]


@case()
def partials_and_lambdas():
    add = lambda a, b: a + b  # noqa: E731
    three = functools.partial(get, 3)
    return [add(1, 2), three(), functools.reduce(operator.add, [1, 2, 3]), functools.reduce(add_up, [1, 2, 3])]


@case()
def nested_function():
    seen = []

    def note(n):
        seen.append(n)
        return n

    note(get(1))
    note(2)
    return seen


@case()
def nested_function_that_writes_a_local():
    count = 0

    def more():
        nonlocal count
        count += 1

    more()
    get("x")
    more()
    return count


@case()
def recursion_of_a_nested_function():
    def factorial(n):
        return 1 if n < 2 else n * factorial(n - 1)

    return get(factorial(5))


@case()
def methods_of_local_values():
    items = [3, 1, 2]
    items.append(get(4))
    items.sort()
    text = get("a,b").upper().split(",")
    order = load("abc")
    return [items, text, order.doubled(), {"a": 1}.get("a"), "-".join(text)]


@case()
def pure_builtins_and_modules():
    return [
        len([1]), max(1, 2), sorted([2, 1], key=lambda n: -n), sum(n for n in range(4)), abs(-1), round(2.5), str(1),
        math.sqrt(4), json.loads("[1]"), re.sub("a", "b", "aa"), list(map(str, [1])), Decimal("1.5") * 2,
        isinstance(1, int), divmod(7, 2), [*reversed([1, 2])], list(filter(None, [0, 1])), any([0, 1]), min([2, 1]),
    ]  # fmt: skip


@case()
def classes():
    point = Point(get(1), y=get(2))
    return [point.x, point.y, Order("x", get(3)).cents, Color("red").value, Counter("aab")["a"], Color.BLUE.name]


class Price(pydantic.BaseModel):
    cents: int


@case()
def models_and_other_constructors():
    price = Price.model_validate({"cents": get(5)})
    order = Order.parse("a:3")
    return [price.cents, price.model_copy(update={"cents": 1}).cents, order.cents, dict.fromkeys("a", 1)]


@case()
def returned_dataclasses():
    orders = [load(name) for name in ("a", "bb")]
    return [order.doubled() for order in orders]


@case()
def formatted_strings_subscripts_and_slices():
    items = [0, 1, 2, 3]
    return [
        f"{get(1)}-{double(2):03}",
        items[get(1)],
        items[get(1) : get(3)],
        {get("k"): get("v")},
        (get(1), *get([2])),
    ]


# -- comprehensions: one record ------------------------------------------------------------------------------------


@case()
def comprehensions():
    a = [double(n) for n in range(3)]
    b = {double(n) for n in (1, 1)}
    c = {str(n): get(n) for n in range(2)}
    d = [x * y for x in get([1, 2]) for y in (1, 2) if x != get(y)]
    return [a, sorted(b), c, d]


@case()
def pure_comprehensions():
    orders = [Order("a", 1), Order("b", 2)]
    return [[n * 2 for n in range(3)], [order.doubled() for order in orders], [str(n) for n in range(2)]]


@case()
def generators_that_stop_early():
    return [
        any(get(n) > 1 for n in range(9)),
        sum(double(n) for n in range(3)),
        next(n for n in range(9) if get(n) > 2),
    ]


@case()
def mapped_functions():
    return [list(map(double, [1, 2])), sorted([3, 1], key=get), max([1, 2], key=lambda n: get(-n)), [*map(str, [1])]]


@case()
def functions_of_a_comprehension():
    return [function(1) for function in (double, get)]


# -- failures ------------------------------------------------------------------------------------------------------


@case()
def caught():
    try:
        fail("one")
    except ValueError as error:
        return get(str(error))


@case()
def try_else_finally():
    seen = []
    for text in ("", "bad"):
        try:
            if text:
                fail(text)
        except (KeyError, ValueError):
            seen.append(get("except"))
        else:
            seen.append(get("else"))
        finally:
            seen.append(get("finally"))
    return seen


@case()
def fallback_value():
    try:
        value = fail("x") or 1
    except ValueError:
        value = double(4)
    return value


@case()
def nested_try_and_raise():
    try:
        try:
            fail("inner")
        except ValueError as error:
            raise KeyError(get("outer")) from error
    except KeyError as error:
        return [error.args[0], str(error.__cause__)]


@case()
def exception_groups():
    try:
        raise ExceptionGroup("many", [ValueError(get("a")), TypeError("b")])
    except* ValueError as group:
        seen = get([str(one) for one in group.exceptions])
    except* TypeError:
        get("type error")
    return seen


@case()
def suppressed():
    with contextlib.suppress(ValueError):
        fail("quietly")
        get("not reached")
    return get("after")


@case()
def return_in_finally_blocks():
    try:
        return get("result")
    finally:
        get("cleanup")


# -- closures, defaults, globals -----------------------------------------------------------------------------------


@case(1)
def defaults(a, b=SMALL, /, c: int = 4, *, d=(5,)):
    return get([a, b, c, list(d)])


@case(1, 2)
def variadic(*args, **kwargs):
    return get([list(args), kwargs])


def _make(start: int) -> Callable[[], Any]:
    def closure():
        return [double(start), client_of(start)]

    def client_of(n):
        return n

    return closure


case()(_make(4))


@case()
def imports_inside():
    import math as m
    from operator import add

    return [m.floor(2.5), add(1, 2), get(3)]


@case()
def a_class_inside():
    class Local:
        def __init__(self, n):
            self.n = n

    return Local(get(1)).n


# -- async ---------------------------------------------------------------------------------------------------------


@case()
async def awaited():
    a = await fetch(1)
    b = double(a)
    return [a, b, await fetch(b)]


@case()
async def gathered():
    a, b = await asyncio.gather(fetch(1), fetch(2))
    many = await asyncio.gather(*[fetch(n) for n in range(2)])
    more = await asyncio.gather(*(fetch(n) for n in range(2)))
    return [a, b, list(many), list(more)]


@case()
async def a_task_group():
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(fetch(n)) for n in range(3)]
    return [task.result() for task in tasks]


@case()
async def awaiting_comprehensions():
    async def numbers():
        yield 1
        yield 2

    return [[await fetch(n) for n in range(2)], [n async for n in numbers()], {n: await fetch(n) for n in (1,)}]


@case()
async def a_nested_coroutine():
    async def both(n):
        await asyncio.sleep(0)
        return n, n + 1

    a, b = await both(get(1))
    return [a, b]


@case()
async def timeouts():
    try:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(3600)
    except TimeoutError:
        return get("timeout")


# -- durable operations pass through (no plain counterpart) --------------------------------------------------------


@workflow(auto=True)
async def with_steps() -> list[Any]:
    a = await charge(1)
    b = await asyncio.gather(charge(2), charge(3))
    c = await traverse([4, 5], double)
    await sleep(0.001)
    return [a, list(b), c, [await charge(n) for n in (6,)]]


@workflow(auto=True)
def plain_with_steps() -> list[Any]:
    a = charge(1)
    b = asyncio.gather(charge(2), fetch(3))
    c = traverse([4, 5], double)
    sleep(0.001)
    return [a, list(b), c, [charge(n) for n in (6,)], [fetch(n) for n in (7,)]]
