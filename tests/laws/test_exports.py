"""Every public name of every public module, listed. A change here is a change of the contract."""

from __future__ import annotations

import importlib
import inspect
import types
from pathlib import Path

import pytest

import perdure
from perdure.moved import HOMES

EXPORTED = {
    "perdure": """
        Break ChildCancelled ChildFailed ChildHandle Critical EndedRun Engine Err JoinFailed NonRetryable Ok
        PerdureError RaceFailed RetryAfter Rollback RunCancelled RunFailed RunFinished RunHandle RunNotFound
        StepFailed StepTimeout Winner attempt branch cancel continue_as current_step event info join log loop
        now options patched publish race random receive receive_many removed reply run saga send sleep
        sleep_until start_child state status step storable traverse uuid4 version wait_for_any wait_for_run
        workflow
    """,
    "perdure.admin": """
        Admin Checked DeadLetterView HistoryEntry PublishedView Reason WorkerView
    """,
    "perdure.errors": """
        ActionRefused BadArgument BadDefinition BranchCancelled ChildCancelled ChildFailed CompensationFailed
        CompositionError CorruptRecord Critical DeadLetterNotFound Deadlocked DefinitionError DeterminismWarning
        Diverged EncodingError EngineError EngineNotOpen ExportUnusable Forbidden InboxFull JoinFailed
        LostChange MatchFailed MoveRefused NameClash NeverWaits NoNextState NoReply NonRetryable Nondeterministic
        NotCrashProof NotDecodable NotInStep NotInWorkflow NotReplayable NotRewritable NotStorable PerdureError
        RaceFailed RehearsalError RetryAfter Rollback RunCancelled RunConflict RunError RunFailed RunFinished
        RunMoved RunNotFound RunParked SagaClosed SchemaTooNew SchemaTooOld Spinning StepFailed StepTimeout StoreError
        StoreLost StoreUnavailable StoreUnusable Stuck TooLarge UnknownLocation UnknownWorkflow UnstorableType
        WorkflowError WrongLoop
    """,
    "perdure.testing": """
        Call CrashReport CrashingStore Deadlocked Effects FaultyStore Mock NeverWaits NotCrashProof
        NotReplayable TIMEOUT VirtualEngine check_history crash_everywhere journal_text load_history replays
        save_history virtual_time
    """,
    "perdure.types": """
        Clock Duration FailedAttempt Invocation Registry RunView Saga Settings Status Step StepContext Store
        Wait Workflow
    """,
}
NAMES = {module: names.split() for module, names in EXPORTED.items()}


def public_names(module: types.ModuleType) -> list[str]:
    """Of `perdure.errors` only the errors: beside them stand functions that write them out."""
    found = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    if module.__name__ == "perdure.errors":
        return sorted(n for n, value in found.items() if inspect.isclass(value) and issubclass(value, Exception))
    return sorted(name for name, value in found.items() if not isinstance(value, types.ModuleType))


@pytest.mark.parametrize("module", NAMES)
def test_every_exported_name_is_listed(module: str) -> None:
    """Nothing else can be imported from there."""
    assert public_names(importlib.import_module(module)) == NAMES[module]


def test_the_root_fits_a_head() -> None:
    """About 50 names: decorators, verbs, `Engine`, handles, results, and errors that workflow code meets."""
    assert len(NAMES["perdure"]) <= 60


@pytest.mark.parametrize("module", NAMES)
def test_every_exported_name_is_documented(module: str) -> None:
    """Each has a docstring; an alias of a type is documented where it is defined."""
    for name in NAMES[module]:
        value = getattr(importlib.import_module(module), name)
        documentation = (value if callable(value) else type(value)).__doc__ or ""
        assert documentation.strip(), f"{name} has no docstring"


def test_a_star_import_gives_exactly_the_public_names() -> None:
    """Also those that are loaded when they are first asked for, and no modules."""
    found: dict[str, object] = {}
    exec("from perdure import *", found)
    assert sorted(name for name in found if name != "__builtins__") == NAMES["perdure"]
    assert found["Engine"] is perdure.Engine


@pytest.mark.parametrize("name", HOMES)
def test_a_name_that_left_the_root_is_said_to_be_where_it_is(name: str) -> None:
    """An ImportError for an import, an AttributeError for an attribute, with one text; and it is really there."""
    with pytest.raises(ImportError) as refused:
        exec(f"from perdure import {name}")
    with pytest.raises(AttributeError) as missing:
        getattr(perdure, name)
    assert str(refused.value) == str(missing.value)
    module, _, renamed = HOMES[name].rstrip(",").partition(", as ")
    assert f"cannot import name {name!r} from 'perdure': it is in {module}" in str(refused.value)
    assert (renamed or name) in NAMES[module]
    assert not hasattr(perdure, name)


def test_a_name_that_never_was_gets_the_words_of_python() -> None:
    """So that a typing mistake looks as it does everywhere."""
    with pytest.raises(ImportError, match=r"^cannot import name 'Enginee' from 'perdure' \(.*__init__\.py\)$"):
        exec("from perdure import Enginee")
    with pytest.raises(AttributeError, match=r"^module 'perdure' has no attribute 'enginee'$"):
        getattr(perdure, "enginee")  # noqa: B009


def test_nobody_inside_asks_the_root_for_what_left_it() -> None:
    """The table is for people who come from elsewhere."""
    source = Path(perdure.__path__[0])
    used = [path for path in source.rglob("*.py") if "perdure.moved" in path.read_text()]
    assert used == [source / "__init__.py"]
