"""Whether what was read back is what was stored: types and contents, not their JSON.

`difference` is the judge of the promise that a value comes back exactly or is refused (law 9). It looks at the two
values themselves and runs no code of theirs where it can do without: built-in types are read by the methods of the
built-in type, classes by the state of their instances. Only an object of a class that says nothing about its state is
asked whether it is equal.

What counts as the same although it is not: an int where a float is annotated, a datetime with another zone of the
same offset, and the built-in value of a subclass without state of its own (FAULTS E14). See docs/decisions/0106.
"""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from perdure.given import is_a, is_ordinary, mro_of
from perdure.kernel.values import lazy_types, models
from perdure.kernel.values.instances import hook_of, is_pydantic, simple_state, state_of
from perdure.kernel.values.refusals import Refused, a_thing, key_part


class Different(Refused):
    """Two values that are not the same, at a path. `before` and `after` are what is there."""

    def __init__(self, reason: str, before: Any, after: Any) -> None:
        super().__init__(reason, "Annotate what it is, or convert it.")
        self.before = before
        self.after = after

    @property
    def is_json_to_blame(self) -> bool:
        """Whether the value may well be what its annotation says, and only plain JSON cannot tell it from another."""
        kind, other = type(self.before), type(self.after)
        if kind is other or (kind is float and not math.isfinite(self.before)) or (kind is int and other is float):
            return True
        return is_a(kind, _COLLECTIONS) and is_a(other, _COLLECTIONS)


_COLLECTIONS: Final = (list, tuple, dict, set, frozenset, deque)


def same_data(before: Any, after: Any) -> bool:
    """Whether two values are the same, to the order of keys and the sign of zero.

    Knows None, bools, ints, floats, texts, bytes, lists, tuples, dicts and instances with only a `__dict__`. False also
    for values that hold anything else, which `difference` then looks at.
    """
    kind = type(before)
    if kind is not type(after):
        return False
    if kind is dict:
        return len(before) == len(after) and all(
            map(_same_pair, before.keys(), after.keys(), before.values(), after.values())
        )
    if kind is list or kind is tuple:
        return len(before) == len(after) and all(map(same_data, before, after))
    if kind is float:
        return before == after and math.copysign(1.0, before) == math.copysign(1.0, after)
    if before is None or kind is str or kind is int or kind is bool or kind is bytes:
        return bool(before == after)
    state = simple_state(before)
    return bool(state) and same_data(state, simple_state(after))


def _same_pair(key: Any, other_key: Any, item: Any, other: Any) -> bool:
    return same_data(key, other_key) and same_data(item, other)


def difference(before: Any, after: Any) -> Different | None:
    """Where `after` is not what `before` is; None if they are the same."""
    try:
        if not same_data(before, after):
            _compare(before, after)
    except Different as found:
        return found
    except RecursionError:
        return Different("is nested too deeply, or contains itself", None, None)
    except Exception as error:
        return Different(f"cannot be compared: {a_thing(type(error))} was raised", before, after)
    return None


def _compare(before: Any, after: Any) -> None:
    if before is after:
        return
    kind, other = type(before), type(after)
    if kind is not other:
        if kind is int and other is float and before == after:
            return  # PEP 484: an int is a float
        _compare_as_base(before, after, other)
    elif is_ordinary(kind) and kind in _COMPARERS:
        _COMPARERS[kind](before, after)
    else:
        _compare_instances(before, after)


def _compare_as_base(before: Any, after: Any, base: type) -> None:
    """A subclass of a built-in type that came back as the type, as documented."""
    derived = is_ordinary(base) and base in _COMPARERS and is_a(type(before), (base,))
    if not derived or base in _COMPARED_WHOLE or state_of(before, base):
        raise Different(f"is {a_thing(type(before))}, and would come back as {a_thing(type(after))}", before, after)
    _COMPARERS[base](before, after)


def _changed(before: Any, after: Any) -> Different:
    return Different(f"is {a_thing(type(before))} that would come back changed", before, after)


def _scalar(base: Any) -> Callable[[Any, Any], None]:
    equal = base.__eq__

    def compare(before: Any, after: Any) -> None:
        if equal(before, after) is not True:
            raise _changed(before, after)

    return compare


def _compare_floats(before: float, after: float) -> None:
    if float.__repr__(before) != float.__repr__(after):
        raise _changed(before, after)


def _compare_complex(before: complex, after: complex) -> None:
    if complex.__repr__(before) != complex.__repr__(after):
        raise _changed(before, after)


def _compare_decimals(before: Decimal, after: Decimal) -> None:
    if Decimal.as_tuple(before) != Decimal.as_tuple(after):
        raise _changed(before, after)


