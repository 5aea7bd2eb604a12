"""Pydantic models as stored data.

A model is stored as its own `model_dump` gives it and comes back through its own validation, as long as that brings
back the same: pydantic leaves out fields with `exclude=True`, private attributes and the fields of subclasses, writes
asterisks for secrets, and validators may change what they are given. A model that would come back changed is stored by
its state instead, and comes back without validation. `kernel.values.exact` is the judge.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final

from perdure.kernel.values.refusals import Refused

_FIELDS_SET: Final = "__pydantic_fields_set__"
_EXTRA: Final = "__pydantic_extra__"
_PRIVATE: Final = "__pydantic_private__"


def dump(value: Any) -> Any:
    """What the model says that it holds."""
    # round_trip leaves computed fields out: a model that forbids extra fields could not read them back.
    return value.model_dump(mode="python", by_alias=True, round_trip=True, warnings=False)


def dump_json(value: Any) -> Any:
    """The same as data that JSON has."""
    return value.model_dump(mode="json", by_alias=True, round_trip=True, warnings=False)


def validate(cls: Any) -> Callable[[Any], Any]:
    return lambda payload: cls.model_validate(payload)


def fields(value: Any) -> dict[str, Any]:
    """The fields as they are."""
    return dict(state(value)["__dict__"])


def state(value: Any) -> dict[str, Any]:
    """All that a model holds: its fields, the extra ones, private attributes, and which fields were given."""
    return {
        "__dict__": object.__getattribute__(value, "__dict__"),
        _FIELDS_SET: object.__getattribute__(value, _FIELDS_SET),
        _EXTRA: object.__getattribute__(value, _EXTRA),
        _PRIVATE: object.__getattribute__(value, _PRIVATE),
    }


def compared(value: Any) -> dict[str, Any]:
    """What makes two models the same: pydantic does not ask which fields were given, and the plain form says of none
    that it was not."""
    held = state(value)
    return {**held["__dict__"], "model_extra": held[_EXTRA] or None, **(held[_PRIVATE] or {})}


def rest(value: Any) -> dict[str, Any] | None:
    """What `dump` and validation would lose; None if they lose nothing."""
    from perdure.kernel.values.exact import difference

    with contextlib.suppress(Exception):  # a model that does not read its own dump is stored by its state
        if difference(value, validate(type(value))(dump(value))) is None:
            return None
    held = state(value)
    return {
        "set": sorted(held[_FIELDS_SET]),
        "extra": None if held[_EXTRA] is None else dict(held[_EXTRA]),
        "private": None if held[_PRIVATE] is None else dict(held[_PRIVATE]),
    }


def restore(cls: Any) -> Callable[[Any, dict[str, Any]], Any]:
    """Makes a model of its state, without validation."""

    def make(payload: Any, rest: dict[str, Any]) -> Any:
        if type(payload) is not dict or rest.keys() != {"set", "extra", "private"}:
            raise Refused("is a damaged model")
        built = cls.__new__(cls)
        object.__setattr__(built, "__dict__", payload)
        object.__setattr__(built, _FIELDS_SET, set(rest["set"]))
        object.__setattr__(built, _EXTRA, rest["extra"])
        object.__setattr__(built, _PRIVATE, rest["private"])
        return built

    return make
