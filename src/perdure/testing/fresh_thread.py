"""Calling something where no event loop runs, from anywhere."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def in_fresh_thread(call: Callable[[], T]) -> T:
    """Call where no event loop runs: here, or in a thread of its own if this is an async test."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    outcome: list[tuple[T | None, BaseException | None]] = []

    def run() -> None:
        try:
            outcome.append((call(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run, name="perdure-crash-everywhere")
    thread.start()
    thread.join()
    result, error = outcome[0]
    if error is not None:
        raise error
    return result  # type: ignore[return-value]
