"""The exception tree. Every error says what happened, where, and what to do; its stable code comes last.

    PerdureError
    ├── RunError                    about one run
    │   ├── RunNotFound     P-001   no run has this id
    │   ├── RunConflict     P-002   the id is taken by a different workflow or input
    │   ├── RunFinished     P-003   the run has already ended
    │   ├── RunFailed       P-004   the run ended with an error (its cause)
    │   ├── RunCancelled    P-005   the run was cancelled
    │   ├── RunParked       P-006   the run is stopped until a person or a deploy resolves it
    │   ├── InboxFull       P-007   too many unread events
    │   ├── NoReply         P-801   the run ended without answering a request
    │   └── LetterNotFound  P-802   no dead letter has this number
    ├── WorkflowError               raised into workflow code, or about it
    │   ├── Diverged        P-101   the code no longer matches the journal
    │   ├── NotInWorkflow   P-102   a verb was called outside workflow code
    │   ├── NotInStep       P-103   current_step() was called outside a step
    │   ├── Forbidden       P-104   I/O or another engine call inside workflow code
    │   ├── Spinning        P-105   workflow code ran on and on without ever waiting
    │   ├── Stuck           P-106   workflow code waits for something the engine does not know
    │   ├── ChildFailed     P-107   a child ended with an error (its cause)
    │   ├── ChildCancelled  P-108   a child was cancelled
    │   ├── StepFailed      P-109   a step failed with an error that cannot be rebuilt here
    │   ├── StepTimeout     P-110   an attempt, or all attempts together, took too long (also a TimeoutError)
    │   └── MatchFailed     P-803   the match function of a receive raised
    ├── EncodingError               values and their encoding
    │   ├── NotStorable     P-210   a value that cannot be stored, with the path to it
    │   ├── NotDecodable    P-211   stored bytes that do not fit the type asked for
    │   └── TooLarge        P-212   a value above the size limit
    ├── DefinitionError             found while decorating, before anything runs
    │   ├── NameClash       P-220   two functions under one name
    │   ├── UnstorableType  P-221   an annotation that can never be stored
    │   ├── BadDefinition   P-222   not a function perdure can run, or options that make no sense
    │   └── UnknownWorkflow P-223   no workflow of this name and version is registered
    ├── BadArgument         P-230   an id, a duration or another argument is not acceptable (also a ValueError)
    ├── StoreError                  about the store as a whole
    │   ├── StoreUnavailable P-301  the store did not answer; the call may be repeated safely
    │   ├── StoreUnusable   P-302   the file or server cannot be used at all; says why
    │   ├── SchemaTooNew    P-305   written by a newer perdure
    │   └── CorruptRecord   P-306   a record that is damaged, missing or of an unknown kind
    └── EngineError
        ├── EngineNotOpen   P-401   used before open, after close, or in a forked child
        └── WrongLoop       P-402   used from another event loop or thread

Control signals of step code (raise them to steer retrying; they are ordinary exceptions):
    NonRetryable    P-120   never retry this step
    RetryAfter      P-121   retry, but not before this delay
"""

from __future__ import annotations

from typing import ClassVar

from perdure.limits import DURATION_SECONDS_MAX


class PerdureError(Exception):
    """Base of everything perdure raises on purpose."""

    code: ClassVar[str] = "P-000"

    def __str__(self) -> str:
        return f"{super().__str__()} [{self.code}]"

    @property
    def message(self) -> str:
        """The text without the code."""
        return super().__str__()


# -- one run ---------------------------------------------------------------------------------------------


class RunError(PerdureError):
    """About one run."""


class RunNotFound(RunError):
    """No run has this id."""

    code = "P-001"


class RunConflict(RunError):
    """The id is taken by a run of a different workflow or with a different input."""

    code = "P-002"


class RunFinished(RunError):
    """The run has already ended, so it can take nothing more."""

    code = "P-003"


class RunFailed(RunError):
    """The run ended with an error. `__cause__` is that error, or what could be rebuilt of it."""

    code = "P-004"


class RunCancelled(RunError):
    """The run was cancelled or terminated; the message holds the first reason given."""

    code = "P-005"


class RunParked(RunError):
    """The run is stopped until a person or a deploy resolves the reason in the message. Nothing is lost."""

    code = "P-006"


class InboxFull(RunError):
    """Too many unread events of one type wait for this run. The event was refused, not dropped."""

    code = "P-007"


class NoReply(RunError):
    """The run ended without answering the request."""

    code = "P-801"


class LetterNotFound(RunError):
    """No dead letter has this number: it was replayed or removed, or never was."""

    code = "P-802"


# -- workflow code ---------------------------------------------------------------------------------------


class WorkflowError(PerdureError):
    """Raised into workflow code, or about it."""


class Diverged(WorkflowError):
    """The code no longer matches the journal; the run is parked before any new side effect."""

    code = "P-101"


