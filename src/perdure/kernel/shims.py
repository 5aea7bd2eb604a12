"""Deterministic stand-ins for the clock and for chance, seen by workflow functions in place of the real ones.

`time.time()`, `datetime.now()`, `random.random()` and `uuid.uuid4()` written in a workflow give the run's own
time and seeded randomness. The same objects used outside workflow code behave as the originals, so a function that
is shared between both stays right. `authoring.globals` decides which names of a function are replaced.
"""

from __future__ import annotations

import datetime as datetime_module
import os as os_module
import random as random_module
import time as time_module
import uuid as uuid_module
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

from perdure.errors import Forbidden
from perdure.kernel.eventloop.ordering import STAND_INS
from perdure.kernel.marks import noted
from perdure.kernel.randomness import SeededRandom, randomness_of
from perdure.kernel.run import Run
from perdure.kernel.values import codec_for
from perdure.kernel.verbs.current import running_run


class ModuleShim(ModuleType):
    """A module that answers some names itself and passes every other one on."""

    def __init__(self, real: ModuleType, replaced: dict[str, Any]) -> None:
        super().__init__(real.__name__, real.__doc__)
        self.__dict__.update(replaced)
        self.__dict__["__perdure_real__"] = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["__perdure_real__"], name)


#: Where a stand-in keeps the function it stands for.
REAL = "__perdure_real__"
#: Where a function that only watches another one keeps that.
WATCHED = "__perdure_watched__"


