"""The watchdog looks at frames while the garbage collector has much to do."""

from __future__ import annotations

import gc
import threading

from perdure.engine.watchdog import _frame_of
from support.processes import first_lines


class Cycle:
    """Garbage that only the collector frees, and with it something that belongs to a thread."""

    def __init__(self) -> None:
        self.me = self
        self.local = threading.local()
        self.local.value = 1


def look_often() -> None:
    """Many threads wait, garbage is made all the time, and a thread looks at frames."""
    gc.set_threshold(5)
    over, main = threading.Event(), threading.get_ident()

    def look() -> None:
        for _ in range(2_000):
            Cycle()
            assert _frame_of(main) is not None

    for _ in range(20):
        threading.Thread(target=over.wait, daemon=True).start()
    for _ in range(5):
        looking = threading.Thread(target=look)
        looking.start()
        looking.join()
    over.set()
    print(f"looked, collector {'on' if gc.isenabled() else 'off'}", flush=True)


def test_looking_at_a_thread_while_garbage_is_collected_never_stands_still() -> None:
    """FAULTS D13: on CPython 3.11 a collection in `sys._current_frames` waits for itself, and all others for it."""
    assert first_lines("guard.test_watchdog_and_collector:look_often", environments=[{}]) == ["looked, collector on"]
