"""The arguments of one function to a JSON object by parameter name, and back.

`{"order_id": "o-1", "cents": 1999}`: readable in a journal, and safe against parameters changing places.
Defaults are not stored: a call says only what its caller said. `*args` is a list and `**kwargs` an object
under their names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import astuple

from perdure import limits
from perdure.errors import NotDecodable, NotStorable
from perdure.given import is_ordinary
from perdure.kernel.values.codec import ValueCodec, codec_for, too_large

#: Combinations of argument types remembered per function; more than this is a function called with anything.
_KNOWN_MAX = 64

#: What msgspec decodes in the middle of an object just as it does by itself.
_PLAIN = (bool, int, float, str)

_encode_json = msgspec.json.Encoder().encode
_decode_named = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_listed = msgspec.json.Decoder(list[Raw]).decode


class ArgumentsCodec:
    """Encodes and decodes calls of one function. `what` names it in messages: "step 'charge'"."""

    def __init__(
        self, signature: inspect.Signature, hints: Mapping[str, Any], what: str, *, with_defaults: bool = False
    ) -> None:
        #: Whether defaults are stored as if they had been written out: what a run was started with must not change when
        #: a deploy changes a default.
        self._with_defaults = with_defaults
        self._signature = signature
        self._what = what
        self._parameters = signature.parameters
        self._codecs = {name: codec_for(hints.get(name, Parameter.empty)) for name in self._parameters}
        self._whats = {name: f"argument {name!r} of {what}" for name in self._parameters}
        kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        positional = [p for p in self._parameters.values() if p.kind in kinds]
        self._positional = tuple(positional)
        self._names = tuple(p.name for p in positional)
        self._scalars = tuple(self._codecs[p.name].scalars for p in positional)
        self._count_max = len(positional)
        self._count_min = self._least(positional)
        self._known: dict[tuple[type, ...], bool] = {}
        #: For calls with arguments of these types: what to encode them as, or None to go the long way.
        self._direct: dict[tuple[type, ...], type[msgspec.Struct] | None] = {}
        #: Decodes a whole call at once, for functions that take nothing but scalars. Made when it is first needed.
        self._decode_whole: Callable[[Any], msgspec.Struct] | None = None
        self._may_decode_whole = all(codec.annotation in _PLAIN for codec in self._codecs.values()) and (
            len(positional) == len(self._parameters)
        )

    def codec_of(self, name: str) -> ValueCodec[Any] | None:
        """Of a parameter; None if there is none of this name."""
        return self._codecs.get(name)

    def _least(self, positional: list[Parameter]) -> int:
        """How many positional arguments a call without keywords needs; above the maximum if none will do."""
        needs_keyword = any(
            p.kind is Parameter.KEYWORD_ONLY and p.default is Parameter.empty for p in self._parameters.values()
        )
        if needs_keyword:
            return len(positional) + 1
        return sum(p.default is Parameter.empty for p in positional)

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """The call as JSON.

        Raises `TypeError` when the arguments do not fit the function, else as `ValueCodec.encode`.
        """
        return self.encode_call(args, kwargs)[0]

    def encode_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[bytes, tuple[Any, ...] | None]:
        """The same, and the arguments as the function may see them: `args`, if those are what a replay decodes and can
        never change. None: it must see what `decode` makes of the bytes."""
        if kwargs:
            return self._within_limit(self._encode_bound(args, kwargs)), None
        kinds = tuple(map(type, args))
        if not all(map(is_ordinary, kinds)):
            return self._within_limit(self._encode_bound(args, kwargs)), None
        try:
            call = self._direct[kinds]
        except KeyError:
            call = self._direct_way(kinds)
        if call is not None:
            try:
                data = _encode_json(call(*args))
            except ValueError:  # a lone surrogate, or more digits than CPython prints
                pass
            else:
                if float not in kinds or data.find(b"null") < 0:  # else NaN has become null: the long way tags it
                    return (data if len(data) <= limits.VALUE_BYTES_MAX else self._within_limit(data)), args
        data = self._within_limit(self._encode_bound(args, kwargs))
        return data, args if self._all_scalar(kinds) else None

    def _within_limit(self, data: bytes) -> bytes:
        if len(data) > limits.VALUE_BYTES_MAX:
            raise too_large(f"the input of {self._what}", len(data))
        return data

    def _direct_way(self, kinds: tuple[type, ...]) -> type[msgspec.Struct] | None:
        """If arguments of exactly these types can be stored as they are, with no default to fill in: a class with the
        parameters for fields, from which msgspec makes the object in one go."""
        call = None
        if self._all_scalar(kinds) and (not self._with_defaults or len(kinds) == len(self._parameters)):
            call = msgspec.defstruct("Call", self._names[: len(kinds)], gc=False)
        if len(self._direct) < _KNOWN_MAX:
            self._direct[kinds] = call
        return call

    def _all_scalar(self, kinds: tuple[type, ...]) -> bool:
        """Whether a call with arguments of exactly these types is complete, and needs no decoding."""
        known = self._known.get(kinds)
        if known is None:
            known = self._count_min <= len(kinds) <= self._count_max and all(
                kind in scalars for kind, scalars in zip(kinds, self._scalars, strict=False)
            )
            if len(self._known) < _KNOWN_MAX:
                self._known[kinds] = known
        return known

    def _encode_bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self._what}: {error}") from None
        if self._with_defaults:
            bound.apply_defaults()
        out = {name: self._encode_one(name, value) for name, value in bound.arguments.items()}
        try:
            return _encode_json(out)
        except ValueError:
            raise NotStorable(f"a keyword of {self._what} cannot be stored: it is not valid Unicode.") from None

    def _encode_one(self, name: str, value: Any) -> Any:
        kind = self._parameters[name].kind
        encode, what = self._codecs[name].encode, self._whats[name]
        if kind is Parameter.VAR_POSITIONAL:
            return [Raw(encode(item, f"{what}, number {index}")) for index, item in enumerate(value)]
        if kind is Parameter.VAR_KEYWORD:
            return {key: Raw(encode(item, f"argument {key!r} of {self._what}")) for key, item in value.items()}
        return Raw(encode(value, what))

    def decode(self, data: bytes | memoryview | Raw) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """`args, kwargs` to call the function with; as much as possible is positional.

        Raises `NotDecodable` naming the argument that is unknown, missing or of the wrong type.
        """
        if self._may_decode_whole:
            decode = self._decode_whole or self._prepare_whole()
            try:
                return astuple(decode(data)), {}
            except (msgspec.MsgspecError, ValueError):
                pass  # something is missing, tagged or wrong: found out below
        raws = self._read(_decode_named, data, f"the input of {self._what}")
        if not raws.keys() <= self._parameters.keys():
            unknown = next(name for name in raws if name not in self._parameters)
            raise NotDecodable(
                f"the input of {self._what} has an argument {unknown!r} that the function does not take. "
                "Was a parameter renamed or removed? Keep the old name until its runs are done."
            )
        args = self._decode_positional(raws)
        kwargs: dict[str, Any] = {}
        if len(raws) > len(args) or len(self._parameters) > self._count_max:
            self._decode_rest(raws, args, kwargs)
        return tuple(args), kwargs

    def _prepare_whole(self) -> Callable[[Any], msgspec.Struct]:
        fields = [(name, codec.annotation) for name, codec in self._codecs.items()]
        call = msgspec.defstruct("Call", fields, forbid_unknown_fields=True, gc=False)
        self._decode_whole = decode = msgspec.json.Decoder(call).decode
        return decode

    def _decode_positional(self, raws: Mapping[str, Raw]) -> list[Any]:
        args: list[Any] = []
        gaps: list[Any] = []  # defaults of parameters left out; needed only if a later one is given
        for parameter in self._positional:
            name = parameter.name
            raw = raws.get(name)
            if raw is None:
                gaps.append(self._default(parameter))
            else:
                if gaps:
                    args += gaps
                    gaps.clear()
                args.append(self._codecs[name].decode(raw, self._whats[name]))
        return args

    def _decode_rest(self, raws: Mapping[str, Raw], args: list[Any], kwargs: dict[str, Any]) -> None:
        for name, parameter in self._parameters.items():
            codec, what, raw = self._codecs[name], self._whats[name], raws.get(name)
            if parameter.kind is Parameter.KEYWORD_ONLY:
                if raw is not None:
                    kwargs[name] = codec.decode(raw, what)
                else:
                    self._default(parameter)
            elif parameter.kind is Parameter.VAR_POSITIONAL and raw is not None:
                items = [codec.decode(item, what) for item in self._read(_decode_listed, raw, what)]
                if items:
                    args += [self._default(p) for p in self._positional[len(args) :]]
                args += items
            elif parameter.kind is Parameter.VAR_KEYWORD and raw is not None:
                named: Mapping[str, Raw] = self._read(_decode_named, raw, what)
                kwargs.update({key: codec.decode(item, what) for key, item in named.items()})

    def _default(self, parameter: Parameter) -> Any:
        if parameter.default is Parameter.empty:
            raise NotDecodable(
                f"the input of {self._what} lacks the argument {parameter.name!r}. "
                "Was a parameter added? Give it a default, so that older runs can go on."
            )
        return parameter.default

    def _read(self, decode: Callable[[Any], Any], data: Any, what: str) -> Any:
        try:
            return decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise NotDecodable(f"{what} cannot be read back: {error}.") from None
