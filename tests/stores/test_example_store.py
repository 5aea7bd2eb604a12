"""The store of the how-to "Write a store" passes the suite."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from perdure.testing.store import store_suite

_FILE = Path(__file__).parents[2] / "examples" / "log_store.py"
_spec = importlib.util.spec_from_file_location("example_log_store", _FILE)
assert _spec is not None
assert _spec.loader is not None
log_store = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = log_store
_spec.loader.exec_module(log_store)

TestLogStore = store_suite(log_store.LogStore)
