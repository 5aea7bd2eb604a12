"""One value to JSON bytes and back, the same way live and on replay (law 9).

A value whose annotation says everything about it is plain, readable JSON through `msgspec`. Without an
annotation, or with `Any` inside, it is tagged JSON (`kernel.tagged`). A typed value that plain JSON cannot
carry exactly (NaN, lone surrogates, huge ints, a fold) is tagged JSON too, inside `{"$tagged": ...}`.

Promises: what `encode` returns, `decode` reads. A value that is not what its annotation says, or that would
lose something on the way, is refused by `encode`, with its path; it never becomes an error of some later
replay. No pickle, no import, no class that this process did not register or annotate (FAULTS S1).

`kernel.codec` is the door to this; `arguments.py` does the same for the arguments of one function.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import datetime, time
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Raw

from perdure import limits
from perdure.errors import NotDecodable, NotStorable, TooLarge
from perdure.kernel import rare
from perdure.kernel.annotations import Survey, is_open, scalar_types, shown, survey
from perdure.kernel.shapes import Refused, is_pydantic, on_registration, registered
from perdure.kernel.tagged import Walker

T = TypeVar("T")

#: In the place of a value: it has to be decoded.
UNREAD: Final = object()

_ENVELOPE: Final = b'{"$tagged":'
#: What every tag begins with. Looked for with `find`: `in` first tries whether bytes are a number, by an exception.
_TAG: Final = b'"$'

#: An int with more digits than this may not fit 64 bits.
_INT_CHARS_MAX: Final = 19

_encode_json = msgspec.json.Encoder().encode
_decode_json = msgspec.json.Decoder[Any]().decode


# -- hooks: types that msgspec does not know -------------------------------------------------------------

_untyped = Walker()


def _encode_hook(value: Any) -> Any:
    cls: type = type(value)
    form = registered(cls)
    if form is not None and form.custom:
        return _untyped.plain(form.apart(value))
    if is_pydantic(cls):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    if isinstance(value, (complex, *rare.classes())):
        return str(value)
    bases: tuple[Any, ...] = (str, int, float, bytes)
    for base in bases:  # a subclass: stored as its base (FAULTS E14)
        if isinstance(value, base):
            return base(value)
    raise TypeError(cls)


def _decode_hook(cls: Any, plain: Any) -> Any:
    form = registered(cls) if isinstance(cls, type) else None
    if form is not None and form.custom:
        return _built(form.build, _untyped.value(plain))
    if isinstance(cls, type) and is_pydantic(cls):
        upcast = form.upcast if form is not None else None
        data = _encode_json(upcast(plain) if upcast is not None else plain)
        return cls.model_validate_json(data)  # type: ignore[attr-defined]
    if isinstance(cls, type) and issubclass(cls, (complex, *rare.classes(), str, int, float)):
        make: Callable[[Any], Any] = cls
        return make(plain)
    raise TypeError(f"{shown(cls)} cannot be read back")


def _built(build: Callable[[Any], Any], payload: Any) -> Any:
    try:
        return build(payload)
    except Refused as refused:
        raise ValueError(refused.text()) from None  # msgspec adds the path


# -- what plain JSON loses -------------------------------------------------------------------------------


def _inexact(plain: Any) -> bool:
    """Whether `msgspec.json` would silently change something in this data."""
    if isinstance(plain, float):
        return not math.isfinite(plain)
    if isinstance(plain, (datetime, time)):
        offset = plain.utcoffset()
        zoned_time = isinstance(plain, time) and plain.tzinfo is not None and offset is None
        return plain.fold == 1 or zoned_time or (offset is not None and offset.total_seconds() % 60 != 0)
    if isinstance(plain, dict):
        return any(_inexact(key) or _inexact(item) for key, item in plain.items())
    if isinstance(plain, (list, tuple, set, frozenset)):
        return any(map(_inexact, plain))
    return False


def _loses_something(value: Any) -> bool:
    try:
        return _inexact(msgspec.to_builtins(value, builtin_types=(datetime, time), enc_hook=_encode_hook))
    except Exception:
        return True  # tagged encoding will say what is wrong, and where


def _differs(before: Any, after: Any) -> bool:
    """Whether fields, members or digits of `before` are gone in `after` (other spellings are fine)."""
    if isinstance(before, dict) and isinstance(after, dict):
        return any(key not in after or _differs(item, after[key]) for key, item in before.items())
    if isinstance(before, list) and isinstance(after, list):
        return len(before) != len(after) or any(map(_differs, before, after))
    if isinstance(before, (int, float)) and isinstance(after, (int, float)):
        return before != after
    return False


_STRINGS: Final = rb'"(?:[^"\\]|\\.)*"'


def _too_deep(data: bytes) -> bool:
    """Whether JSON nests deeper than values may. Only asked about recursive types."""
    if data.count(b"[") + data.count(b"{") <= limits.VALUE_DEPTH_MAX:
        return False
    depth = 0
    for byte in re.sub(_STRINGS, b"", data):
        if byte in b"[{":
            depth += 1
            if depth > limits.VALUE_DEPTH_MAX:
                return True
        elif byte in b"]}":
            depth -= 1
    return False


# -- one value -------------------------------------------------------------------------------------------


class _Typed:
    """The msgspec half of a codec, made on first use: by then forward references resolve."""

    __slots__ = ("decode", "encode", "plain", "survey", "upcast", "walker")

    def __init__(self, annotation: Any) -> None:
        self.survey: Survey = Survey() if is_open(annotation) else survey(annotation)
        self.walker = Walker(frozenset(self.survey.classes))
        self.plain = False
        self.decode: Callable[[bytes], Any] | None = None
        order: Any = "deterministic" if self.survey.has_set else None
        self.encode = msgspec.json.Encoder(enc_hook=_encode_hook, order=order).encode
        form = registered(annotation) if isinstance(annotation, type) else None
        self.upcast = form.upcast if form is not None and not form.custom else None
        if is_open(annotation) or self.survey.opaque:
            return
        try:
            self.decode = msgspec.json.Decoder(annotation, dec_hook=_decode_hook).decode
        except Exception:
            return  # a union msgspec cannot tell apart, an unresolved name: tagged
        self.plain = self.survey.plain
        if self.upcast is not None and not is_pydantic(annotation):
            self.decode = _upcasting(self.upcast, annotation)


def _upcasting(upcast: Callable[[Any], Any], annotation: Any) -> Callable[[bytes], Any]:
    def decode(data: bytes) -> Any:
        return msgspec.convert(upcast(_decode_json(data)), annotation, str_keys=True, dec_hook=_decode_hook)

    return decode


class ValueCodec(Generic[T]):
    """Encodes and decodes the values of one annotation. Get one from `codec_for`."""

    __slots__ = ("_made", "_read_untagged", "annotation", "scalars")

    def __init__(self, annotation: Any) -> None:
        self.annotation = annotation
        #: Exact types whose values come back unchanged and can never change: no need to decode what was just encoded.
        self.scalars = scalar_types(annotation)
        self._made: _Typed | None = None
        #: Decodes what holds no tag, which is nearly everything. Like `_made`, built when it is first needed.
        self._read_untagged: Callable[[bytes], Any] | None = None

    @property
    def _typed(self) -> _Typed:
        if self._made is None:
            self._made = _Typed(self.annotation)
        return self._made

    def encode(self, value: T, what: str) -> bytes:
        """JSON bytes that `decode` reads back.

        Raises `NotStorable` with the path, or `TooLarge`; `what` names the value in the message.
        """
        data: bytes | None = None
        if type(value) in self.scalars:
            try:
                data = _encode_json(value)
            except ValueError:  # a lone surrogate, or more digits than CPython prints
                data = None
            else:
                if data == b"null":
                    data = data if value is None else None  # NaN and infinity have become null
                elif len(data) > _INT_CHARS_MAX and type(value) is int:
                    data = None  # only the long way tells it from a float
        if data is None:
            data = self._encode_any(value, what)
        if len(data) > limits.VALUE_BYTES_MAX:
            raise too_large(what, len(data))
        return data

    def decode(self, data: bytes | memoryview | Raw, what: str) -> T:
        """The value. Raises `NotDecodable` with the path when the bytes do not fit the annotation."""
        if type(data) is not bytes:
            data = bytes(data)
        read = self._read_untagged
        try:
            if read is not None and data.find(_TAG) < 0:
                return read(data)  # type: ignore[no-any-return]
            return self._read(data)  # type: ignore[no-any-return]
        except Exception as error:
            raise NotDecodable(f"{what} cannot be read back: {_reason(error)}") from None

    def _encode_any(self, value: Any, what: str) -> bytes:
        typed = self._typed
        try:
            data = self._encode_plain(typed, value, what) if typed.plain else None
            if data is None:
                data = self._encode_tagged(typed, value, what)
        except Refused as refused:
            raise NotStorable(f"{what} cannot be stored: {refused.text()}") from None
        except RecursionError:
            raise NotStorable(f"{what} cannot be stored: it is nested too deeply, or contains itself.") from None
        return data

    def _encode_plain(self, typed: _Typed, value: Any, what: str) -> bytes | None:
        """Plain JSON, or None when only tagged JSON carries this value exactly."""
        try:
            data = typed.encode(value)
        except Exception:
            return None  # not storable, or only tagged: the walk finds out, and where
        watched = typed.survey.watch and _loses_something(value)
        if watched or data.startswith(_ENVELOPE) or (typed.survey.recursive and _too_deep(data)):
            return None
        decoded = self._check(data, value, what)
        if decoded is Refused:
            return None
        return data if self._keeps_everything(typed, data, decoded) else None

    def _check(self, data: bytes, value: Any, what: str) -> Any:
        """Decode what will be stored. `Refused`, the class, means that JSON is to blame, not the value."""
        try:
            return self._read(data)
        except Exception as error:
            if _loses_something(value):
                return Refused
            raise NotStorable(
                f"{what} cannot be stored: it is not {shown(self.annotation)}, as annotated. {_reason(error)}"
            ) from None

    def _keeps_everything(self, typed: _Typed, data: bytes, decoded: Any) -> bool:
        # An instance of a subclass would come back as its annotated base without the fields it added.
        try:
            again = typed.encode(decoded)
            return again == data or not _differs(_decode_json(data), _decode_json(again))
        except Exception:
            return False

    def _encode_tagged(self, typed: _Typed, value: Any, what: str) -> bytes:
        plain = typed.walker.plain(value)
        if typed.decode is None:
            return _encode_json(plain)
        if typed.plain or type(value) in self.scalars:
            return _encode_json({"$tagged": plain})
        data = _encode_json(plain)
        # Loose data without a tag is read by msgspec, which takes plain JSON from outside too.
        if data.find(_TAG) >= 0:
            return data
        decoded = self._check(data, value, what)
        if decoded is not Refused and self._keeps_everything(typed, data, decoded):
            return data
        return _encode_json({"$tagged": plain})

    def _read(self, data: bytes) -> Any:
        typed = self._typed
        self._read_untagged = typed.decode or _decode_json
        if typed.decode is None or not typed.plain:
            if data.find(_TAG) >= 0:
                return typed.walker.value(_decode_json(data))
            return _decode_json(data) if typed.decode is None else typed.decode(data)
        if data.startswith(_ENVELOPE):
            return typed.walker.value(_decode_json(data))
        try:
            return typed.decode(data)
        except Exception:
            if data.find(_TAG) < 0:
                raise
            return _fitted(typed.walker.value(_decode_json(data)), typed.encode, typed.decode)


def _fitted(value: Any, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]) -> Any:
    """A value stored as tagged JSON before its annotation was added, made to fit the annotation."""
    return decode(encode(value))


def too_large(what: str, size: int) -> TooLarge:
    """The error for a value above the limit."""
    return TooLarge(
        f"{what} is {size:,} bytes as JSON; the limit is {limits.VALUE_BYTES_MAX:,}. "
        "Put it in a file or bucket and store its address."
    )


def _reason(error: Exception) -> str:
    if isinstance(error, Refused):
        return error.text()
    if isinstance(error, RecursionError):
        return "it is nested too deeply."
    try:
        text = " ".join(str(error).split())
    except Exception:
        text = ""
    if isinstance(error, msgspec.ValidationError) and " - at `" not in text:
        text += " - at `$`"
    return f"{text or type(error).__name__}."


# -- by annotation ---------------------------------------------------------------------------------------

_codecs: dict[Any, ValueCodec[Any]] = {}
on_registration(_codecs.clear)


def codec_for(annotation: Any) -> ValueCodec[Any]:
    """The codec of a resolved annotation. `None`, `Any` and `Parameter.empty` mean that there is none."""
    try:
        codec = _codecs.get(annotation)
        if codec is None:
            codec = _codecs[annotation] = ValueCodec(annotation)
        return codec
    except TypeError:  # unhashable, such as Annotated[int, {}]
        return ValueCodec(annotation)


def why_not_storable(annotation: Any) -> str | None:
    """Why values of this type can never be stored, with the path; None if they can.

    `why_not_storable(list[socket.socket])` is `"list[socket.socket]: $[] is socket.socket"`.
    """
    if is_open(annotation):
        return None
    refused = survey(annotation).refused
    return None if refused is None else f"{shown(annotation)}: {refused}"
