"""Every public name of `perdure`, listed. A change here is a change of the contract."""

from __future__ import annotations

import types

import perdure

EXPORTED = [
    "BadArgument",
    "BadDefinition",
    "ChildCancelled",
    "ChildFailed",
    "ChildHandle",
    "DeadLetterView",
    "Diverged",
    "Engine",
    "EngineNotOpen",
    "FailedAttempt",
    "Forbidden",
    "HistoryEntry",
    "InboxFull",
    "Invocation",
    "LetterNotFound",
    "MatchFailed",
    "NameClash",
    "NoReply",
    "NonRetryable",
    "NotStorable",
    "PerdureError",
    "PublishedView",
    "RetryAfter",
    "RunCancelled",
    "RunConflict",
    "RunFailed",
    "RunFinished",
    "RunHandle",
    "RunNotFound",
    "RunParked",
    "RunView",
    "SchemaTooNew",
    "Status",
    "Step",
    "StepContext",
    "StepFailed",
    "StepTimeout",
    "StoreUnavailable",
    "StoreUnusable",
    "UnknownWorkflow",
    "UnstorableType",
    "Workflow",
    "cancel",
    "continue_as",
    "current_step",
    "event",
    "info",
    "log",
    "now",
    "patched",
    "publish",
    "random",
    "receive",
    "receive_many",
    "reply",
    "run",
    "send",
    "sleep",
    "sleep_until",
    "start_child",
    "state",
    "status",
    "step",
    "storable",
    "uuid4",
    "wait_for_run",
    "workflow",
]


def test_every_exported_name_is_listed() -> None:
    """DESIGN section 5: all verbs are importable from `perdure`, and nothing else is."""
    public = sorted(
        name
        for name, value in vars(perdure).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    )
    assert public == EXPORTED


def test_every_exported_name_is_documented() -> None:
    """Each has a docstring whose first line is a sentence."""
    for name in EXPORTED:
        value = getattr(perdure, name)
        documentation = (value if callable(value) else type(value)).__doc__ or ""
        assert documentation.strip(), f"{name} has no docstring"
