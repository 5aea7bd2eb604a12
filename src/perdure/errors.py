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
    │   ├── RunMoved        P-008   the run is in another store now; says in which
    │   ├── ActionRefused   P-701   resume, fork, delete... makes no sense for this run now; says why
    │   ├── UnknownLocation P-702   no record of the run is at this location; near ones are named
    │   ├── NoReply         P-801   the run ended without answering a request
    │   └── DeadLetterNotFound P-802 no dead letter has this number
    ├── WorkflowError               raised into workflow code, or about it
    │   ├── Diverged        P-101   the code no longer matches the journal
    │   ├── NotInWorkflow   P-102   a verb was called outside workflow code
    │   ├── NotInStep       P-103   current_step() was called outside a step
    │   ├── Forbidden       P-104   I/O or another engine call inside workflow code
    │   │   └── Nondeterministic P-111  a value that differs on replay, read inside workflow code (in tests)
    │   ├── Spinning        P-105   workflow code ran on and on without ever waiting
    │   ├── Stuck           P-106   workflow code waits for something the engine does not know
    │   ├── ChildFailed     P-107   a child ended with an error (its cause)
    │   ├── ChildCancelled  P-108   a child was cancelled
    │   ├── StepFailed      P-109   a step failed with an error that cannot be rebuilt here
    │   ├── StepTimeout     P-110   an attempt, or all attempts together, took too long (also a TimeoutError)
    │   ├── MatchFailed     P-803   the match function of a receive raised
    │   └── CompositionError        raised by race, join, loop and saga into workflow code
    │       ├── JoinFailed      P-601   branches of a join failed: a group of their errors
    │       ├── RaceFailed      P-602   every branch of a race for the first success failed: a group
    │       ├── BranchCancelled P-603   a branch ended by a CancelledError that nobody asked for
    │       ├── NoNextState     P-604   the body of a loop returned nothing although the loop has state
    │       ├── CompensationFailed P-605 compensations of a saga failed: a group; the others were carried out
    │       └── SagaClosed      P-606   a step was asked of a saga that is being undone, or is over
    ├── EncodingError               values and their encoding
    │   ├── NotStorable     P-210   a value that cannot be stored, with the path to it
    │   ├── NotDecodable    P-211   stored bytes that do not fit the type asked for
    │   ├── TooLarge        P-212   a value above the size limit
    │   └── ExportUnusable  P-703   a file that is damaged, or no export of a run
    ├── DefinitionError             found while decorating, before anything runs
    │   ├── NameClash       P-220   two functions under one name
    │   ├── UnstorableType  P-221   an annotation that can never be stored
    │   ├── BadDefinition   P-222   not a function perdure can run, or options that make no sense
    │   ├── UnknownWorkflow P-223   no workflow of this name and version is registered
    │   └── NotRewritable   P-224   code that auto mode cannot make durable, with its line and the way out
    ├── BadArgument         P-230   an id, a duration or another argument is not acceptable (also a ValueError)
    ├── StoreError                  about the store as a whole
    │   ├── StoreUnavailable P-301  the store did not answer; the call may be repeated safely
    │   ├── StoreUnusable   P-302   the file or server cannot be used at all; says why
    │   │   └── StoreLost   P-307   a file of the store was deleted or replaced while it was open
    │   ├── SchemaTooNew    P-305   written by a newer perdure
    │   ├── SchemaTooOld    P-308   written by an older perdure, and migrating it was not allowed
    │   ├── MoveRefused     P-309   runs cannot be moved to that store; says why
    │   └── CorruptRecord   P-306   a record that is damaged, missing or of an unknown kind
    ├── EngineError
    │   ├── EngineNotOpen   P-401   used before open, after close, or in a forked child
    │   └── WrongLoop       P-402   used from another event loop or thread
    └── RehearsalError              what `perdure.testing` finds (also an AssertionError)
        ├── Deadlocked      P-901   the test waits for something that can never happen
        ├── NeverWaits      P-902   the run does not come to wait for what the test said
        ├── NotCrashProof   P-903   a crash changes what a workflow does; says where and probably why
        └── NotReplayable   P-904   a saved history does not fit the code of today

