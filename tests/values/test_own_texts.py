"""What users raise says what they wrote: no code of perdure's gets into it."""

from __future__ import annotations

import pytest

from perdure import Critical, NonRetryable, PerdureError, RetryAfter, Rollback
from perdure.errors import LostChange, NotStorable
from perdure.kernel.values.faults import decode_error, encode_error


class Declined(NonRetryable):
    """A user's own."""


class OutOfStock(PerdureError):
    """Another."""


@pytest.mark.parametrize("kind", [NonRetryable, Critical, Rollback, Declined, OutOfStock])
def test_the_text_is_the_users_also_after_it_was_recorded(kind: type[PerdureError]) -> None:
    error = kind("card declined")
    assert str(error) == "card declined"
    assert str(RetryAfter(2.5, "come back later")) == "come back later"
    fault = encode_error(error)
    assert fault.message == "card declined"
    assert str(decode_error(fault)) == "card declined"


def test_what_perdure_raises_keeps_its_code() -> None:
    assert str(LostChange("a list was changed.")) == "a list was changed. [P-225]"
    assert str(NotStorable("$.x is a socket.")) == "$.x is a socket. [P-210]"
