"""The pytest plugin: there by itself, cheap when unused, at peace with other plugins."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from textwrap import dedent

import pytest

README = Path(__file__).parents[2] / "README.md"


def run_pytest(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *options],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
    )


def write(directory: Path, name: str, text: str) -> None:
    (directory / name).write_text(dedent(text))


def test_it_is_an_entry_point() -> None:
    found = [entry for entry in entry_points(group="pytest11") if entry.value == "perdure_pytest"]
    assert found, "the package is not installed as it is; run `make setup`"


def test_it_imports_nothing_until_it_is_used(tmp_path: Path) -> None:
    """No slower start of anybody's pytest: neither the engine nor msgspec nor apsw."""
    write(
        tmp_path,
        "test_nothing.py",
        """
        import sys

        def test_nothing():
            ours = sorted(name for name in sys.modules if name.startswith("perdure"))
            assert ours == ["perdure_pytest"], ours
            assert "apsw" not in sys.modules
            assert "msgspec" not in sys.modules
        """,
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout


def test_async_tests_that_do_not_take_the_fixture_are_not_ours(tmp_path: Path) -> None:
    write(
        tmp_path,
        "test_other.py",
        """
        import pytest

        @pytest.fixture
        def engine():
            return "somebody else's"

        async def test_with_another_engine(engine):
            pass

        async def test_without():
            pass
        """,
    )
    done = run_pytest(tmp_path, "-W", "default")
    assert "async def functions are not natively supported" in done.stdout
    assert "passed" not in done.stdout


def test_a_failing_test_leaves_nothing_behind(tmp_path: Path) -> None:
    """The fixture ends in order, with warnings as errors: also when the test failed in the middle of a run."""
    write(
        tmp_path,
        "test_failing.py",
        """
        import asyncio
        from perdure import sleep, step, workflow

        @step
        async def work() -> str:
            await asyncio.sleep(5)
            return "done"

        @workflow
        async def long() -> str:
            await sleep("1 day")
            return await work()

        async def test_fails(engine):
            await engine.start(long())
            await engine.advance("1 day")
            assert 1 == 2

        def test_own_loop(engine):
            asyncio.run(start(engine))

        async def start(engine):
            run = await engine.start(long())
            assert await run.result() == "done"

        async def test_passes(engine, tmp_path):
            assert await (await engine.start(long())).result() == "done"
        """,
    )
    done = run_pytest(tmp_path)
    assert re.search(r"1 failed, 2 passed", done.stdout), done.stdout
    assert "assert 1 == 2" in done.stdout
    assert "Task was destroyed" not in done.stdout + done.stderr
    assert "ResourceWarning" not in done.stdout + done.stderr


def _readme_test() -> str:
    (block,) = re.findall(r"<!-- a test -->\n```python\n(.*?)^```$", README.read_text(), re.M | re.S)
    return str(block)


def test_the_test_in_the_readme_is_short_and_passes(tmp_path: Path) -> None:
    """Bar 1: 30 days, two hours of retries and an event, in a test of at most 12 lines."""
    text = _readme_test()
    test = text[text.index("async def test_") :]
    assert len([line for line in test.splitlines() if line.strip()]) <= 12
    for words in ("30 days", "sequence=", "wait_until", "send("):
        assert words in text
    (tmp_path / "test_readme.py").write_text(text)
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_five_hundred_such_tests_take_less_than_thirty_seconds(tmp_path: Path) -> None:
    """Bar 1, in one process; the whole of pytest included. Of its own time: others may be busy on this machine."""
    text = _readme_test()
    repeated = text.replace("async def test_", "@pytest.mark.parametrize('number', range(500))\nasync def test_")
    repeated = repeated.replace("(engine)", "(engine, number)")
    (tmp_path / "test_many.py").write_text("import pytest\n" + repeated)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = run_pytest(tmp_path, "--durations=1")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "500 passed" in done.stdout, done.stdout
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 30
    slowest = re.findall(r"([\d.]+)s (?:call|setup|teardown)", done.stdout)
    assert not slowest or float(slowest[0]) < 5, "one of them waited for real"


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_it_works_in_parallel(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "test_readme.py").write_text(_readme_test())
    assert run_pytest(tmp_path, *options).returncode == 0
