"""What a run knows of itself and shows to others: `info`, `status`, `state`."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import msgspec

from perdure.errors import BadArgument
from perdure.given import class_name, shown, text_of
from perdure.kernel.values import codec_for
from perdure.kernel.verbs.current import current_run, running_run
from perdure.kernel.versions import Version

_ANY = codec_for(Any)


class Info(msgspec.Struct, frozen=True):
    """Facts about the run whose code is running."""

    id: str
    generation: int
    workflow: str
    version: Version
    parent: str | None
    is_replaying: bool
    cancel_requested: bool


def info() -> Info:
    """Facts about the current run. `is_replaying` is for metrics and prints, never for decisions."""
    run = current_run("info")
    return Info(
        run.id,
        run.generation,
        run.spec.name,
        Version(run.spec.version),
        run.parent_id,
        run.replaying,
        run.cancel_requested,
    )


def status(value: Any) -> None:
    """Show something about the run's progress to clients. Stored with the next commit."""
    run = current_run("status")
    run.custom_status = _ANY.encode(value, f"the status of run {run.id!r}")


class State(MutableMapping[str, Any]):
    """A small durable dict per run, readable by clients and kept over `continue_as`. Stored with the next commit."""

    @staticmethod
    def _data() -> dict[str, Any]:
        run = current_run("state")
        return run.state

    def __getitem__(self, key: str) -> Any:
        exact = text_of(key)
        if exact is None:  # no other key was ever put in
            raise KeyError(shown(key))
        return self._data()[exact]

    def __setitem__(self, key: str, value: Any) -> None:
        exact = text_of(key)
        if exact is None:
            raise BadArgument(f"the keys of `state` are text, not {class_name(type(key))}.")
        key = exact
        run = current_run("state")
        # Refused where it is put, rather than at the commit.
        _ANY.encode(value, f"state[{key!r}] of run {run.id!r}")
        self._data()[key] = value

    def __delitem__(self, key: str) -> None:
        del self._data()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data())

    def __len__(self) -> int:
        return len(self._data())

    def __repr__(self) -> str:
        run = running_run()
        return f"<state of {run.id!r}: {run.state!r}>" if run is not None else "<state: only in workflow code>"


state = State()
