"""The corners of the language: more small functions for the comparison with plain Python (see `corpus`)."""

# ruff: noqa: B008, B023, C416, F821, PIE800, UP031 - what a linter would write otherwise is what has to work here
from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from auto.corpus import Color, Order, Point, add_up, case, charge, client, done, double, fail, fetch, get, load
from perdure import options


class Refused(Exception):
    """Has more than a message."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text, code)
        self.code = code


def refuse(code: int) -> None:
    done.add(f"refuse {code}")
    raise Refused("no", code)


@dataclass
class Total:
    cents: int = 0

    def add(self, cents: int) -> int:
        self.cents += cents
        return self.cents


@dataclass(frozen=True)
class Tag:
    name: str


class Quiet:
    """A context manager of a class: entered and left in place."""

    def __init__(self, seen: list[Any]) -> None:
        self._seen = seen

    def __enter__(self) -> list[Any]:
        self._seen.append("in")
        return self._seen

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        self._seen.append(None if kind is None else kind.__name__)
        return kind is ValueError


# -- assignments ---------------------------------------------------------------------------------------------------


@case()
def starred_targets_and_displays():
    a, *b = get([1, 2, 3])
    *c, d = (*get((4, 5)), get(6))
    [e, (f, *_)] = get(7), get([8, 9])
    return [a, b, c, d, e, f, [*get([1]), *get((2,))], {*get([3])}]


@case()
def targets_that_call():
    table, items = {}, [0, 0, 0]
    table[get("a")] = table[get("b")] = get(1)
    items[get(1)]: int = get(5)
    items[get(0) : get(1)] = get([8, 9])
    (items[get(2)], table[get("c")]) = get((3, 4))
    return [table, items]


@case()
def augmented_targets_are_read_first():
    total, rows = Total(1), [[1]]
    total.cents += double(2)
    rows[get(0)] += [get(2)]
    rows[0][get(1)] *= get(10)
    text = "a"
    text += get("b") + str(get(3))
    return [total.cents, rows, text]


@case()
def loop_targets_that_call():
    items = [0, 0]
    for items[get(1)] in [3, 4]:
        get("in the loop")
    return items


@case()
def deletions():
    items, table = list(range(6)), {"a": 1, "b": 2}
    del items[get(0)], table[get("a")]
    del items[get(1) : get(3)]
    return [items, table]


@case()
def walrus_in_conditions_and_arguments():
    n, seen = 0, []
    while (n := get(n + 1)) < 3:
        seen.append(n)
    seen.append(double(m := get(5)))
    return [*seen, m, (k := get(6)) + k]


@case()
def dictionaries_of_dictionaries():
    return {**get({"a": 1}), "b": get(2), **{"c": get(3)}, get("d"): {get("e"): get(4)}}


@case()
def formats_with_nested_fields():
    width = 6
    return [
        f"{get(3)!r:>{get(width)}}|{get(1.5):.{get(3)}f}|{get('x')=}",
        "%s-%d" % (get("a"), get(2)),
        f"{{{get(1)}}}",
    ]


@case()
def names_are_the_functions_own():
    number = get(1)
    return [sorted(locals()), sorted(vars()), sorted(dir()), number]


# -- conditions ----------------------------------------------------------------------------------------------------


@case()
def every_kind_of_pattern():
    seen: list[Any] = []
    subjects = [
        0, None, True, "text", -1.5, Color.RED, [1, 2], (1, 2, 3), [], {"kind": "a"}, {"kind": "b", "more": 1}, {},
        Order("x", 5), Point(1, 2), [Order("y", 6), {"deep": [7]}], 4, b"bytes", 99,
    ]  # fmt: skip
    for subject in subjects:
        match subject:
            case None | True:
                seen.append(get("a constant"))
            case 0:
                seen.append(get("a literal"))
            case Color.RED:
                seen.append(get("a value"))
            case "text" | b"bytes" as chosen:
                seen.append(get(len(chosen)))
            case -1.5:
                seen.append(get("a signed number"))
            case []:
                seen.append(get("an empty sequence"))
            case Point(x, y):
                seen.append(get(x + y))
            case [Order(id=name), {"deep": [depth]}]:
                seen.append(get([name, depth]))
            case [first, second]:
                seen.append(get([first, second]))
            case [first, *others]:
                seen.append(get([first, others]))
            case {"kind": "a", **rest}:
                seen.append(get(rest))
            case {"kind": kind, "more": int(more)}:
                seen.append(get([kind, more]))
            case Order(cents=cents) if get(cents) > 4:
                seen.append(double(cents))
            case int(number) if get(number) == 4:
                seen.append(get("a guard"))
            case int():
                seen.append(get("a class"))
            case _:
                seen.append(get("a wildcard"))
    return seen


@case()
def conditions_in_each_other():
    chosen = get("a") if get(0) else get("b") if get(1) else get("c")
    if not (get(1) and get(0)) or get("never"):
        chosen += "!"
    return [chosen, get(1) if chosen else None, (get(0) or get("")) or get([]), get(1) == get(1) != get(2) in [2]]


@case()
def comparisons_stop_early():
    return [get(1) < get(0) < get("never"), get(1) in [get(1)], get(None) is None, get(2) > 1 > get(0)]


@case()
def uncaught_assertion():
    assert get(1) == 2, f"got {get('a message')}"


# -- loops ---------------------------------------------------------------------------------------------------------


@case()
def loops_left_through_finally():
    seen = []
    for n in range(4):
        try:
            if get(n) == 1:
                continue
            if get(n) == 3:
                break
            seen.append(n)
        finally:
            seen.append(double(n))
    else:
        seen.append("never")
    return seen


@case()
def breaking_out_of_nested_loops():
    seen = []
    for a in range(3):
        for b in get([1, 2]):
            if get(a) == b:
                break
            seen.append([a, b])
        else:
            seen.append(get("all"))
            continue
        while True:
            if get(a):
                break
    return seen


@case()
def loops_over_what_changes():
    waiting, seen = [3], []
    while waiting:
        n = waiting.pop()
        seen.append(get(n))
        waiting.extend(range(1, n))
    for key, value in {"a": 1, "b": 2}.items():
        seen.append(get([key, value]))
    for n in reversed(seen[:2]):
        seen.append(double(n))
    return seen


@case()
def sets_in_every_place():
    numbers, left, taken = {3, 1, 2}, {1, 2}, []
    while left:
        taken.append(left.pop())
    a, b, c = numbers
    seen = [*numbers]
    seen.extend(numbers)
    return [
        sorted(taken), [a, b, c] == list(numbers) == seen[:3], [n for n in numbers] == [get(n) for n in numbers],
        {n: get(n) for n in numbers}, next(iter(numbers)) in numbers,
        [tag.name for tag in sorted({Tag("a"), Tag("b")}, key=lambda tag: tag.name)],
        sorted(tag.name for tag in {Tag("x"), Tag("y")}), sum(numbers), max(numbers, key=lambda n: -n), get(numbers),
    ]  # fmt: skip


@case()
def a_changed_element_of_a_set_is_the_one_in_the_set():
    class Node:
        def __init__(self, name):
            self.name, self.seen = name, 0

    first, second = Node("a"), Node("b")
    for name in {"a", "b"}:
        (first if name == "a" else second).seen += len(get(name))
    return [first.seen, second.seen]


# -- nested functions, classes and methods --------------------------------------------------------------------------


@case()
def defaults_of_nested_functions():
    def both(a, b=get(1), *, c=get(2)):
        return [a, b, c]

    later = lambda n=get(3), *, m=double(4): n + m  # noqa: E731
    return [both(0), both(0, c=5), later(), later(1)]


@case()
def nested_functions_under_decorators():
    seen = []

    def noted(function):
        @functools.wraps(function)
        def call(*args):
            seen.append(args)
            return function(*args)

        return call

    @noted
    def add(a, b):
        return a + b

    @functools.lru_cache
    def once(n):
        seen.append(n)
        return n

    @contextmanager
    def entered(n):
        seen.append(["in", n])
        yield n
        seen.append(["out", n])

    with entered(get(1)) as n, entered(get(2)) as m:
        seen.append(get(add(n, m)))
    return [seen, once(1), once(1), once(get(2))]


@case()
def nested_classes_that_are_called():
    class Counting:
        start = 10

        def __init__(self, n):
            self.n = n

        def __call__(self, more):
            self.n += more
            return self.n

        @classmethod
        def from_text(cls, text):
            return cls(cls.start + int(text))

        def plus(self, more):
            return self(more)

    counting = Counting(get(1))
    plus = counting.plus
    return [counting(get(2)), plus(3), counting.plus(4), counting.n, Counting.from_text(get("5")).n]


@case()
def methods_called_through_a_variable():
    total, items = Total(), []
    add, push = total.add, items.append
    add(get(1))
    push(add(2))
    table = {"add": total.add, "get": get}
    table["add"](3)
    functools.partial(total.add, get(4))()
    return [total.cents, items, table["get"](5), client.ask(6)]


@case()
def closures_over_loop_variables():
    functions = []
    for n in get([1, 2]):
        functions.append(lambda m=n: m + n)
    return [function() for function in functions] + [function(get(10)) for function in functions]


@case()
def generators_of_the_workflow():
    def squares(n):
        for i in range(n):
            yield i * i

    seen = []
    for n in squares(get(3)):
        seen.append(get(n))
    return [seen, list(squares(2)), sum(squares(3)), [double(n) for n in squares(2)]]


@case(4)
def recursion(n):
    return 1 if get(n) < 2 else n * math.prod([recursion_of(n - 1)])


def recursion_of(n: int) -> int:
    return 1 if n < 2 else n * recursion_of(n - 1)


@case()
def calls_with_options():
    first = options(double, max_attempts=2)(3)
    try:
        options(fail, max_attempts=1)("with options")
    except ValueError as error:
        return [first, options(get, timeout="10 s")(str(error))]


@case()
def functions_given_to_functions():
    return [
        functools.reduce(add_up, [1, 2, 3], get(4)), list(map(lambda a, b: a + get(b), [1, 2], [3, 4])),
        sorted(["bb", "a"], key=len), list(filter(get, [0, 1, 2])), min([3, 1], key=get),
        [*zip([1], get([2]), strict=True)], dict(zip("ab", map(double, [1, 2]), strict=True)),
    ]  # fmt: skip


@case()
def comprehensions_in_each_other():
    rows = [[get(n * m) for n in range(2)] for m in get([1, 2])]
    return [rows, [n for row in rows for n in row if double(n)], {str(n): [m for m in range(n)] for n in get([1, 2])}]


def choose(name: str) -> Callable[[int], int]:
    done.add(f"choose {name}")
    return double if name == "double" else get


@case()
def functions_that_are_chosen_again_and_again():
    return [[choose("double")(n) for n in range(2)], sum(choose("get")(n) for n in [3])]


@case()
def sets_that_are_not_read_stay_sets():
    return [max([], key=get, default={1, 2}), sorted([{1, 2}, set()], key=lambda one: get(len(one)))]


@case()
def joined_generators():
    names = get(["a", "b"])
    return [", ".join(get(name) for name in names), "-".join(name for name in names), b"".join(b"x" for _ in names)]


@case()
def what_a_comprehension_is_about():
    pairs, each = zip([1, 2], [3, 4], strict=True), iter(get([5, 6]))
    return [
        [get(a + b) for a, b in pairs], sum(get(n) for n in each), sorted((found := get([2, 1])), key=get), found,
        [double(n) for n in enumerate_all([7, 8])], max(map(double, get([1, 3]))),
    ]  # fmt: skip


def enumerate_all(items: list[int]) -> Iterator[int]:
    done.add("enumerate")
    yield from items


@case()
def all_and_any_stop_early():
    return [all(get(n) < 1 for n in range(5)), any(n == get(1) for n in range(5)), all([]), any(map(get, [0, 2, 3]))]


# -- failures ------------------------------------------------------------------------------------------------------


@case()
def uncaught():
    get("before")
    fail("uncaught")


@case()
def raised_from_another():
    raise KeyError(get("a")) from ValueError(get("b"))


@case()
def raised_again():
    try:
        fail("again")
    except ValueError:
        get("seen")
        raise


@case()
def raised_in_finally():
    try:
        fail("first")
    finally:
        raise LookupError(get("second"))


@case()
def a_group_of_failures():
    raise ExceptionGroup("many", [ValueError(get("a")), TypeError("b")])


@case()
def a_group_split_by_two_handlers():
    seen = []
    try:
        try:
            raise ExceptionGroup("many", [ValueError(get("a")), TypeError(get("b")), KeyError("c")])
        except* (ValueError, TypeError) as group:
            seen.extend([get(str(one)) for one in group.exceptions])
    except* KeyError as group:
        seen.append(get(str(group.exceptions[0])))
    else:
        seen.append("never")
    finally:
        seen.append(get("finally"))
    return seen


@case()
def exceptions_with_attributes():
    try:
        refuse(get(42))
    except Refused as error:
        return [error.code, list(error.args), type(error).__name__, error.__context__ is None]


@case()
def a_deleted_name():
    number = get(1)
    del number
    return number


@case()
def a_failing_expression():
    items = get([1])
    return items[double(4)]


@case()
async def an_exhausted_iterator():
    get("before")
    return next(iter([]))


@case()
def an_exhausted_iterator_that_is_caught():
    try:
        return next(iter(get([])))
    except StopIteration:
        return get("caught")


@case()
def the_handlers_name_is_unbound_afterwards():
    try:
        fail("x")
    except ValueError as error:
        text = str(error)
    try:
        return error
    except UnboundLocalError:
        return get(text)


@case()
def a_result_replaced_in_finally():
    def inner():
        try:
            return 1
        finally:
            seen.append("inner")

    seen = []
    try:
        seen.append(get(inner()))
        return seen
    finally:
        seen.append(get("cleanup"))


@case()
def context_managers_of_a_class():
    seen = []
    with Quiet(seen) as same, Quiet(seen):
        same.append(get(1))
        fail("suppressed")
    with Quiet([]) as other:
        other.append(get(2))
        return [seen, other]


@case()
def a_context_manager_that_lets_it_pass():
    with Quiet([]):
        refuse(1)


# -- async ---------------------------------------------------------------------------------------------------------


@case()
async def async_loops_and_contexts():
    seen = []

    async def pages(n: int) -> AsyncIterator[int]:
        for i in range(n):
            await asyncio.sleep(0)
            yield i

    @asynccontextmanager
    async def opened(n: int) -> AsyncIterator[int]:
        seen.append(["in", n])
        try:
            yield n
        finally:
            await asyncio.sleep(0)
            seen.append(["out", n])

    async with opened(get(1)) as a, opened(2):
        async for n in pages(get(3)):
            if n == 1:
                continue
            seen.append(await fetch(n + a))
        else:
            seen.append(get("else"))
    return [seen, [double(n) async for n in pages(2)] if get(0) else [n async for n in pages(2) if n]]


@case()
async def methods_of_what_a_comprehension_goes_through():
    totals = [Total(1), Total(2)]
    add = totals[0].add
    first = totals[0]
    fetched = [await fetch(total.add(1)) for total in totals] + [await fetch(add(n)) for n in (1, 2)]
    return [
        first.cents,
        fetched,
        [total.cents for total in totals],
        {n: await fetch(n) for n in (total.cents for total in totals)},
    ]


async def fetch_all(n: int) -> list[int]:
    done.add(f"fetch all {n}")
    return list(range(n))


def list_all(n: int) -> list[int]:
    done.add(f"list all {n}")
    return list(range(n))


@case()
async def comprehensions_about_something_awaited():
    return [
        [get(n) for n in await fetch_all(2)], sum(double(n) for n in await fetch_all(3)),
        sorted(await fetch_all(get(3)), key=lambda n: -get(n)), [n + 1 for n in await fetch_all(2)],
        sorted([await fetch(n) for n in (2, 1)], key=get), any(get(n) for n in [await fetch(1), get(0)]),
        list(map(double, await fetch_all(2))), [m for n in await fetch_all(3) for m in range(get(n))],
    ]  # fmt: skip


@case()
async def coroutines_about_something_recorded():
    each = await asyncio.gather(*[fetch(n) for n in list_all(2)])
    more = await asyncio.gather(*(fetch(n) for n in sorted(list_all(2), key=double)))
    mapped = await asyncio.gather(*map(fetch, list_all(2)))
    return [list(each), list(more), list(mapped), [await fetch(n) for n in list_all(2)]]


@case()
async def sets_of_tasks():
    tasks = [asyncio.create_task(fetch(n)) for n in range(3)]
    finished, pending = await asyncio.wait(tasks)
    seen = []
    for task in finished:
        seen.append(task.result())
    again = await asyncio.gather(*finished)
    return [sorted(seen), len(pending), sorted(task.result() for task in finished), sorted(again)]


@case()
async def awaited_in_every_place():
    total = await fetch(1) + await fetch(2)
    if await fetch(0) > 5 and not await fetch(-100):
        total += await fetch(3)
    text = f"{await fetch(4)}"
    match await fetch(5):
        case 105 if await fetch(6):
            return [total, text, (await fetch(7)) if total else None, get(await fetch(double(1)))]


@case()
async def coroutines_kept_for_later():
    first, second = fetch(1), fetch(2)
    return [await second, await first, await fetch(get(3))]


@case()
async def an_async_failure():
    async def fails() -> None:
        await asyncio.sleep(0)
        raise Refused(get_text(), 7)

    def get_text() -> str:
        return "no"

    try:
        await asyncio.gather(fails(), fetch(1))
    except Refused as error:
        return [error.code, await fetch(2)]


@case()
async def a_step_outside_and_inside():
    return [await charge(1), await charge(double(2))]


@case()
def a_parameter_called_as_the_runtimes_are(callee: int = 1, self: int = 2) -> Any:
    return [get(callee), keywords(callee=3, self=4, args=5)]


def keywords(**given: int) -> dict[str, int]:
    done.add(f"keywords {sorted(given)}")
    return given


@case()
def subscripts_of_results():
    return [get([1, 2])[get(0)], get({"a": [3]})["a"][0], load("abc").id.upper(), (get("x") * 2)[:1], get([5]).pop()]


def _made(names: Callable[[], Iterator[str]]) -> Callable[[], Any]:
    def over_a_closure():
        return [get(name) for name in names()]

    return over_a_closure


case()(_made(lambda: iter(["a", "b"])))
