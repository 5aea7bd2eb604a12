"""Making the kernel's object of a run, with what this worker's settings say."""

from __future__ import annotations

from perdure.authoring.registry import Registry
from perdure.engine.linting import Linter
from perdure.engine.settings import Settings
from perdure.kernel.definitions import WorkflowSpec
from perdure.kernel.eventloop.hosting import TurnMonitor
from perdure.kernel.run import Run


class RunFactory:
    """One per worker."""

    def __init__(self, registry: Registry, settings: Settings, linter: Linter, monitor: TurnMonitor) -> None:
        self._registry = registry
        self._settings = settings
        self._linter = linter
        self._monitor = monitor
        #: What runs are made from; tests have another.
        self.run_class: type[Run] = Run

    def begin(self, spec: WorkflowSpec, run_id: str, generation: int) -> Run:
        """For a run that begins here: its code was read for mistakes when it was asked for."""
        return self.run_class(
            spec,
            run_id,
            generation,
            latest=self._registry.latest,
            arguments_check=self._settings.arguments_check,
            io_check=self._settings.io_check,
            monitor=self._monitor,
        )

    def go_on(self, spec: WorkflowSpec, run_id: str, generation: int) -> Run:
        """For a run that is under way: its code may not have been read here yet."""
        self._linter.read_quietly(spec.name, spec.version)
        return self.begin(spec, run_id, generation)
