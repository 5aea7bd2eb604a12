"""One value to JSON bytes and back, the same way live and on replay (law 9).

A value whose annotation says everything about it is plain, readable JSON through `msgspec`. Without an
annotation, or with `Any` inside, it is tagged JSON (`kernel.values.tagged`). A typed value that plain JSON cannot
carry exactly (NaN, lone surrogates, huge ints, a fold) is tagged JSON too, inside `{"$tagged": ...}`.

Promises: what `encode` returns, `decode` reads, and it is the same value: `encode` reads back what it has written
and compares the two (`kernel.values.exact`). A value that is not what its annotation says, or that would lose something
on the way, is refused by `encode`, with its path; it never becomes an error of some later replay.
No pickle, no import, no class that this process did not register or annotate (FAULTS S1).

`kernel.values` is the door to this; `arguments.py` does the same for the arguments of one function.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Raw

from perdure import limits
from perdure.errors import NotDecodable, NotStorable, TooLarge, UnstorableType
from perdure.given import class_name, is_a, is_ordinary, readable
from perdure.kernel.values import lazy_types, models
from perdure.kernel.values.annotations import Survey, is_cacheable, is_open, scalar_types, shown, survey
from perdure.kernel.values.class_codecs import on_registration, registered
from perdure.kernel.values.exact import difference
from perdure.kernel.values.instances import is_pydantic
from perdure.kernel.values.quiet import Reader
from perdure.kernel.values.refusals import Refused
from perdure.kernel.values.tagged import Walker

T = TypeVar("T")

_ENVELOPE: Final = b'{"$tagged":'
#: What instances are written with: classes have code of the user, so these are read back before they are accepted.
_OBJECT: Final = b'{"$object":'
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
    codec = registered(cls)
    if codec is not None and codec.custom:
        return _untyped.plain(codec.apart(value)[0])
    if is_pydantic(cls):
        return models.dump_json(value)
    if is_a(cls, (complex,)):
        return complex.__str__(value)
    if is_a(cls, lazy_types.classes()):
        return str(value)
    bases: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
        (str, str.__str__), (int, int.__index__), (float, float.__float__), (bytes, bytes.__bytes__),
    )  # fmt: skip
    for base, exactly in bases:  # a subclass: stored as its base (FAULTS E14)
        if is_a(cls, (base,)):
            return exactly(value)
    raise TypeError(class_name(cls))


def _decode_hook(cls: Any, plain: Any) -> Any:
    codec = registered(cls) if isinstance(cls, type) else None
    if codec is not None and codec.custom:
        return _built(codec.build, _untyped.value(plain))
    if isinstance(cls, type) and is_pydantic(cls):
        upcast = codec.upcast if codec is not None else None
        data = _encode_json(upcast(plain) if upcast is not None else plain)
        return cls.model_validate_json(data)  # type: ignore[attr-defined]
    if isinstance(cls, type) and is_a(cls, (complex, *lazy_types.classes(), str, int, float)):
        make: Callable[[Any], Any] = cls
        return make(plain)
    raise TypeError(f"{shown(cls)} cannot be read back")


def _built(build: Callable[[Any], Any], payload: Any) -> Any:
    try:
        return build(payload)
    except Refused as refused:
        raise ValueError(refused.text()) from None  # msgspec adds the path


# -- what plain JSON has no way to say -------------------------------------------------------------------


def _inexact(plain: Any) -> bool:
    """Whether `msgspec.json` would silently change something in this data."""
    kind = type(plain)
    if kind is float:
        return not math.isfinite(plain)
    if kind is dict:
        return any(_inexact(key) or _inexact(item) for key, item in plain.items())
    if kind in (list, tuple, set, frozenset):
        return any(map(_inexact, plain))
    return False


def _readable_hook(value: Any) -> Any:
    """As `_encode_hook`; raises for a model that does not read what it writes, because of its aliases or validators."""
    plain = _encode_hook(value)
    if is_pydantic(type(value)):
        _decode_hook(type(value), plain)
    return plain


def _loses_something(value: Any) -> bool:
    try:
        return _inexact(msgspec.to_builtins(value, enc_hook=_readable_hook))
    except Exception:
        return True  # tagged encoding will say what is wrong, and where


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
        codec = registered(annotation) if isinstance(annotation, type) else None
        self.upcast = codec.upcast if codec is not None and not codec.custom else None
        if is_open(annotation) or self.survey.opaque:
            return
        try:
            self.decode = msgspec.json.Decoder(annotation, dec_hook=_decode_hook).decode
        except Exception:
            return  # a union msgspec cannot tell apart, an unresolved name: tagged
        self.plain = self.survey.plain
        reader = Reader(annotation) if self.survey.runs_code else None
        if self.upcast is not None and not is_pydantic(annotation):
            self.decode = _upcasting(self.upcast, annotation, reader)
        elif reader is not None:
            self.decode = _reading(reader)


def _upcasting(upcast: Callable[[Any], Any], annotation: Any, reader: Reader | None) -> Callable[[bytes], Any]:
    target = annotation if reader is None else reader.annotation

    def decode(data: bytes) -> Any:
        value = msgspec.convert(upcast(_decode_json(data)), target, str_keys=True, dec_hook=_decode_hook)
        return value if reader is None else reader.restored(value)

    return decode


def _reading(reader: Reader) -> Callable[[bytes], Any]:
    read = msgspec.json.Decoder(reader.annotation, dec_hook=_decode_hook).decode
    return lambda data: reader.restored(read(data))


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

    def is_scalar(self, value: object) -> bool:
        """Whether workflow code may see this very value, since what a replay decodes is the same."""
        kind = type(value)
        return is_ordinary(kind) and kind in self.scalars

    def encode(self, value: T, what: str) -> bytes:
        """JSON bytes that `decode` reads back.

        Raises `NotStorable` with the path, or `TooLarge`; `what` names the value in the message.
        """
        data: bytes | None = None
        kind = type(value)
        if type(kind) is type and kind in self.scalars:  # `is_scalar`, without the call
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
        if data.startswith(_ENVELOPE) or (typed.survey.recursive and _too_deep(data)):
            return None
        decoded = self._check(data, value, what)
        if decoded is Refused:
            return None
        found = difference(value, decoded)
        if found is not None and not found.is_json_to_blame:
            raise found
        return data if found is None else None

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

    def _encode_tagged(self, typed: _Typed, value: Any, what: str) -> bytes:
        plain = typed.walker.plain(value)
        data = _encode_json(plain)
        if typed.decode is None:
            return self._verified(data, value)
        if not (typed.plain or self.is_scalar(value)):
            # Loose data without a tag is read by msgspec, which takes plain JSON from outside too.
            if data.find(_TAG) >= 0:
                return self._verified(data, value)
            decoded = self._check(data, value, what)
            found = None if decoded is Refused else difference(value, decoded)
            if found is not None and not found.is_json_to_blame:
                raise found
            if found is None and decoded is not Refused:
                return data
        return self._verified(_encode_json({"$tagged": plain}), value)

    def _verified(self, data: bytes, value: Any) -> bytes:
        """What will be stored, if it comes back as `value`. Built-in types do, by construction."""
        if data.find(_OBJECT) >= 0:
            found = difference(value, self._read(data))
            if found is not None:
                raise found
        return data

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
        text = readable(" ".join(str.__str__(str(error)).split()))
    except Exception:
        text = ""
    if isinstance(error, msgspec.ValidationError) and " - at `" not in text:
        text += " - at `$`"
    return f"{text or class_name(type(error))}."


# -- by annotation ---------------------------------------------------------------------------------------

_codecs: dict[Any, ValueCodec[Any]] = {}
on_registration(_codecs.clear)


def codec_for(annotation: Any) -> ValueCodec[Any]:
    """The codec of a resolved annotation. `None`, `Any` and `Parameter.empty` mean that there is none."""
    try:
        if not is_cacheable(annotation):
            return ValueCodec(annotation)
        codec = _codecs.get(annotation)
        if codec is None:
            codec = _codecs[annotation] = ValueCodec(annotation)
        return codec
    except TypeError:  # unhashable, such as Annotated[int, {}]
        return ValueCodec(annotation)
    except Exception as error:  # code of an object that is no annotation
        raise UnstorableType(
            f"{shown(annotation)} is no type of values: {class_name(type(error))} was raised when it was looked at."
        ) from None


def why_not_storable(annotation: Any) -> str | None:
    """Why values of this type can never be stored, with the path; None if they can.

    `why_not_storable(list[socket.socket])` is `"list[socket.socket]: $[] is socket.socket"`.
    """
    if is_open(annotation):
        return None
    refused = survey(annotation).refused
    return None if refused is None else f"{shown(annotation)}: {refused}"
