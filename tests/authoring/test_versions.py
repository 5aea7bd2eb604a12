"""Which version of a workflow is the newest, and how workflow code compares its own."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from perdure import info, version, workflow
from perdure.authoring.registry import registry
from perdure.kernel.versions import Version, newest, version_order
from support.lives import Lives, run_async

#: Each list is in order, from the oldest to the newest.
IN_ORDER = [
    ["v1", "v9", "v10", "v11.2"],
    ["2.0.dev1", "2.0a1.dev3", "2.0-a1", "2.0a1.post1", "2.0.beta2", "2.0-rc1", "2.0rc10", "2.0", "2.0.post1", "2.1"],
    ["1", "2", "2-hotfix", "2-hotfix.2", "3", "1!0.1"],
    ["1.9", "1.10", "1.10+build.7", "1.10+build.12"],
    ["2026-09-30", "2026-10-01", "2026-10-02"],
    ["beta", "release 9", "release 10", "0", "1"],
]


@pytest.mark.parametrize("versions", IN_ORDER, ids=lambda versions: versions[0])
def test_versions_are_ordered_as_people_read_them(versions: list[str]) -> None:
    """PEP 440 where it explains a version, natural order elsewhere; never the order of texts."""
    mixed = list(versions)
    for seed in range(5):
        random.Random(seed).shuffle(mixed)
        assert sorted(mixed, key=version_order) == versions
        assert newest(mixed) == versions[-1]
    for older, newer in itertools.pairwise(versions):
        assert Version(older) < newer
        assert Version(newer) > older
        assert older < Version(newer)
        assert not Version(older) >= newer


def test_a_new_run_takes_the_newest_version_and_not_the_last_text() -> None:
    """Text order would take v9 instead of v10, and the release candidate instead of the release."""
    for name, versions in (("counted-flow", ["v9", "v10"]), ("released-flow", ["2.0", "2.0-rc1"])):
        for number in versions:

            async def versioned() -> None: ...

            versioned.__qualname__ = f"{name}_{number}"
            workflow(name=name, version=number)(versioned)
    assert registry.latest("counted-flow").version == "v10"
    assert registry.latest("released-flow").version == "2.0"


@workflow(name="comparing-versions", version="2.10")
async def comparing() -> list[bool]:
    own: Any = version()
    return [own >= "2.9", own < "2.11", own == "2.10", own > "2.10rc1", info().version <= "2.10"]


def test_workflow_code_compares_its_version_with_a_text(lives: Lives) -> None:
    """As text, 2.10 would come before 2.9."""

    async def main() -> list[bool]:
        async with lives.engine() as engine:
            return await (await engine.start(comparing(), id="run")).result()

    assert run_async(main()) == [True] * 5


@pytest.mark.parametrize(
    "text", ["1", "10.2", "2024-01-31", "v2", "1.0+build.7", "²", "1.", "beta", "٣", "1" * 50, "v", "!", "1!", " 2 "]
)
def test_any_version_text_can_be_ordered(text: str) -> None:
    """The order never raises, whatever people call their versions."""
    others = ["1", "2.1", "word", "2-x"]
    assert sorted([text, *others], key=version_order)[0] in (text, "word")
    assert version_order(text) <= version_order(text) < version_order("9!1")


def test_a_version_equals_its_text_only() -> None:
    """`2` and `2.0` are two versions of a workflow, of which neither is newer; all processes choose the same one."""
    assert Version("2") == "2"
    assert Version("2") != "2.0"
    assert Version("2") >= "2.0" >= Version("2")
    assert hash(Version("2")) == hash("2")
    assert newest(["2", "2.0"]) == newest(["2.0", "2"]) == "2.0"
