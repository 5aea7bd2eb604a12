"""Every public name of `perdure`, listed. A change here is a change of the contract."""

from __future__ import annotations

import types

import perdure

EXPORTED = [
    "ActionRefused",
    "BadArgument",
    "BadDefinition",
    "BranchCancelled",
    "Break",
    "Checked",
    "ChildCancelled",
    "ChildFailed",
    "ChildHandle",
    "CompensationFailed",
    "Critical",
    "DeadLetterView",
    "DeterminismWarning",
    "Diverged",
    "Engine",
    "EngineNotOpen",
    "Err",
    "ExportUnusable",
    "FailedAttempt",
    "Forbidden",
    "HistoryEntry",
    "InboxFull",
    "Invocation",
    "JoinFailed",
    "LetterNotFound",
    "LostChange",
    "MatchFailed",
    "NameClash",
    "NoNextState",
    "NoReply",
    "NonRetryable",
    "NotRewritable",
    "NotStorable",
    "Ok",
    "PerdureError",
    "PublishedView",
    "RaceFailed",
    "Reason",
    "RetryAfter",
    "Rollback",
    "RunCancelled",
    "RunConflict",
    "RunFailed",
    "RunFinished",
    "RunHandle",
    "RunNotFound",
    "RunParked",
    "RunView",
    "Saga",
    "SagaClosed",
    "SchemaTooNew",
    "SchemaTooOld",
    "Status",
    "Step",
    "StepContext",
    "StepFailed",
    "StepTimeout",
    "StoreLost",
    "StoreUnavailable",
    "StoreUnusable",
    "UnknownLocation",
    "UnknownWorkflow",
    "UnstorableType",
    "Winner",
    "Workflow",
    "attempt",
    "branch",
    "cancel",
    "continue_as",
    "current_step",
    "event",
    "info",
    "join",
    "log",
    "loop",
    "now",
    "options",
    "patched",
    "publish",
    "race",
    "random",
    "receive",
    "receive_many",
    "removed",
    "reply",
    "run",
    "saga",
    "send",
    "sleep",
    "sleep_until",
    "start_child",
    "state",
    "status",
    "step",
    "storable",
    "traverse",
    "uuid4",
    "version",
    "wait_for_run",
    "workflow",
]


def test_every_exported_name_is_listed() -> None:
    """DESIGN section 5: all verbs are importable from `perdure`, and nothing else is."""
    public = sorted(
        name
        for name in dir(perdure)
        if not name.startswith("_") and not isinstance(getattr(perdure, name), types.ModuleType)
    )
    assert public == EXPORTED


def test_every_exported_name_is_documented() -> None:
    """Each has a docstring whose first line is a sentence."""
    for name in EXPORTED:
        value = getattr(perdure, name)
        documentation = (value if callable(value) else type(value)).__doc__ or ""
        assert documentation.strip(), f"{name} has no docstring"


def test_a_star_import_gives_exactly_the_public_names() -> None:
    """Also those that are loaded when they are first asked for, and no modules."""
    found: dict[str, object] = {}
    exec("from perdure import *", found)
    assert sorted(name for name in found if name != "__builtins__") == sorted(EXPORTED)
    assert found["Engine"] is perdure.Engine
