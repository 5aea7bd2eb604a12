"""What a worker and the process of an isolated step say to each other: frames of JSON on two pipes.

Nothing is pickled. The worker sends its surroundings, if they have changed, and a job; the process answers with an
empty frame when the code begins, and with an `Answer` when it has ended.
"""

from __future__ import annotations

from typing import BinaryIO

import msgspec
from msgspec import Raw

from perdure.kernel.journal import ABSENT, Fault

#: The name under which the worker's script runs there: not `__main__`, or its `if __name__ == ...` would run too.
CHILD_MAIN = "__perdure_isolated__"

_LENGTH_BYTES = 8


class Job(msgspec.Struct, frozen=True):
    """One attempt."""

    module: str
    qualname: str
    main_file: str | None
    path: list[str]
    arguments: Raw
    run_id: str
    location: str
    attempt: int
    origin: str


class Surroundings(msgspec.Struct, frozen=True):
    """What the worker's own code sees and may change at any time. In bytes: names need not be valid Unicode."""

    directory: bytes | None
    environment: list[tuple[bytes, bytes]]


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    value: Raw = ABSENT
    error: Fault | None = None
    #: Whether another attempt could not help: the result cannot be stored, or the step cannot be found.
    is_final: bool = False
    #: Whether the process should not be used again: the step left threads behind.
    is_spent: bool = False


def frame(data: bytes) -> bytes:
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def read_frame(pipe: BinaryIO) -> bytes | None:
    """The next one; None at the end. An empty one from the process says that it is there, or that the code begins."""
    head = _read(pipe, _LENGTH_BYTES)
    return None if head is None else _read(pipe, int.from_bytes(head, "big"))


def _read(pipe: BinaryIO, length: int) -> bytes | None:
    parts: list[bytes] = []
    while length:
        part = pipe.read(min(length, 1 << 20))
        if not part:
            return None
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def of_main(fault: Fault) -> Fault:
    """In the process the script had another name; its exceptions are those of `__main__` in the worker."""
    prefix, _, name = fault.type.partition(":")
    return msgspec.structs.replace(
        fault,
        type=f"__main__:{name}" if prefix == CHILD_MAIN else fault.type,
        cause=of_main(fault.cause) if fault.cause is not None else None,
        members=tuple(of_main(member) for member in fault.members),
    )
