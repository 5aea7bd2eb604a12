"""Parameters to bytes and back, as libpq takes and gives them: numbers as text, text as UTF-8, bytes as they are."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from perdure.errors import BadArgument

_BYTEA, _TEXT = 17, 25
#: The four bytes before each value of a binary array, for the usual lengths; made once.
_LENGTHS: Final = tuple(struct.pack("!i", length) for length in range(4096))
_NULL: Final = struct.pack("!i", -1)


def encode(value: Any) -> bytes | None:
    """One parameter."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, (list, tuple, set, frozenset)):
        return _array(value)
    raise BadArgument(f"PostgreSQL is given a {type(value).__name__}, which it does not store.")


def encode_all(values: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """Parameters and their formats: 1 for bytes, which go as they are, 0 for text."""
    return [encode(value) for value in values], [int(type(value) is bytes) for value in values]


def _text(value: str) -> bytes:
    if "\0" in value:
        raise BadArgument("PostgreSQL stores no text with a NUL character (\\0). Take it out of names, ids and types.")
    return value.encode()


def _array(values: Iterable[Any]) -> bytes:
    """An array in the notation of text: `{1,2,NULL}`, `{"a","b"}`."""
    parts: list[bytes] = []
    for value in values:
        encoded = encode(value)
        if encoded is None:
            parts.append(b"NULL")
        elif isinstance(value, str):
            parts.append(b'"' + encoded.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"')
        else:
            parts.append(encoded)
    return b"{" + b",".join(parts) + b"}"


# -- arrays of many rows ---------------------------------------------------------------------------------


def numbers(values: Iterable[int | None]) -> bytes:
    """An array of numbers, as text."""
    return b"{" + ",".join(["NULL" if value is None else str(value) for value in values]).encode() + b"}"


def texts(values: Iterable[str | None]) -> bytes:
    """An array of texts, binary."""
    return _binary(_TEXT, [None if value is None else _text(value) for value in values])


def blobs(values: Iterable[bytes | None]) -> bytes:
    """An array of bytes, binary: nothing is escaped, so a large value is copied once."""
    return _binary(_BYTEA, list(values))


def _binary(kind: int, values: Sequence[bytes | None]) -> bytes:
    parts = [struct.pack("!iiiii", 1, int(None in values), kind, len(values), 1)]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            size = len(value)
            parts.append(_LENGTHS[size] if size < 4096 else struct.pack("!i", size))
            parts.append(value)
    if not values:
        return struct.pack("!iii", 0, 0, kind)
    return b"".join(parts)


# -- results ---------------------------------------------------------------------------------------------


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _as_it_is(data: bytes) -> bytes:
    return bytes(data)


def _decoded(data: bytes) -> str:
    return str(data, "utf-8")


_DECODERS: Final[dict[int, Callable[[bytes], Any]]] = {
    16: lambda data: data == b"\1",
    17: _as_it_is,
    20: _number,
    21: _number,
    23: _number,
    25: _decoded,
    19: _decoded,
    1043: _decoded,
}


def decoder(kind: int) -> Callable[[bytes], Any]:
    """How a column of this type is read, in the binary format."""
    found = _DECODERS.get(kind)
    if found is None:
        raise AssertionError(f"a statement of ours answers with a column of type {kind}")
    return found
