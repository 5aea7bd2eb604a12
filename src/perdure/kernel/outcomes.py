"""How a generation of a run ends.

Each end has a record (`kernel.journal`), which the turn that it ends with writes last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec import Raw

from perdure.kernel.definitions import WorkflowSpec

if TYPE_CHECKING:
    from perdure.kernel.journal import Fault


class Complete(msgspec.Struct, frozen=True, gc=False):
    value: Raw
    abandoned: tuple[str, ...] = ()


class Fail(msgspec.Struct, frozen=True, gc=False):
    error: Fault
    abandoned: tuple[str, ...] = ()


class EndCancelled(msgspec.Struct, frozen=True, gc=False):
    reason: str
    terminated: bool = False
    abandoned: tuple[str, ...] = ()


class Continue(msgspec.Struct, frozen=True, gc=False):
    """Go on under the same id with a fresh journal."""

    workflow: WorkflowSpec
    input: bytes


Outcome: TypeAlias = Complete | Fail | EndCancelled | Continue
