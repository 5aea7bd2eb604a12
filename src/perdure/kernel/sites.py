"""Where in the user's source a request was made: `orders.py:41`. For people; replay never depends on it."""

from __future__ import annotations

import asyncio
import os
import sys
from types import FrameType

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_ASYNCIO = os.path.dirname(os.path.abspath(asyncio.__file__)) + os.sep

#: file name -> what to show, or "" for files of perdure and asyncio, which are never the answer
_labels: dict[str, str] = {}


def _label(file: str) -> str:
    internal = file.startswith((_HERE, _ASYNCIO)) or file.startswith("<frozen")
    label = "" if internal else os.path.basename(file)
    _labels[file] = label
    return label


def caller_site(depth: int = 1) -> str:
    """The nearest frame outside perdure and asyncio, from the caller's caller on."""
    frame: FrameType | None = sys._getframe(depth + 1)
    while frame is not None:
        file = frame.f_code.co_filename
        label = _labels.get(file)
        if label is None:
            label = _label(file)
        if label:
            return f"{label}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
