"""Looking into a store in memory, also where nothing can be awaited: it answers without ever waiting."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from perdure.kernel.journal import Row
from perdure.store.memory import MemoryStore
from perdure.store.model import Loaded, RunFilter

T = TypeVar("T")


class StoredRun(NamedTuple):
    """A run as it is stored, and the journals of all its generations."""

    loaded: Loaded
    journals: Mapping[int, Sequence[Row]]


def answer_of(call: Coroutine[Any, Any, T]) -> T:
    """What a call of a store in memory answers."""
    try:
        call.send(None)
    except StopIteration as answered:
        return answered.value  # type: ignore[no-any-return]
    raise AssertionError("a store in memory waits for nothing")


def runs_of(memory: MemoryStore) -> Iterator[StoredRun]:
    """Every run, in the order in which they were created."""
    rows = answer_of(memory.list_runs(RunFilter(), limit=sum(answer_of(memory.count_runs()).values())))
    for row in reversed(rows):
        (loaded,) = answer_of(memory.load([row.key]))
        numbers = range(1, row.generation + 1)
        yield StoredRun(loaded, {number: answer_of(memory.journal(row.key, number)) for number in numbers})


def memory_below(store: Any) -> MemoryStore | None:
    """The store in memory that others wrap (`wrapped`)."""
    while not isinstance(store, MemoryStore) and hasattr(store, "wrapped"):
        store = store.wrapped
    return store if isinstance(store, MemoryStore) else None
