"""Where in a run something happens: a readable path that is the same on every replay.

The path of the branch (one for each task the run creates) and a name, with `#n` from its second use in that branch:
`charge`, `charge#2`, `fetch-all/user/get`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from perdure.kernel.iterations import Iteration


class Branch(msgspec.Struct, eq=False):
    """Where a task of the run stands; counts the names used in it so that each operation gets its own location."""

    path: str = ""
    #: A task made of a single operation (`gather(ship(), notify())`) lends its own path to it, so that
    #: wrapping a step in a task does not change its location: `ship`, not `ship/ship`. False once it has.
    single: bool = False
    #: Where the task was made, for an operation in it that no code of the user's asks for (`gather(sleep(1))`).
    site: str = ""
    #: The iteration of a durable loop that everything in this branch is part of.
    scope: Iteration | None = None
    counts: dict[str, int] | None = None  # made when it is needed, which it is not in the branch of a single operation
    #: In library code (`kernel.verbs.branch`): tasks in it are called `task`, whatever the library calls them.
    names_no_tasks: bool = False

    def below(self, path: str) -> Branch:
        """A branch inside of this one."""
        return Branch(path, scope=self.scope, names_no_tasks=self.names_no_tasks)

    def locate(self, name: str) -> str:
        """The location of the next operation called `name` in this branch."""
        if self.single:
            self.single = False
            return self.path
        counts = self.counts
        if counts is None:
            counts = self.counts = {}
        counts[name] = count = counts.get(name, 0) + 1
        if count > 1:
            name = f"{name}#{count}"
        return f"{self.path}/{name}" if self.path else name
