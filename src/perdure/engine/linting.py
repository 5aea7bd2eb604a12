"""Reads the code of a workflow for mistakes when it is first used here, and warns of what it finds.

Not while decorating: half of a module's functions do not exist yet, and programs that only import it should not pay.
Once per process and function; `perdure check --static` says the same of all workflows at once.
"""

from __future__ import annotations

import logging
import warnings
from types import CodeType

from perdure.authoring.registry import Registry
from perdure.authoring.workflow import Workflow
from perdure.errors import DeterminismWarning

logger = logging.getLogger("perdure.lint")

_read: set[CodeType] = set()


class Linter:
    """One per worker. `read` may be called for every run: only the first of a workflow costs anything."""

    def __init__(self, registry: Registry, *, active: bool) -> None:
        self._registry = registry
        self._active = active
        self._known: set[tuple[str, str]] = set()

    def read(self, name: str, version: str) -> None:
        """Raises `DeterminismWarning` where the filters of `warnings` make it an error: nothing has begun yet."""
        if not self._active or (name, version) in self._known:
            return
        self._known.add((name, version))
        workflow = self._registry.definition(name, version)
        if not isinstance(workflow, Workflow) or workflow.function.__code__ in _read:
            return
        _read.add(workflow.function.__code__)
        from perdure.authoring.lint import lint  # a worker that runs no workflow need not know it

        for finding in lint(workflow):
            warnings.warn_explicit(finding.text, DeterminismWarning, finding.file, finding.line)

    def read_quietly(self, name: str, version: str) -> None:
        """For runs that are under way: here a warning that became an error would stop them, and is logged instead."""
        try:
            self.read(name, version)
        except DeterminismWarning as warning:
            logger.warning("%s", warning)
