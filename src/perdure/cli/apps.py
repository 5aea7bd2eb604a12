"""Importing the user's workflows: `--app orders`, `--app shop.orders:fulfil`, `--app path/to/orders.py`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable
from types import ModuleType

from perdure.errors import BadArgument, PerdureError

#: Where frames are that say nothing about why a module cannot be imported.
_NOT_THE_USERS = (os.path.dirname(os.path.dirname(__file__)) + os.sep, importlib.__file__, "<frozen importlib")


def import_apps(targets: Iterable[str]) -> None:
    """Import each module, which registers what it decorates. Raises `BadArgument` for one that fails."""
    _see_directory(os.getcwd())
    for target in targets:
        location, _, attribute = target.partition(":")
        module = _import_file(target) if target.endswith(".py") else _import_named(location)
        if attribute and not target.endswith(".py") and not hasattr(module, attribute):
            raise BadArgument(f"--app {target}: module {location!r} has nothing called {attribute!r}.")


def _see_directory(directory: str) -> None:
    if directory not in sys.path:
        sys.path.insert(0, directory)


def _import_named(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except PerdureError:
        raise  # already says what is wrong with a definition, and where
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise BadArgument(
                f"--app {name}: no module of that name in {os.getcwd()} or on the Python path. "
                "Give a module ('shop.orders') or a file ('orders.py')."
            ) from None
        raise _failed(name, error) from None
    except (Exception, SystemExit) as error:
        raise _failed(name, error) from None


def _failed(target: str, error: BaseException) -> BadArgument:
    """What the user's module raised, the way Python shows it, without the frames of perdure and of the import."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_NOT_THE_USERS)
    ]
    text = "".join([*traceback.format_list(frames), *traceback.format_exception_only(error)]).rstrip("\n")
    return BadArgument(f"--app {target} could not be imported:\n{text}\n  Nothing was started.")


def _import_file(path: str) -> ModuleType:
    """A file by its path, under the name `import` would give it, so that its exceptions can be rebuilt."""
    full = os.path.realpath(path)
    if not os.path.isfile(full):
        raise BadArgument(f"--app {path}: there is no such file.")
    name = os.path.splitext(os.path.basename(full))[0]
    known = sys.modules.get(name)
    if known is not None:
        if getattr(known, "__file__", None) and os.path.realpath(str(known.__file__)) == full:
            return known
        name = f"perdure_app_{name}"  # a file may be called like a module that is already there
    _see_directory(os.path.dirname(full))
    spec = importlib.util.spec_from_file_location(name, full)
    if spec is None or spec.loader is None:
        raise BadArgument(f"--app {path}: not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except PerdureError:
        raise
    except (Exception, SystemExit) as error:
        raise _failed(path, error) from None
    return module
