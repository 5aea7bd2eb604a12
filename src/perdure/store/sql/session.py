"""What the functions of this package need of a connection: statements by name, and locks.

A store has its own texts of the statements (`queries.sql`) and its own `Session`. Parameters are positional and the
same for all stores; so are the columns that come back (`rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from perdure.store.model import RunKey
from perdure.store.sql.rows import Values

T = TypeVar("T")


class Session(Protocol):
    """A transaction, from the first statement to the last of one call of the store."""

    #: The statements of `queries.sql`, by name.
    sql: ClassVar[Mapping[str, str]]
    #: A parameter that comes after every text, for the end of a range that has none.
    after_all_text: ClassVar[bytes | None]

    # -- statements ------------------------------------------------------------------------------------------

    @property
    def execute(self) -> Callable[..., object]:
        """Carry out a statement, given its text and its parameters. A property, so that it may be the driver's own."""
        ...

    @property
    def executemany(self) -> Callable[..., object]:
        """The same for each of many parameters."""
        ...

    def change(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Execute, and say how many rows it changed."""
        ...

    def change_many(self, sql: str, parameters: Iterable[Sequence[Any]]) -> int:
        """The same for many: how many rows in all."""
        ...

    def insert(self, sql: str, parameters: Sequence[Any]) -> int | None:
        """Add a row that gets a number, and return that; None if it was there."""
        ...

    def add_all(self, sql: str, rows: Sequence[Values]) -> None:
        """Add many rows to a table, in this order. A store may have them as arrays, one for each column."""
        ...

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Values]: ...

    def row(self, sql: str, parameters: Sequence[Any] = ()) -> Values | None: ...

    def value(self, sql: str, parameters: Sequence[Any] = ()) -> Any: ...

    def snapshot(self, read: Callable[[], T]) -> T:
        """Several reads of one state."""
        ...

    # -- locks -----------------------------------------------------------------------------------------------
    # For stores with several writers (docs/reference/locks.md). A store with one writer at a time does nothing here.

    def lock_type(self, kind: str) -> None:
        """Events of this type are published, or handed from run to run: nobody else does, nobody begins to wait."""
        ...

    def lock_type_to_wait(self, kind: str) -> None:
        """A run begins to wait for this type: nobody publishes meanwhile, others may begin to wait."""
        ...

    def lock_runs(self, keys: Sequence[RunKey]) -> None:
        """These runs are about to change."""
        ...
