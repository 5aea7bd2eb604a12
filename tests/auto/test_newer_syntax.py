"""Syntax that came with newer Pythons: kept as text, so that the older ones can read this file."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from auto.comparing import compare
from auto.corpus import done
from perdure import workflow

IMPORTS = "from auto.corpus import double, fetch, get\n"

#: The first Python that can read it, and a function called `flow`.
SOURCES: dict[str, tuple[tuple[int, int], str]] = {
    "type parameters": ((3, 12), """
        def flow[T, *Ts, **P](n=1):
            made: list[T] = [get(n)]
            return [made, T.__name__, Ts.__name__]
    """),
    "nested generic functions": ((3, 12), """
        def flow():
            def first[T](items: list[T], n=get(0)) -> T:
                return items[n]
            return first([double(1)])
    """),
    "type aliases": ((3, 12), """
        def flow():
            type Pair = tuple[get(1), int]
            return [Pair.__name__, get(2)]
    """),
    "generic classes": ((3, 12), """
        def flow():
            class Box[T]:
                def __init__(self, n: T):
                    self.n = n
            return Box[int](get(1)).n
    """),
    "quotes inside quotes": ((3, 12), """
        def flow():
            names = {"a": 1}
            return f"{get(names["a"])} {f"{double(2)!r:>{get(4)}}"} {
                get("x")  # why
            }"
    """),
    "comprehensions that see the class and the loop": ((3, 12), """
        def flow():
            n = get(5)
            rows = [[get(n) for n in range(m)] for m in get([1, 2])]
            return [rows, n, [(lambda: n)() for n in range(2)], sorted(locals())]
    """),
    "awaiting comprehensions inside": ((3, 12), """
        async def flow():
            return [[await fetch(n) for n in range(m)] for m in get([1, 2])]
    """),
    "defaults of type parameters": ((3, 13), """
        def flow[T = int]():
            return [get(1), str(T.__default__)]
    """),
    "locals that are written back": ((3, 13), """
        def flow():
            n = get(1)
            seen = locals()
            seen['n'] = 2
            return [n, sorted(seen)]
    """),
    "handlers without parentheses": ((3, 14), """
        def flow():
            try:
                return get([])[1]
            except IndexError, KeyError:
                return get('caught')
    """),
}  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
def test_newer_syntax_does_the_same_as_in_plain_python(name: str, tmp_path: Path) -> None:
    """Auto mode keeps up with the syntax of the Python that it runs on. CONFORMANCE A1, A2."""
    since, source = SOURCES[name]
    if sys.version_info < since:
        pytest.skip(f"this is syntax of Python {since[0]}.{since[1]}")
    file = tmp_path / "newer.py"
    file.write_text(IMPORTS + textwrap.dedent(source))
    names: dict[str, Any] = {"__name__": "newer"}
    exec(compile(file.read_text(), str(file), "exec"), names)
    flow = workflow(auto=True, max_attempts=1, name=name.replace(" ", "-"))(names["flow"])
    assert not compare(names["flow"], flow, (), done).raised