Control signals of step code (raise them to steer retrying; they are ordinary exceptions):
    NonRetryable    P-120   never retry this step
    RetryAfter      P-121   retry, but not before this delay
    Critical        P-607   never retry: no attempt could help (a NonRetryable)
    LostChange      P-225   a function that auto mode recorded changed a value of its caller (a NonRetryable)
    Rollback        P-608   undo the saga on purpose; never retried either (a NonRetryable)

`DeterminismWarning` is no error: what the lint of workflow code warns of, for the filters of Python's `warnings`.

Over 450 lines, and still one thing: the tree, each class with its code and its docstring.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from perdure.given import qualified_name
from perdure.limits import DURATION_SECONDS_MAX, ERROR_LINE_CHARS_MAX


class DeterminismWarning(UserWarning):
    """Workflow code that a replay would not repeat, found by reading it. Points at the line."""


class PerdureError(Exception):
    """Base of everything perdure raises on purpose."""

    code: ClassVar[str] = "P-000"
    #: Whether the code is shown behind the text. Not for what users raise themselves: their texts are theirs, and go to
    #: people who have never heard of perdure (tests/values/test_own_texts.py).
    shows_code: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__.partition(".")[0] != "perdure":
            cls.shows_code = False

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text} [{self.code}]" if self.shows_code else text

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


class RunMoved(RunError):
    """The run is in another store now, and goes on there. `location` is the URL of that store, without its password."""

    code = "P-008"

    def __init__(self, message: str, location: str = "") -> None:
        super().__init__(message)
        self.location = location


class ActionRefused(RunError):
    """The action makes no sense for this run as it is now; the message says why. Nothing was written."""

    code = "P-701"


class UnknownLocation(RunError):
    """No record of the run is at this location; near ones are named. Nothing was written."""

    code = "P-702"


class NoReply(RunError):
    """The run ended without answering the request."""

    code = "P-801"


class DeadLetterNotFound(RunError):
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


class Nondeterministic(Forbidden):
    """Workflow code read something that differs on a replay; raised by the strict guard of `perdure.testing`."""

    code = "P-111"


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
    shows_code = False


class RetryAfter(PerdureError):
    """Raise this in a step to choose the delay before its next attempt.

    `RetryAfter(2.5)` waits at least 2.5 seconds, whatever the policy says; attempts still count.
    """

    code = "P-121"
    shows_code = False

    def __init__(self, seconds: float, message: str = "") -> None:
        if not 0 <= seconds <= DURATION_SECONDS_MAX:  # also refuses NaN
            raise BadArgument(f"RetryAfter takes a number of seconds between 0 and a century, not {seconds}.")
        super().__init__(message or f"retry after {seconds} s")
        self.seconds = seconds


class Critical(NonRetryable):
    """Raise this in a step when no further attempt could help. A cause given with `from` is kept."""

    code = "P-607"


class LostChange(NonRetryable):
    """A function that auto mode recorded changed a value of its caller: a replay, which does not call it, would not."""

    code = "P-225"
    shows_code = True  # perdure raises this one


class Rollback(NonRetryable):
    """Raise this in a saga, or in one of its steps, to have it undone on purpose. It goes on to the caller."""

    code = "P-608"


# -- composition -----------------------------------------------------------------------------------------


class CompositionError(WorkflowError):
    """Raised by `race`, `join`, `loop` and `saga` into workflow code."""


