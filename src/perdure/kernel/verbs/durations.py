"""Lengths of time as people write them: seconds, `timedelta` or text such as `"1h 30m"`."""

from __future__ import annotations

import math
import re
from datetime import timedelta

from perdure import limits
from perdure.errors import BadArgument
from perdure.given import an_instance, number_of, shown, text_of

Duration = float | int | timedelta | str


_UNITS = {
    "us": 1e-6, "microsecond": 1e-6, "ms": 1e-3, "millisecond": 1e-3,
    "s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60,
    "h": 3600, "hour": 3600, "d": 86400, "day": 86400, "w": 604800, "week": 604800,
}  # fmt: skip
_PART = r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*(?:,|and)?\s*"


def seconds_of(duration: Duration, what: str = "a duration") -> float:
    """Seconds of a number, a `timedelta` or a text such as "5 minutes" or "1h 30m"."""
    text = text_of(duration)
    number = number_of(duration)
    if text is not None:
        seconds = _seconds_of_text(text, what)
    elif number is not None:
        seconds = number
    elif an_instance(duration, timedelta):
        seconds = timedelta.total_seconds(duration)  # type: ignore[arg-type]
    else:
        raise BadArgument(
            f"{what} is a number of seconds, a timedelta or a text such as '5 minutes', not {shown(duration)}."
        )
    if math.isnan(seconds) or seconds > limits.DURATION_SECONDS_MAX:
        raise BadArgument(f"{what} must be at most a century, not {shown(duration)}.")
    return seconds


def positive_seconds_of(duration: Duration, what: str) -> float:
    """Like `seconds_of`, but refuses what is below zero."""
    seconds = seconds_of(duration, what)
    if seconds < 0:
        raise BadArgument(f"{what} must not be negative, and {shown(duration)} is.")
    return seconds


def _seconds_of_text(text: str, what: str) -> float:
    pattern = re.compile(_PART, re.IGNORECASE)  # here: most imports of perdure can do without
    position, seconds = 0, 0.0
    while position < len(text):
        part = pattern.match(text, position)
        unit = part and part[2].lower()
        factor = unit and (_UNITS.get(unit) or _UNITS.get(unit.removesuffix("s")))
        if not part or not factor:
            raise BadArgument(
                f"{what} {shown(text)} was not understood. Write for example '90 seconds', '5 minutes' or '1h 30m'."
            )
        seconds += float(part[1]) * factor
        position = part.end()
    if not text.strip():
        raise BadArgument(f"{what} is empty.")
    return seconds
