"""Verbs about a change of code: `patched`, `removed`, `version`."""

from __future__ import annotations

from typing import Any, Literal, get_args

from perdure.errors import BadArgument
from perdure.given import shown, text_of
from perdure.kernel import marks
from perdure.kernel.verbs.checks import check_text
from perdure.kernel.verbs.current import current_run
from perdure.kernel.versions import Version


def patched(patch_id: str) -> bool:
    """Guard a change: True for runs that get here for the first time, False for those that were already past it.

    >>> if patched("reserve-first"):
    ...     await reserve_stock(order)
    """
    name = text_of(patch_id)
    if not name or "/" in name:
        raise BadArgument(f"patched() needs a short name without '/', not {shown(patch_id)}.")
    return marks.patched(current_run("patched"), check_text(name, "the name of a patch"))


OperationKind = Literal["step", "timer", "receive", "child", "send"]


def removed(name: str, kind: OperationKind = "step") -> None:
    """Say that an operation which stood here is gone. Runs that have it in their journal pass over it.

    It takes the place of the call, name and count included, so that what follows keeps its location. A pending step,
    sleep or receive is given up; a child that was started runs on by itself.

    >>> removed("notify")  # was: await notify(order)
    """
    exact = text_of(name)
    if not exact or "/" in exact or "#" in exact:
        raise BadArgument(
            "removed() takes the name of the operation as its call had it, such as 'charge' or 'sleep', not "
            f"{shown(name)}. "
            "Put it where the call stood; paths and numbers follow from that."
        )
    known: Any = text_of(kind)
    if known not in get_args(OperationKind):
        raise BadArgument(f"the kind of a removed operation is one of {get_args(OperationKind)}, not {shown(kind)}.")
    marks.removed(current_run("removed"), check_text(exact, "the name of an operation"), known)


def version() -> Version:
    """The version of the workflow that this run is pinned to; another one only after `continue_as`.

    A text that is compared as a version: `if version() >= "2.10":` is false for 2.9.
    """
    return Version(current_run("version").spec.version)
