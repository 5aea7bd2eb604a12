"""Every error has a stable code of its own, drawn in the tree at the top of `errors.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from perdure import errors
from perdure.errors import PerdureError


def _subclasses(cls: type[PerdureError]) -> Iterator[type[PerdureError]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


CLASSES = sorted(
    (cls for cls in _subclasses(PerdureError) if cls.__module__.startswith("perdure")), key=lambda c: c.__name__
)
#: Classes that only group others: nobody raises them, except where a message is enough.
GROUPS = {cls for cls in CLASSES if cls.__subclasses__() and "code" not in vars(cls)}
DRAWN = dict(re.findall(r"(\w+)\s+(P-\d{3})", errors.__doc__ or ""))


@pytest.mark.parametrize("cls", [c for c in CLASSES if c not in GROUPS], ids=lambda c: c.__name__)
def test_an_error_has_its_code_in_the_tree(cls: type[PerdureError]) -> None:
    """Stable code last, the tree at the top of the module."""
    assert "code" in vars(cls), "it shares the code of its base"
    assert DRAWN.get(cls.__name__) == cls.code


def test_codes_are_unique() -> None:
    codes = [cls.code for cls in CLASSES if cls not in GROUPS]
    assert len(codes) == len(set(codes))


def test_the_tree_draws_nothing_that_does_not_exist() -> None:
    assert set(DRAWN) <= {cls.__name__ for cls in CLASSES}


def test_the_code_comes_last_in_the_message() -> None:
    """What happened, then the code."""
    assert str(errors.RunNotFound("no run has the id 'x'.")) == "no run has the id 'x'. [P-001]"
    assert errors.RunNotFound("no run has the id 'x'.").message == "no run has the id 'x'."
