"""Small random programs: functions of numbers and lists, with effects, loops, failures and every kind of expression.

The same seed gives the same program. What they call returns fresh values, as a recorded function does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from perdure.testing import Effects

done = Effects()


class Trouble(Exception):
    pass


def get(n: int) -> int:
    done.add(f"get {n}")
    return n


def double(n: int) -> int:
    done.add(f"double {n}")
    return 2 * n % 97


def pair(n: int) -> tuple[int, int]:
    done.add(f"pair {n}")
    return n, n + 1


def numbers(n: int) -> list[int]:
    done.add(f"numbers {n}")
    return list(range(n % 4))


def risky(n: int) -> int:
    done.add(f"risky {n}")
    if n % 3 == 0:
        raise Trouble(f"{n} is too much")
    return n + 1


async def fetch(n: int) -> int:
    done.add(f"fetch {n}")
    return (n + 7) % 97


HEADER = """\
import asyncio
import contextlib
from auto.grammar import Trouble, done, double, fetch, get, numbers, pair, risky


{kind} program_{seed}(a, b):
    c, d, xs, ys, table, fuel = 1, 2, [3, 4], [], {{0: 5}}, 6

    def local(n, m=get(b)):
        xs.append(n)
        return (n + m) % 97

    class Box:
        def __init__(self, n):
            self.n = n

        def more(self, m):
            self.n = (self.n + m) % 97
            return self.n

    box = Box(a)
    more = box.more
