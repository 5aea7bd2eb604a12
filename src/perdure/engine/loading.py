"""Scripts that run once more, in a process that perdure started because it wants a step or a workflow of theirs.

Such a process finds what it wants by running the script under another name than `__main__`. A script that opens an
engine at its top level, and not under `if __name__ == "__main__":`, would do all its work again there, and start the
next process. So it is stopped where it does, with what to write instead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from perdure.errors import BadDefinition

#: What is being loaded and what for, while it is.
_now: tuple[str, str] | None = None


@contextlib.contextmanager
def loading(what: str, purpose: str) -> Generator[None]:
    """While code at the top level of a script or module runs once more."""
    global _now
    _now = what, purpose
    try:
        yield
    except (SystemExit, KeyboardInterrupt) as error:
        raise _refusal(f"ends by {type(error).__name__}") from error
    finally:
        _now = None


def refuse_while_loading() -> None:
    """Raises `BadDefinition` if this is code at the top level of what is being loaded."""
    if _now is not None:
        raise _refusal("opens an engine")


def _refusal(does: str) -> BadDefinition:
    what, purpose = _now or ("", "")
    return BadDefinition(
        f"{what} runs once more in a process that perdure started {purpose}, and there {does} at its top level. "
        'Put the code that is for the script itself under `if __name__ == "__main__":`.'
    )