class _Failures(CompositionError, ExceptionGroup[Exception]):
    """A group whose members have names: `errors` maps each to its error. `except*` and `split` keep class and names."""

    #: One name for each of `exceptions`, in the same order.
    names: tuple[str, ...]

    def __new__(cls, message: str, exceptions: Sequence[Exception], names: Sequence[str] = ()) -> Self:
        self = super().__new__(cls, message, exceptions)
        self.names = tuple(names)
        return self

    def __init__(self, message: str, exceptions: Sequence[Exception], names: Sequence[str] = ()) -> None:
        super().__init__(message, exceptions)

    @property
    def message(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The text without the code and without the number of members."""
        return str(self.args[0])

    @property
    def errors(self) -> dict[str, Exception]:
        """The errors by the name of what raised them."""
        return dict(zip(self.names, self.exceptions, strict=False))

    def derive(self, excs: Sequence[Exception], /) -> Self:  # type: ignore[override]
        named = {id(error): name for name, error in zip(self.names, self.exceptions, strict=False)}
        return type(self)(self.message, excs, [named.get(id(error), "") for error in excs])


class JoinFailed(_Failures):
    """Branches of a `join` failed; all have ended. `errors` maps their names to their errors."""

    code = "P-601"


class RaceFailed(_Failures):
    """No branch of a race for the first success succeeded. `errors` maps their names to their errors."""

    code = "P-602"


class BranchCancelled(CompositionError):
    """A branch ended by a CancelledError that did not come from its waiter."""

    code = "P-603"


class NoNextState(CompositionError):
    """The body of a loop with state returned nothing, so there is nothing to go on with."""

    code = "P-604"


class CompensationFailed(_Failures):
    """Compensations of a saga failed after all their attempts; the others were carried out.

    `errors` maps what could not be undone to why, `undone` names what was; `__cause__` is why the saga was undone.
    """

    code = "P-605"
    #: Names of the steps that were undone, in the order of undoing.
    undone: tuple[str, ...] = ()


class SagaClosed(CompositionError):
    """A saga that is being undone, or is over, takes no more steps."""

    code = "P-606"


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


class ExportUnusable(EncodingError):
    """A file that is damaged, changed, or no export of a run. Nothing was written."""

    code = "P-703"


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


class NotRewritable(DefinitionError):
    """Code that auto mode cannot make durable; says where it is and what to write instead."""

    code = "P-224"


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


class StoreLost(StoreUnusable):
    """A file of the store was deleted or replaced while it was open: nobody would ever read what is written to it.
    Nothing works on it any more; a worker stops."""

    code = "P-307"


class SchemaTooNew(StoreError):
    """The store was written by a newer perdure."""

    code = "P-305"


class SchemaTooOld(StoreError):
    """The store was written by an older perdure, and migrating it was not allowed."""

    code = "P-308"


class MoveRefused(StoreError):
    """Runs cannot be moved from this store to that one. Says why, and what there is to do."""

    code = "P-309"


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


# -- testing ---------------------------------------------------------------------------------------------


class RehearsalError(PerdureError, AssertionError):
    """What `perdure.testing` finds; a test that fails."""


class Deadlocked(RehearsalError):
    """The test waits for something that can never happen; the message says what the runs wait for."""

    code = "P-901"


class NeverWaits(RehearsalError):
    """The run ended, or stands still, without ever waiting for what the test said."""

    code = "P-902"


class NotCrashProof(RehearsalError):
    """A crash changes what a workflow does. The message says at which record, what differs and what is likely wrong."""

    code = "P-903"


class NotReplayable(RehearsalError):
    """A saved history does not fit the code of today, or cannot be read."""

    code = "P-904"


def describe(error: BaseException) -> str:
    """Class and text of any exception, even one whose `__str__` raises."""
    name = qualified_name(type(error))
    try:
        text = str.__str__(str(error))
    except Exception:
        text = "<its message could not be read>"
    return written_out(f"{name}: {text}" if text else name)


def written_out(text: str) -> str:
    """A text for people in a form that every store takes: what UTF-8 cannot carry (half a character, as `os.fsdecode`
    makes them) becomes an escape. For texts that come from exceptions and from people; what tells one thing from
    another (ids, keys, names) is refused instead."""
    return text.encode("utf-8", "backslashreplace").decode()


def describe_line(error: BaseException) -> str:
    """`describe` in one bounded line, for logs and lists: an exception's text is the user's, and may be long."""
    return one_line(describe(error))


def one_line(text: str) -> str:
    """The first line of a text, bounded."""
    first = text.partition("\n")[0]
    return first if len(first) <= ERROR_LINE_CHARS_MAX else f"{first[:ERROR_LINE_CHARS_MAX]}..."