"""


class Program:
    """Writes one function. `text` is the source of its module."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._is_async = self._random.random() < 0.5
        self._lines: list[str] = []
        self._indent = 1
        self._loops = 0
        #: Inside a lambda or an expression that is recorded whole: no await, no :=, nothing that changes a variable.
        self._closed = 0
        #: Names that a comprehension gives.
        self._given: list[str] = []
        for _ in range(self._random.randint(4, 8)):
            self._statement(3)
        self._write("return [a, b, c, d, xs, ys, table, box.n]")
        kind = "async def" if self._is_async else "def"
        self.text = HEADER.format(kind=kind, seed=seed) + "\n".join(self._lines) + "\n"
        self.name = f"program_{seed}"

    # -- statements ------------------------------------------------------------------------------------------------

    def _write(self, line: str) -> None:
        self._lines.append("    " * self._indent + line)

    @contextmanager
    def _block(self, header: str) -> Iterator[None]:
        self._write(header)
        self._indent += 1
        yield
        self._indent -= 1

    def _body(self, depth: int) -> None:
        for _ in range(self._random.randint(1, 2)):
            self._statement(depth - 1)

    def _statement(self, depth: int) -> None:
        simple = [self._assign, self._assign, self._augment, self._unpack, self._change, self._call, self._delete]
        nested = [self._if, self._for, self._for, self._while, self._try, self._try, self._match, self._with]
        leaving: list[Callable[[int], None]] = [self._raise, self._assert, self._leave]
        if self._is_async:
            nested += [self._gather, self._async_for]
        choice = self._random.random()
        if depth > 0 and choice < 0.5:
            self._random.choice(nested)(depth)
        elif choice < 0.93:
            self._random.choice(simple)(2)
        else:
            self._random.choice(leaving)(1)

    def _variable(self) -> str:
        return self._random.choice("abcd")

    def _list_variable(self) -> str:
        return self._random.choice(["xs", "ys"])

    def _assign(self, depth: int) -> None:
        chosen = self._random.randrange(5)
        if chosen == 0:
            self._write(f"{self._list_variable()} = ({self._list(depth)})[:5]")
        elif chosen == 1:
            self._write(f"{self._variable()}: int = {self._number(depth)}")
        elif chosen == 2:
            self._write(f"table[{self._number(1)} % 3] = {self._variable()} = {self._number(depth)}")
        else:
            self._write(f"{self._variable()} = {self._number(depth)}")

    def _augment(self, depth: int) -> None:
        target = self._random.choice([self._variable(), "box.n", f"table[{self._number(1)} % 1]"])
        self._write(f"{target} {self._random.choice(['+=', '-=', '^='])} {self._number(depth)}")

    def _unpack(self, depth: int) -> None:
        self._write(
            self._random.choice(
                [
                    f"{self._variable()}, {self._variable()} = pair({self._number(depth)})",
                    f"{self._variable()}, *{self._list_variable()} = [{self._number(depth)}, *{self._list(1)}][:4]",
                    f"({self._variable()}, table[{self._number(1)} % 2]) = {self._number(1)}, {self._number(1)}",
                ]
            )
        )

    def _change(self, depth: int) -> None:
        name = self._list_variable()
        self._write(
            self._random.choice(
                [
                    f"{name}.append({self._number(depth)})",
                    f"{name}.insert({self._number(1)} % 3, {self._number(1)})",
                    f"{name}.extend({self._list(depth)}[:3])",
                    f"{self._variable()} = {name}.pop() if {name} else {self._number(1)}",
                    f"{self._variable()} = more({self._number(1)})",
                    f"{self._variable()} = local({self._number(1)})",
                    f"{name}.sort()",
                ]
            )
        )

    def _call(self, depth: int) -> None:
        self._write(f"{self._random.choice(['get', 'double', 'numbers', 'risky'])}({self._number(depth)})")

    def _delete(self, _depth: int) -> None:
        name = self._list_variable()
        self._write(f"del {name}[{self._number(1)} % 3 :]")

    def _if(self, depth: int) -> None:
        with self._block(f"if {self._condition(2)}:"):
            self._body(depth)
        if self._random.random() < 0.3:
            with self._block(f"elif {self._condition(2)}:"):
                self._body(depth)
        if self._random.random() < 0.5:
            with self._block("else:"):
                self._body(depth)

    def _loop_body(self, depth: int) -> None:
        self._loops += 1
        self._body(depth)
        if self._random.random() < 0.4:
            with self._block(f"if {self._condition(1)}:"):
                self._write(self._random.choice(["break", "continue"]))
        self._loops -= 1

    def _else(self, depth: int) -> None:
        if self._random.random() < 0.3:
            with self._block("else:"):
                self._body(depth)

    def _for(self, depth: int) -> None:
        target = self._random.choice(["a", "b", "c", "table[0]", f"table[{self._number(1)} % 2]"])
        source = self._random.choice([
            f"{self._list(2)}[:3]", "range(2)", f"set({self._list(1)}[:3])", f"sorted({self._list(1)}[:3], key=get)",
        ])  # fmt: skip
        with self._block(f"for {target} in {source}:"):
            self._loop_body(depth)
        self._else(depth)

    def _while(self, depth: int) -> None:
        condition = f"(fuel := fuel - 1) > 0 and {self._condition(2)}"
        with self._block(f"while {condition}:"):
            self._loop_body(depth)
        self._else(depth)

    def _try(self, depth: int) -> None:
        with self._block("try:"):
            self._body(depth)
            self._write(self._random.choice([f"c = risky({self._number(1)})", "risky(d)", f"d = {self._number(2)}"]))
        if self._random.random() < 0.8:
            star = "*" if self._random.random() < 0.15 else ""
            kinds = self._random.choice(["Trouble", "(ValueError, Trouble)", "Trouble", "Exception"])
            loops, self._loops = self._loops, 0 if star else self._loops  # Python allows no way out of except*
            with self._block(f"except{star} {kinds} as error:"):
                self._write("xs.append(len(str(error)))")
                self._body(min(depth, 1) if star else depth)
            self._loops = loops
            self._else(depth)
            if self._random.random() < 0.5:
                return
        with self._block("finally:"):
            loops, self._loops = self._loops, 0
            self._write(f"ys.append({self._number(1)})")
            self._loops = loops

    def _match(self, depth: int) -> None:
        subject = self._random.choice([self._number(2), f"[{self._number(1)}, *{self._list(1)}]", "pair(a)", "table"])
        with self._block(f"match {subject}:"):
            for pattern in (
                f"0 | 1 | {self._random.randint(2, 9)}",
                f"[0, *ys] if {self._condition(1)}",
                "[c, d]",
                "{0: c, **table}",
                f"int(d) if {self._condition(1)}",
            ):
                if self._random.random() < 0.6:
                    with self._block(f"case {pattern}:"):
                        self._body(min(depth, 1))
            with self._block("case _:"):
                self._body(min(depth, 1))

    def _with(self, depth: int) -> None:
        with self._block(f"with contextlib.suppress({self._random.choice(['Trouble', 'ValueError', 'KeyError'])}):"):
            self._body(depth)

    def _gather(self, _depth: int) -> None:
        self._write(
            self._random.choice(
                [
                    f"c, d = await asyncio.gather(fetch({self._number(1)}), fetch({self._number(0)}))",
                    f"ys = list(await asyncio.gather(*[fetch(n) for n in {self._list(1)}[:3]]))",
                    "async with asyncio.timeout(60): c = await fetch(c)",
                ]
            )
        )

    def _async_for(self, depth: int) -> None:
        with self._block("async def each(many):"):
            self._write("for n in many: yield n")
        with self._block(f"async for {self._variable()} in each({self._list(1)}[:2]):"):
            self._loop_body(depth)

    def _raise(self, _depth: int) -> None:
        cause = self._random.choice(["", " from None", f" from ValueError({self._number(1)})"])
        self._write(f"raise {self._random.choice(['Trouble', 'ValueError', 'KeyError'])}({self._number(1)}){cause}")

    def _assert(self, _depth: int) -> None:
        self._write(f"assert {self._condition(2)}, {self._number(1)}")

    def _leave(self, _depth: int) -> None:
        if self._loops:
            self._write(self._random.choice(["break", "continue"]))
        else:
            self._write(f"get({self._number(1)})")

    # -- expressions -----------------------------------------------------------------------------------------------

    @contextmanager
    def _inside(self, given: str = "") -> Iterator[None]:
        self._closed += 1
        self._given += [given] if given else []
        yield
        self._closed -= 1
        if given:
            self._given.pop()

    def _number(self, depth: int) -> str:
        leaves = [str(self._random.randint(0, 9)), self._variable(), *self._given, "box.n", "table.get(0, 1)"]
        if depth <= 0:
            return self._random.choice(leaves)

        def deeper() -> str:
            return self._number(depth - 1)

        made: list[Callable[[], str]] = [
            lambda: f"get({deeper()})",
            lambda: f"double({deeper()})",
            lambda: f"({deeper()} + {deeper()}) % 97",
            lambda: f"({deeper()} if {self._condition(depth - 1)} else {deeper()})",
            lambda: f"({deeper()} or {deeper()})",
            lambda: f"({deeper()} and {deeper()})",
            lambda: f"len({self._list(depth - 1)})",
            lambda: f"xs.count({deeper()})",
            lambda: self._formatted(deeper()),
            lambda: f"pair({deeper()})[{deeper()} % 2]",
            lambda: self._lambda(depth),
            lambda: self._total(depth),
            lambda: self._random.choice(leaves),
        ]
        if not self._closed:
            made += [lambda: f"({self._variable()} := {deeper()})", lambda: f"local({deeper()})"]
            made += [lambda: f"box.more({deeper()})", lambda: f"risky({deeper()})"]
            if self._is_async:
                made += [lambda: f"(await fetch({deeper()}))"] * 2
        return self._random.choice(made)()

    def _formatted(self, number: str) -> str:
        return number if "'" in number else f"int(f'{{{number}:>{{get(3)}}}}')"  # older Pythons nest no quotes

    def _lambda(self, depth: int) -> str:
        default = self._number(depth - 1)
        return f"(lambda n={default}: (n + 1) % 97)()"

    def _total(self, depth: int) -> str:
        source = f"{self._list(depth - 1)}[:3]"
        with self._inside("n"):
            return f"sum({self._number(depth - 1)} for n in {source})"

    def _condition(self, depth: int) -> str:
        if depth <= 0:
            return f"{self._number(0)} % 2"
        left, right = self._number(depth - 1), self._number(depth - 1)
        made: list[Callable[[], str]] = [
            lambda: f"{left} < {right}",
            lambda: f"0 <= {left} < {right}",
            lambda: f"not {self._condition(depth - 1)}",
            lambda: f"({self._condition(depth - 1)} and {self._condition(depth - 1)})",
            lambda: f"({self._condition(depth - 1)} or {self._condition(depth - 1)})",
            lambda: f"{left} in {self._list(depth - 1)}",
            lambda: f"{left} % 2",
            lambda: f"any(get(n) > 2 for n in {self._list(depth - 1)}[:3])",
        ]
        return self._random.choice(made)()

    def _list(self, depth: int) -> str:
        if depth <= 0:
            return self._random.choice(["xs", "ys", "[1, 2]"])
        first, second, source = self._number(depth - 1), self._number(depth - 1), self._list(depth - 1)
        with self._inside("n"):
            element = self._number(depth - 1)
            condition = self._condition(depth - 1)
        made = [
            f"[{first}, {second}]",
            f"numbers({first})",
            f"[*{source}, {first}]",
            f"[{element} for n in {source}[:3]]",
            f"[{element} for n in {source}[:3] if {condition}]",
            f"[n for n in {source} if n != 3]",
            f"sorted({source}[:3], key=double)",
            f"list(map(double, {source}[:3]))",
            f"list({{n: {element} for n in {source}[:3]}}.values())",
            f"sorted({{{first}, {second}}})",
            f"[*{{{first}, {second}}}]",
        ]
        if self._is_async and not self._closed:
            made += [f"[await fetch(n) for n in {source}[:2]]"] * 2
        return f"({self._random.choice(made)})"