def _compare_datetimes(before: datetime, after: datetime) -> None:
    # A zone is kept as its offset: that must be the same, not the object that gives it.
    if (
        datetime.replace(before, tzinfo=None) != datetime.replace(after, tzinfo=None)
        or before.fold != after.fold
        or datetime.utcoffset(before) != datetime.utcoffset(after)
    ):
        raise _changed(before, after)


def _compare_times(before: time, after: time) -> None:
    if (
        time.replace(before, tzinfo=None) != time.replace(after, tzinfo=None)
        or before.fold != after.fold
        or time.utcoffset(before) != time.utcoffset(after)
    ):
        raise _changed(before, after)


def _sequence(base: Any) -> Callable[[Any, Any], None]:
    def compare(before: Any, after: Any) -> None:
        if base.__len__(before) != base.__len__(after):
            raise _changed(before, after)
        for index, (item, other) in enumerate(zip(base.__iter__(before), base.__iter__(after), strict=True)):
            try:
                _compare(item, other)
            except Different as found:
                raise found.at(f"[{index}]") from None

    return compare


def _compare_deques(before: Any, after: Any) -> None:
    if before.maxlen != after.maxlen:
        raise _changed(before, after)
    _COMPARE_ITEMS(before, after)


def _compare_defaults(before: Any, after: Any) -> None:
    if before.default_factory is not after.default_factory:
        raise _changed(before, after)
    _COMPARE_PAIRS(before, after)


def _mapping(base: Any) -> Callable[[Any, Any], None]:
    def compare(before: Any, after: Any) -> None:
        if dict.__len__(before) != dict.__len__(after):
            raise _changed(before, after)
        for (key, item), (other_key, other) in zip(base.items(before), base.items(after), strict=True):
            try:
                _compare(key, other_key)
                _compare(item, other)
            except Different as found:
                raise found.at(key_part(key)) from None

    return compare


def _set(base: Any) -> Callable[[Any, Any], None]:
    def compare(before: Any, after: Any) -> None:
        members = {item: item for item in base.__iter__(after)}
        if base.__len__(before) != len(members):
            raise _changed(before, after)
        for item in base.__iter__(before):
            if item not in members:
                raise _changed(before, after)
            _compare(item, members[item])

    return compare


_COMPARE_ITEMS: Final = _sequence(deque)
_COMPARE_PAIRS: Final = _mapping(dict)

_COMPARERS: Final[dict[type, Callable[[Any, Any], None]]] = {
    **{base: _scalar(base) for base in (str, int, bool, bytes, bytearray, date, timedelta, UUID)},
    type(None): lambda before, after: None,
    float: _compare_floats,
    complex: _compare_complex,
    Decimal: _compare_decimals,
    datetime: _compare_datetimes,
    time: _compare_times,
    list: _sequence(list),
    tuple: _sequence(tuple),
    deque: _compare_deques,
    dict: _COMPARE_PAIRS,
    OrderedDict: _mapping(OrderedDict),
    defaultdict: _compare_defaults,
    set: _set(set),
    frozenset: _set(frozenset),
}
#: Nothing is stored as these although it is something else: a date is not the datetime it was, a flag no bool.
_COMPARED_WHOLE: Final[frozenset[type]] = frozenset({bool, type(None), date})


# -- instances of other classes --------------------------------------------------------------------------


def _compare_instances(before: Any, after: Any) -> None:
    cls = type(before)
    if is_pydantic(cls):
        _compare_states(before, after, models.compared(before), models.compared(after))
        return
    content = next((base for base in mro_of(cls) if is_ordinary(base) and base in _COMPARERS), None)
    state, other = state_of(before, content), state_of(after, content)
    if content is not None:
        _COMPARERS[content](before, after)
    elif not (state or other) or is_a(cls, lazy_types.classes()):
        _ask(before, after)
        return
    _compare_states(before, after, state, other)


def _compare_states(before: Any, after: Any, state: dict[str, Any], other: dict[str, Any]) -> None:
    if same_data(state, other):
        return
    for name in [*state, *(name for name in other if name not in state)]:
        if name not in state or name not in other:
            fate = "gained" if name in other else "lost"
            raise Different(f"is {a_thing(type(before))} whose {name!r} would be {fate}", before, after)
        try:
            _compare(state[name], other[name])
        except Different as found:
            if not _is_made_again(type(before), name, state[name], other[name]):
                raise found.at(f".{name}") from None


def _is_made_again(cls: type, name: str, one: Any, other: Any) -> bool:
    """Whether this is a lock or the like that a hook of the class has made for each of the two."""
    if type(one) is not type(other) or not _by_identity(type(one)) or is_pydantic(cls):
        return False
    hook = hook_of(cls)
    return hook is not None and name in hook.makes


def _ask(before: Any, after: Any) -> None:
    """Compare two objects that show no state: paths, addresses, classes in C."""
    if _by_identity(type(before)) or (before == after) is not True:
        raise _changed(before, after)


def _by_identity(cls: Any) -> bool:
    return cls.__eq__ is object.__eq__