class NotInWorkflow(WorkflowError):
    """A verb of workflow code was called outside a workflow."""

    code = "P-102"


class NotInStep(WorkflowError):
    """`current_step()` was called outside a step."""

    code = "P-103"


class Forbidden(WorkflowError):
    """I/O, threads or an engine call inside workflow code; the message names the step to write instead."""

    code = "P-104"


class Spinning(WorkflowError):
    """Workflow code ran on and on in one turn without ever waiting for anything durable."""

    code = "P-105"


class Stuck(WorkflowError):
    """Workflow code waits for something the engine does not know, so nothing could ever wake it."""

    code = "P-106"


class ChildFailed(WorkflowError):
    """A child ended with an error; `__cause__` is that error."""

    code = "P-107"


class ChildCancelled(WorkflowError):
    """A child was cancelled by somebody else than its parent."""

    code = "P-108"


class StepFailed(WorkflowError):
    """A step failed with an error that cannot be rebuilt here.

    `type_name` is the original class, `original_message` its text.
    """

    code = "P-109"

    def __init__(self, message: str = "", type_name: str = "", original_message: str = "") -> None:
        super().__init__(message)
        self.type_name = type_name
        self.original_message = original_message


class StepTimeout(WorkflowError, TimeoutError):
    """An attempt, or all attempts of a step together, took longer than allowed."""

    code = "P-110"


class MatchFailed(WorkflowError):
    """The `match` function of a receive raised; the run is parked and the event kept."""

    code = "P-803"


class NonRetryable(PerdureError):
    """Raise this in a step to end its retrying at once. A cause given with `from` is kept."""

    code = "P-120"


class RetryAfter(PerdureError):
    """Raise this in a step to choose the delay before its next attempt.

    `RetryAfter(2.5)` waits at least 2.5 seconds, whatever the policy says; attempts still count.
    """

    code = "P-121"

    def __init__(self, seconds: float, message: str = "") -> None:
        if not 0 <= seconds <= DURATION_SECONDS_MAX:  # also refuses NaN
            raise BadArgument(f"RetryAfter takes a number of seconds between 0 and a century, not {seconds}.")
        super().__init__(message or f"retry after {seconds} s")
        self.seconds = seconds


# -- values ----------------------------------------------------------------------------------------------


class EncodingError(PerdureError):
    """About values crossing the durable boundary."""


class NotStorable(EncodingError):
    """A value that cannot be stored; the message holds the path to it, such as `$.rows[3].conn`."""

    code = "P-210"


class NotDecodable(EncodingError):
    """Stored bytes that do not fit the type asked for; the message holds the path."""

    code = "P-211"


class TooLarge(EncodingError):
    """A value above the size limit (see `perdure.limits`)."""

    code = "P-212"


# -- definitions -----------------------------------------------------------------------------------------


class DefinitionError(PerdureError):
    """Found while decorating, before anything runs."""


class NameClash(DefinitionError):
    """Two different functions were registered under one name; both places are named."""

    code = "P-220"


class UnstorableType(DefinitionError):
    """An annotation that can never be stored, with file, line, parameter and type."""

    code = "P-221"


class BadDefinition(DefinitionError):
    """Not a function that perdure can run, or options that make no sense."""

    code = "P-222"


class UnknownWorkflow(DefinitionError):
    """No workflow of this name (and version) is registered; close names are listed."""

    code = "P-223"


class BadArgument(PerdureError, ValueError):
    """An id, a duration or another argument is not acceptable; nothing was written."""

    code = "P-230"


# -- stores ----------------------------------------------------------------------------------------------


class StoreError(PerdureError):
    """About the store as a whole."""


class StoreUnavailable(StoreError):
    """The store did not answer. Whether it took effect is unknown; every call is safe to repeat."""

    code = "P-301"


class StoreUnusable(StoreError):
    """The file or server cannot be used at all; the message says why and what to do."""

    code = "P-302"


class SchemaTooNew(StoreError):
    """The store was written by a newer perdure."""

    code = "P-305"


class CorruptRecord(StoreError):
    """A record that is damaged, missing, or of a kind this release does not know."""

    code = "P-306"


# -- engine ----------------------------------------------------------------------------------------------


class EngineError(PerdureError):
    """About how the engine is used."""


class EngineNotOpen(EngineError):
    """The engine was used before `open`, after `close`, or in a forked child."""

    code = "P-401"


class WrongLoop(EngineError):
    """The engine was used from another event loop or thread than the one it was opened on."""

    code = "P-402"


def describe(error: BaseException) -> str:
    """One safe line about any exception, even one whose `__str__` raises."""
    try:
        text = str(error)
    except Exception:
        text = "<its message could not be read>"
    return f"{type(error).__qualname__}: {text}" if text else type(error).__qualname__
