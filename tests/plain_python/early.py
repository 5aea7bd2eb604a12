"""A library that took asyncio's classes by name, and was imported before perdure: it has the originals."""

from __future__ import annotations

from asyncio.futures import Future
from asyncio.tasks import Task
from typing import Any


def make_future() -> Future[Any]:
    return Future()


def make_task(coroutine: Any) -> Task[Any]:
    return Task(coroutine)
