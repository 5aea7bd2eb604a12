"""Where in the user's source a request was made: `orders.py:41`. For people; replay never depends on it."""

from __future__ import annotations

import asyncio
import os
import sys
from types import CodeType, FrameType

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
#: The demo's workflows live inside the package, but are written as a user's are.
_DEMO = os.path.join(_HERE, "cli", "demo")
_ASYNCIO = os.path.dirname(os.path.abspath(asyncio.__file__)) + os.sep

#: An instruction of some code -> what to show, or "" for code of perdure and asyncio, which is never the answer.
#: Kept because every step asks, and finding the line of an instruction means walking the code's line table.
_labels: dict[tuple[int, int], str] = {}
#: The codes whose addresses are in there: one that is kept cannot give its address to another.
_codes: dict[int, CodeType] = {}
#: What `id` is for, without the audit event that it raises: there is a hook (`engine.guarding`).
_address = object.__hash__
_LABELS_MAX = 10_000


def is_internal(file: str) -> bool:
    """Whether a file belongs to perdure or asyncio, whose lines are never what somebody looks for."""
    return file.startswith((_HERE, _ASYNCIO)) and not file.startswith(_DEMO)


def _label(frame: FrameType, key: tuple[int, int]) -> str:
    file = frame.f_code.co_filename
    label = "" if is_internal(file) or file.startswith("<frozen") else f"{os.path.basename(file)}:{frame.f_lineno}"
    if len(_labels) >= _LABELS_MAX:
        _labels.clear()
        _codes.clear()
    _labels[key] = label
    _codes[key[0]] = frame.f_code
    return label


def caller_site(depth: int = 1) -> str:
    """The nearest frame outside perdure and asyncio, from the caller's caller on."""
    frame = sys._getframe(depth + 1)
    return _labels.get((_address(frame.f_code), frame.f_lasti)) or search_site(frame)


def own_site(frame: FrameType) -> str:
    """What to show of this very frame; "" if it is none of the user's."""
    key = (_address(frame.f_code), frame.f_lasti)
    label = _labels.get(key)
    return _label(frame, key) if label is None else label


def search_site(frame: FrameType | None) -> str:
    """What to show of the nearest frame of the user's, from this one on."""
    while frame is not None:
        label = own_site(frame)
        if label:
            return label
        if frame.f_code is _boundary:  # beyond are the host's frames, which have nothing to do with the workflow
            return ""
        frame = frame.f_back
    return ""


_boundary: CodeType | None = None


def stop_at(code: CodeType) -> None:
    """Frames below this code are not the run's."""
    global _boundary
    _boundary = code
