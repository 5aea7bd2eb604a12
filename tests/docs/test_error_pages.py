"""What the pages about errors say is compared with the classes: the drawn tree, the codes, the stars."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import perdure
from perdure import errors
from perdure.errors import PerdureError

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"
CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, PerdureError) and not name.startswith("_")
}
_NODE = re.compile(r"^    (?P<branch>[│├└─ ]*)(?P<name>[A-Z]\w+)(?:\s+(?P<code>P-\d{3}))?(?:\s|$)")


def drawn() -> dict[str, tuple[str | None, str | None]]:
    """Name -> its parent in the drawing, and its code."""
    text = (errors.__doc__ or "").partition("Control signals")[0]
    found: dict[str, tuple[str | None, str | None]] = {}
    path: list[str] = []
    for line in text.split("\n"):
        if node := _NODE.match(line):
            depth = len(node["branch"]) // 4
            path = [*path[:depth], node["name"]]
            found[node["name"]] = (path[depth - 1] if depth else None, node["code"])
    return found


def parent_of(cls: type[PerdureError]) -> str | None:
    """The nearest public class above, as far as the drawing goes."""
    above = (one.__name__ for one in cls.__mro__[1:] if one.__name__ in CLASSES)
    return next(above, None)


def test_the_drawn_tree_is_the_tree_of_the_classes() -> None:
    tree = drawn()
    assert len(tree) > 50
    assert {name: parent for name, (parent, _) in tree.items()} == {name: parent_of(CLASSES[name]) for name in tree}
    signals = (errors.__doc__ or "").partition("Control signals")[2]
    assert set(CLASSES) - set(tree) == set(re.findall(r"^    (\w+) ", signals, re.MULTILINE))


def test_the_drawn_codes_are_those_of_the_classes() -> None:
    coded = {name: code for name, (_, code) in drawn().items() if code}
    assert coded == {name: CLASSES[name].code for name in coded}


def test_a_star_marks_exactly_what_is_importable_from_perdure() -> None:
    rows = re.findall(r"^\| (P-\d{3}) \| `(\w+)`(\*?)", PAGE.read_text(), re.MULTILINE)
    assert len(rows) > 50
    starred = {name for _, name, star in rows if star}
    assert starred == {name for _, name, _ in rows if hasattr(perdure, name)}
    assert {name: code for code, name, _ in rows} == {name: CLASSES[name].code for _, name, _ in rows}
