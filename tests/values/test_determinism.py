"""Equal values have equal bytes in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from values.value_samples import *
from perdure.kernel.values import codec_for
words = ["w%d" % i for i in range(40)]
out = [
    codec_for(None).encode({"s": set(words), "f": frozenset((w, 1) for w in words)}, "x"),
    codec_for(None).encode({1, "a", None, 2.5, (b"b",)}, "x"),
    codec_for(set[str]).encode(set(words), "x"),
    codec_for(set[frozenset[str]]).encode({frozenset(words[i : i + 3]) for i in range(9)}, "x"),
    codec_for(dict[str, set[str]]).encode({"z": set(words), "a": set()}, "x"),
    codec_for(Person).encode(Person("a", set(words)), "x"),
    codec_for(Strict).encode(Strict(names=("a",), members=set(range(99))), "x"),
    codec_for(set[Colour]).encode(set(Colour), "x"),
]
sys.stdout.buffer.write(b"\\n".join(out))
"""


def test_sets_are_encoded_in_one_order_under_any_hash_seed() -> None:
    """CONFORMANCE P3, FAULTS E9: three PYTHONHASHSEEDs, the same bytes."""
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root / "src"), str(root / "tests")])
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
        )
        for seed in ("0", "1", "12345")
    ]
    outputs = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0]
    assert len(set(outputs)) == 1
    assert outputs[0].count(b"\n") == 7
