"""`perdure start`: arguments by annotation, one id for one run, and exit codes by outcome."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.cli_kit import APP, invoke, invoke_json, with_engine
from perdure import Engine
from perdure.authoring.registry import registry
from perdure.types import Invocation


def test_prints_the_id_of_a_run_that_a_worker_can_take(store: Path) -> None:
    result = invoke("start", "cli_order", "order_id=o-1", "--id", "one", "--app", APP, store=store)
    assert (result.exit_code, result.stdout) == (0, "one\n")
    shown = invoke_json("show", "one", store=store)
    assert shown["status"] == "pending"
    assert shown["input"] == {"order_id": "o-1", "cents": 500}


def test_values_are_read_by_the_annotations(store: Path) -> None:
    """FAULTS F6: text that looks like a number stays text where text is asked for."""
    args = ("price=1.50", 'tags=["a", "b"]', "note=7", "--app", APP, "--work", "--json")
    result = invoke("start", "cli_echo", *args, store=store)
    assert json.loads(result.stdout)["result"] == {"price": "1.50", "tags": "a+b", "note": "'7'"}


@pytest.mark.parametrize("how", [("order_id=o-1", "cents=7"), ("--input", '{"cents": 7,   "order_id": "o-1"}')])
def test_the_command_line_and_python_mean_the_same_run(store: Path, how: tuple[str, ...]) -> None:
    """CONFORMANCE L3: same id, workflow and input is the same run, no matter which process starts it and how it is
    written."""
    invoke("start", "cli_order", *how, "--id", "one", "--app", APP, store=store)
    spec = registry.latest("cli_order")

    async def again(engine: Engine) -> str:
        invocation: Invocation[str] = Invocation(spec, spec.arguments.encode(("o-1", 7), {}), "test")
        return (await engine.start(invocation, id="one")).id

    assert with_engine(store, again, worker=False) == "one"
    assert len(invoke_json("ls", store=store)["runs"]) == 1


def test_another_input_under_the_same_id_is_a_conflict(store: Path) -> None:
    """The command says so, and the run that is there goes on. CONFORMANCE L3."""
    invoke("start", "cli_order", "order_id=o-1", "--id", "one", "--app", APP, store=store)
    result = invoke("start", "cli_order", "order_id=o-2", "--id", "one", "--app", APP, store=store)
    assert result.exit_code == 1
    assert result.stderr.startswith("RunConflict: ")
    assert result.stderr.rstrip().endswith("[P-002]")


def test_an_unknown_workflow_is_refused_with_close_names(store: Path) -> None:
    """A typing error in a name is answered with the names that look like it. FAULTS F3."""
    result = invoke("start", "cli_ordr", "--app", APP, store=store)
    assert result.exit_code == 1
    assert "cli_order" in result.stderr
    assert "[P-223]" in result.stderr
    assert not store.exists()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "needs the argument 'order_id'"),
        (("order_id=o", "colour=red"), "takes no argument 'colour'"),
        (("order_id=o", "cents=many"), "cents"),
        (("order_id",), "NAME=VALUE"),
        (("order_id=o", "order_id=p"), "twice"),
        (("--input", "[1]"), "JSON object"),
        (("--input", "{"), "JSON object"),
        (("order_id=o", "--input", "{}"), "not both"),
        (("order_id=o", "--id", "a/b"), "run id"),
        (("order_id=o", "--version", "9"), "Known: 1"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_written(store: Path, args: tuple[str, ...], says: str) -> None:
    """No run exists afterwards. FAULTS F6, F1."""
    result = invoke("start", "cli_order", *args, "--app", APP, store=store)
    assert result.exit_code == 1
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    if store.exists():
        assert invoke_json("ls", store=store)["runs"] == []


def test_a_version_can_be_chosen(store: Path) -> None:
    old = invoke_json("start", "cli_versioned", "--version", "1", "--work", "--app", APP, store=store)
    new = invoke_json("start", "cli_versioned", "--work", "--app", APP, store=store)
    assert (old["result"], new["result"]) == ("one", "two")


def test_waiting_for_a_run_that_fails_ends_with_4(store: Path) -> None:
    result = invoke("start", "cli_fail", "text=no card", "--work", "--app", APP, store=store)
    assert result.exit_code == 4
    assert "ValueError: no card" in result.stderr
    assert "[P-004]" in result.stderr
    told = invoke_json("start", "cli_fail", "text=x", "--work", "--app", APP, store=store)
    assert (told["status"], told["error"], told["code"]) == ("failed", "RunFailed", "P-004")


def test_waiting_ends_with_5_when_the_timeout_is_over(store: Path) -> None:
    """FAULTS F10: the run is not disturbed."""
    args = ("cli_order", "order_id=o", "--wait", "--timeout", "0.01", "--app", APP)
    assert invoke("start", *args, store=store).exit_code == 5
    assert invoke_json("ls", store=store)["counts"] == {"pending": 1}


def test_a_module_that_cannot_be_imported_is_named(store: Path, tmp_path: Path) -> None:
    broken = tmp_path / "cli_broken.py"
    broken.write_text("import no_such_thing_at_all")
    for app, says in [("cli_no_such_module", "no module of that name"), (str(broken), "no_such_thing_at_all")]:
        result = invoke("start", "x", "--app", app, store=store)
        assert result.exit_code == 1
        assert says in result.stderr
    assert invoke("start", "x", store=store).exit_code == 2


def test_store_and_code_may_come_from_the_environment(store: Path) -> None:
    env = {"PERDURE_STORE": str(store), "PERDURE_APP": f"{APP}, json"}
    assert invoke("start", "cli_versioned", "--id", "one", env=env).exit_code == 0
    assert invoke("ls", env=env).stdout.count("cli_versioned") == 1
