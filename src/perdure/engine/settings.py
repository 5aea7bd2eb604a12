"""What a user may set, in one place. Argument first, then `PERDURE_*`, then `[tool.perdure]` in `pyproject.toml`,
then the default, whose reason stands beside it in `perdure.limits`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from perdure import limits
from perdure.errors import BadArgument, describe_line
from perdure.store.model import LeaseTerms

#: A heartbeat that is not set, as a part of the lease: three fit, with room for the third to arrive.
_HEARTBEAT_OF_LEASE = limits.HEARTBEAT_SECONDS_DEFAULT / limits.LEASE_SECONDS_DEFAULT
#: So that a third of a lease is a third of it, however it is rounded.
_ROUNDED = 1 + 1e-9


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """See `perdure.limits` for why each default is what it is. Durations are seconds."""

    residents_max: int = limits.RESIDENTS_MAX_DEFAULT
    steps_max: int = limits.STEPS_MAX_DEFAULT
    step_threads: int = limits.STEP_THREADS_DEFAULT
    #: None: as many as there are cores to run them.
    step_processes: int | None = None
    recoveries_max: int = limits.RECOVERIES_MAX_DEFAULT
    max_pending_events: int = limits.PENDING_EVENTS_MAX_DEFAULT
    event_retention: float = limits.EVENT_RETENTION_SECONDS_DEFAULT
    cancel_grace: float = limits.CANCEL_GRACE_SECONDS_DEFAULT
    shutdown_grace: float = limits.SHUTDOWN_GRACE_SECONDS_DEFAULT
    sweep_interval: float = limits.SWEEP_SECONDS_DEFAULT
    timer_resolution: float = limits.TIMER_RESOLUTION_SECONDS_DEFAULT
    #: Where workers have leases (PostgreSQL): for how long one that says nothing keeps its runs, and how often it says
    #: something. None: three tenths of the lease.
    lease: float = limits.LEASE_SECONDS_DEFAULT
    heartbeat: float | None = None
    #: What to do when a replayed step is given other arguments than were recorded.
    arguments_check: Literal["off", "warn", "park"] = "warn"
    #: What to do when workflow code opens files, sockets or processes.
    io_check: Literal["off", "warn", "refuse"] = "refuse"
    #: Whether the code of a workflow is read for mistakes when it is first used.
    lint: Literal["off", "warn"] = "warn"
    #: When a turn that keeps the worker is reported, and when it is abandoned; 0: never.
    turn_warning: float = limits.TURN_SECONDS_WARN
    turn_limit: float = limits.TURN_SECONDS_MAX

    def __post_init__(self) -> None:
        for name in (
            "residents_max", "steps_max", "step_threads", "step_processes", "recoveries_max", "max_pending_events",
        ):  # fmt: skip
            if (value := getattr(self, name)) is not None and value < 1:
                raise BadArgument(f"the setting {name} is at least 1, not {getattr(self, name)}.")
        for name in (
            "event_retention", "cancel_grace", "shutdown_grace", "sweep_interval", "timer_resolution", "turn_warning",
            "turn_limit",
        ):  # fmt: skip
            if not 0.0 <= getattr(self, name) <= limits.DURATION_SECONDS_MAX:
                raise BadArgument(
                    f"the setting {name} is a number of seconds, zero or more, not {getattr(self, name)}."
                )
        self._check_lease()

    def _check_lease(self) -> None:
        if not limits.LEASE_SECONDS_MIN <= self.lease <= limits.LEASE_SECONDS_MAX:
            raise BadArgument(
                f"the setting lease is {limits.LEASE_SECONDS_MIN:g} to {limits.LEASE_SECONDS_MAX:g} seconds, not "
                f"{self.lease:g}: a shorter one is lost in a pause that harms nobody, and after a death the runs "
                "wait for the end of a longer one."
            )
        heartbeat = self.terms.heartbeat
        if not 0.0 < 3 * heartbeat <= self.lease * _ROUNDED:
            raise BadArgument(
                f"a lease of {self.lease:g} s is less than three heartbeats of {heartbeat:g} s: one lost packet would "
                "give the runs of a living worker to others. Set a longer lease, or a heartbeat of at most a "
                "third of it."
            )

    @property
    def terms(self) -> LeaseTerms:
        """How a worker is registered."""
        heartbeat = self.lease * _HEARTBEAT_OF_LEASE if self.heartbeat is None else self.heartbeat
        return LeaseTerms(seconds=self.lease, heartbeat=heartbeat)


def load_settings(
    arguments: Mapping[str, Any], environment: Mapping[str, str] | None = None, directory: str | os.PathLike[str] = ""
) -> Settings:
    """Settings from all four places. Unknown names and impossible values raise `BadArgument`."""
    environment = os.environ if environment is None else environment
    merged: dict[str, Any] = _from_pyproject(os.path.join(directory, "pyproject.toml"))
    places = dict.fromkeys(merged, "[tool.perdure] of pyproject.toml")
    for name in Settings.__struct_fields__:
        text = environment.get(f"PERDURE_{name.upper()}")
        if text is not None:
            merged[name], places[name] = text, f"the environment variable PERDURE_{name.upper()}"
    given = {name: value for name, value in arguments.items() if value is not None}
    merged.update(given)
    places.update(dict.fromkeys(given, ""))
    try:
        return msgspec.convert(merged, Settings, strict=False)
    except Exception as error:  # of msgspec, or of the code of what was given
        if isinstance(error.__cause__, BadArgument):
            raise BadArgument(_located(error.__cause__.message, places)) from None
        said = _located(f"a setting is not acceptable: {_reason(error)}.", places)
        raise BadArgument(f"{said} Known: {', '.join(Settings.__struct_fields__)}.") from None


def _located(text: str, places: Mapping[str, str]) -> str:
    """With where the settings that it names were set, if that was not in the code."""
    found = [place for name, place in places.items() if place and name in text]
    return f"{text} It was set by {' and '.join(dict.fromkeys(found))}." if found else text


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, msgspec.ValidationError) else describe_line(error)


def _from_pyproject(path: str) -> dict[str, Any]:
    if not os.path.exists(path):
        return {}
    import tomllib  # only here: most programs have no such file, and it is slow to import

    try:
        with open(path, "rb") as file:
            section = tomllib.load(file).get("tool", {}).get("perdure", {})
    except (OSError, tomllib.TOMLDecodeError):
        return {}
    return dict(section)
