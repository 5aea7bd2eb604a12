"""Answers of the store: what a call ended with, and whether the fault is of the store or of what it was given."""

from __future__ import annotations

import asyncio
from asyncio.futures import Future
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from perdure.errors import CorruptRecord, StoreError, StoreUnavailable

A = TypeVar("A")
T = TypeVar("T")


def asked(call: Callable[[A], Awaitable[T]], argument: A) -> asyncio.Future[T]:
    """The answer of the store, or the error that it raised. Whether at the call or later makes no difference to the
    caller (tests/lifecycle/test_store_raises_at_the_call.py)."""
    try:
        answer = call(argument)
        return answer if isinstance(answer, Future) else asyncio.ensure_future(answer)
    except Exception as error:
        failed: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        failed.set_exception(error)
        return failed


def error_of(done: asyncio.Future[Any]) -> BaseException | None:
    """What a call of the store ended with, if not with an answer."""
    if done.cancelled():  # by a host that cancels all tasks there are: what came of it is not known
        return StoreUnavailable("the call of the store was cancelled before its answer came.")
    return done.exception()


def is_outage(error: BaseException) -> bool:
    """Whether the fault is of the store as a whole, to be waited for, and not of what it was given."""
    return isinstance(error, StoreError) and not isinstance(error, CorruptRecord)