def _in_run(real: Callable[..., Any], inside: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        run = running_run()
        return real(*args, **kwargs) if run is None else inside(run, *args, **kwargs)

    call.__name__ = getattr(real, "__name__", "shim")
    call.__doc__ = real.__doc__
    call.__dict__[REAL] = real
    return call


# -- time ------------------------------------------------------------------------------------------------


def _no_sleep(run: Run, *_: Any) -> NoReturn:
    raise Forbidden("workflow code called time.sleep(), which blocks the worker. Write `await sleep(...)` instead.")


def _seconds(run: Run, *_clock: Any) -> float:
    return run.now / 1_000_000


def _nanoseconds(run: Run, *_clock: Any) -> int:
    return run.now * 1_000


def _utc(run: Run, seconds: float | None = None) -> Any:
    # The machine's zone differs between machines: inside a run it is UTC.
    return time_module.gmtime(run.now / 1_000_000 if seconds is None else seconds)


def _asctime(run: Run, moment: Any = None) -> str:
    return time_module.asctime(_utc(run) if moment is None else moment)


def _ctime(run: Run, seconds: float | None = None) -> str:
    return time_module.asctime(_utc(run, seconds))


def _mktime(run: Run, moment: Any) -> float:
    # The inverse of `localtime`, which is UTC here.
    year, month, day, hour, minute, second = tuple(moment)[:6]
    begun = datetime_module.datetime(year, 1, 1, tzinfo=datetime_module.UTC).timestamp()
    months = datetime_module.date(year + (month - 1) // 12, (month - 1) % 12 + 1, 1) - datetime_module.date(year, 1, 1)
    return float(begun + (months.days + day - 1) * 86_400 + hour * 3_600 + minute * 60 + second)


def _strftime(run: Run, form: str, moment: Any = None) -> str:
    return time_module.strftime(form, _utc(run) if moment is None else moment)


_inside_time: dict[str, Callable[..., Any]] = {
    "time": _seconds, "monotonic": _seconds, "perf_counter": _seconds, "process_time": _seconds,
    "time_ns": _nanoseconds, "monotonic_ns": _nanoseconds, "perf_counter_ns": _nanoseconds,
    "gmtime": _utc, "localtime": _utc, "asctime": _asctime, "ctime": _ctime, "strftime": _strftime,
    "process_time_ns": _nanoseconds, "thread_time": _seconds, "thread_time_ns": _nanoseconds,
    "clock_gettime": _seconds, "clock_gettime_ns": _nanoseconds, "mktime": _mktime, "sleep": _no_sleep,
}  # fmt: skip
_time = {
    name: _in_run(getattr(time_module, name), inside)
    for name, inside in _inside_time.items()
    if hasattr(time_module, name)  # not every system has every clock
}

# -- datetime ----------------------------------------------------------------------------------------------


class _SameInstances(type):
    """The stand-in class counts as the real one in isinstance and issubclass."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.__mro__[1])

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.__mro__[1])


class DatetimeShim(datetime_module.datetime, metaclass=_SameInstances):
    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return datetime_module.datetime(*args, **kwargs)

    @classmethod
    def now(cls, tz: datetime_module.tzinfo | None = None) -> Any:
        run = running_run()
        if run is None:
            return datetime_module.datetime.now(tz)
        # A naive now() means the machine's zone, which differs between machines: inside a run it is UTC.
        moment = datetime_module.datetime.fromtimestamp(run.now / 1_000_000, datetime_module.UTC)
        return moment.replace(tzinfo=None) if tz is None else moment.astimezone(tz)

    @classmethod
    def fromtimestamp(cls, timestamp: float, tz: datetime_module.tzinfo | None = None) -> Any:
        if tz is not None or running_run() is None:
            return datetime_module.datetime.fromtimestamp(timestamp, tz)
        return datetime_module.datetime.fromtimestamp(timestamp, datetime_module.UTC).replace(tzinfo=None)

    @classmethod
    def utcnow(cls) -> Any:
        return cls.now(datetime_module.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Any:
        return cls.now()


class DateShim(datetime_module.date, metaclass=_SameInstances):
    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return datetime_module.date(*args, **kwargs)

    @classmethod
    def today(cls) -> Any:
        return DatetimeShim.now().date()

    @classmethod
    def fromtimestamp(cls, timestamp: float) -> Any:
        return DatetimeShim.fromtimestamp(timestamp).date()


# -- chance ------------------------------------------------------------------------------------------------

_RANDOM_FUNCTIONS = (
    "betavariate", "binomialvariate", "choice", "choices", "expovariate", "gammavariate", "gauss", "getrandbits",
    "getstate", "lognormvariate", "normalvariate", "paretovariate", "randbytes", "randint", "random", "randrange",
    "sample", "seed", "setstate", "shuffle", "triangular", "uniform", "vonmisesvariate", "weibullvariate",
)  # fmt: skip


def _draw(name: str) -> Callable[..., Any]:
    return lambda run, *args, **kwargs: getattr(randomness_of(run), name)(*args, **kwargs)


_random = {
    name: _in_run(getattr(random_module, name), _draw(name))
    for name in _RANDOM_FUNCTIONS
    if hasattr(random_module, name)  # binomialvariate came with Python 3.12
}


def _seeded_random(run: Run, *args: Any) -> random_module.Random:
    return (
        random_module.Random(*args)
        if args and args[0] is not None
        else SeededRandom(randomness_of(run).getrandbits(63))
    )


_random["Random"] = _in_run(random_module.Random, _seeded_random)


# -- secrets: drawn for real, once, and recorded: a reader of the seed must not know them ------------------------

_ANY = codec_for(Any)


def _noted(run: Run, name: str, read: Callable[[], Any]) -> Any:
    what = f"what {name} gave"
    return _ANY.decode(noted(run, name, lambda: _ANY.encode(read(), what)), what)


def _secret(real: Callable[..., Any]) -> Callable[..., Any]:
    name = real.__name__
    return _in_run(real, lambda run, *args, **kwargs: _noted(run, name, lambda: real(*args, **kwargs)))


class RecordedRandom(random_module.Random):
    """The system's source of chance, each draw of which is recorded. Every method of `Random` works on it."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._real = random_module.SystemRandom()
        super().__init__(0)

    def getrandbits(self, k: int, /) -> int:
        return int(_noted(self._run, "getrandbits", lambda: self._real.getrandbits(k)))

    def random(self) -> float:
        return self.getrandbits(53) * 2.0**-53

    def randbytes(self, n: int) -> bytes:
        return self.getrandbits(n * 8).to_bytes(n, "big")

    def seed(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing, as with the original."""


def _system_random(real: Callable[..., Any]) -> Callable[..., Any]:
    return _in_run(real, lambda run, *_args: RecordedRandom(run))


_random["SystemRandom"] = _system_random(random_module.SystemRandom)
_os = {name: _secret(getattr(os_module, name)) for name in ("urandom", "getrandom") if hasattr(os_module, name)}

# -- ids -----------------------------------------------------------------------------------------------------


def _uuid4(run: Run, *_args: Any, **_kwargs: Any) -> uuid_module.UUID:
    return randomness_of(run).uuid4()


def _uuid1(run: Run, node: int | None = None, clock_seq: int | None = None) -> uuid_module.UUID:
    """Holds the run's time; the node, which names the machine, is drawn."""
    ticks = run.now * 10 + 0x01B21DD213814000  # hundreds of nanoseconds since 1582, as RFC 9562 counts
    sequence = randomness_of(run).getrandbits(14) if clock_seq is None else clock_seq & 0x3FFF
    machine = (
        randomness_of(run).getrandbits(48) | 1 << 40 if node is None else node
    )  # the bit says that it is no address
    fields = (ticks & 0xFFFF_FFFF, ticks >> 32 & 0xFFFF, ticks >> 48 & 0x0FFF, sequence >> 8, sequence & 0xFF, machine)
    return uuid_module.UUID(fields=fields, version=1)


def uuid7(run: Run) -> uuid_module.UUID:
    """Sorts by the run's time, as the original does by the machine's."""
    number = (run.now // 1_000 & (1 << 48) - 1) << 80 | randomness_of(run).getrandbits(80)
    number = number & ~(0xF << 76) | 7 << 76  # the version
    number = number & ~(0b11 << 62) | 0b10 << 62  # the variant
    return uuid_module.UUID(int=number)


_inside_uuid: dict[str, Callable[..., Any]] = {"uuid1": _uuid1, "uuid4": _uuid4, "uuid6": uuid7, "uuid7": uuid7}
_uuid = {
    name: _in_run(getattr(uuid_module, name), inside)
    for name, inside in _inside_uuid.items()
    if hasattr(uuid_module, name)  # the newer ones came with Python 3.14
}

_uuid["getnode"] = _secret(uuid_module.getnode)

# -- the table: real object -> stand-in ------------------------------------------------------------------------

_replacements: dict[int, Any] = {
    id(time_module): ModuleShim(time_module, _time),
    id(datetime_module): ModuleShim(datetime_module, {"datetime": DatetimeShim, "date": DateShim}),
    id(random_module): ModuleShim(random_module, _random),
    id(uuid_module): ModuleShim(uuid_module, _uuid),
    id(os_module): ModuleShim(os_module, _os),
    id(datetime_module.datetime): DatetimeShim,
    id(datetime_module.date): DateShim,
    **STAND_INS,
}
# The originals are kept alive beside their ids: `random.random` is a bound method that only the module holds.
_originals: list[Any] = []
_shimmed = ((time_module, _time), (random_module, _random), (uuid_module, _uuid), (os_module, _os))
for _module, _functions in _shimmed:
    for _name, _shim in _functions.items():
        _original = getattr(_module, _name)
        _originals.append(_original)
        _replacements[id(_original)] = _shim


def stand_in(real: Any) -> Any | None:
    """What workflow code sees instead of `real`, or None if it may see the real thing."""
    found = _replacements.get(id(real))
    if found is None and "secrets" in (getattr(real, "__name__", ""), getattr(real, "__module__", "")):
        found = _with_recorded_secrets(real)
    return found


#: Functions of `secrets` that draw by themselves; the others draw through these, or only compute.
_DRAWS_SECRETS = frozenset({"token_bytes", "token_hex", "token_urlsafe"})


def _with_recorded_secrets(real: Any) -> Any | None:
    """The module `secrets` or one of its functions. Found by name: importing it here would slow down every start."""
    if isinstance(real, ModuleType):
        shims = {name: _recorded_secret(name, value) for name, value in vars(real).items() if callable(value)}
        return ModuleShim(real, {name: shim for name, shim in shims.items() if shim is not None})
    return _recorded_secret(getattr(real, "__name__", ""), real) if callable(real) else None


def _recorded_secret(name: str, real: Any) -> Any | None:
    if name in _DRAWS_SECRETS:
        return _secret(real)
    match name:
        case "SystemRandom":
            return _system_random(real)
        case "choice":
            return _in_run(real, lambda run, sequence: RecordedRandom(run).choice(sequence))
        case "randbelow":
            return _in_run(real, lambda run, above: RecordedRandom(run).randrange(above))
        case "randbits" | "getrandbits":
            return _in_run(real, lambda run, bits: RecordedRandom(run).getrandbits(bits))
        case _:
            return None
