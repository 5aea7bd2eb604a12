"""From a command line to the recorded input of a workflow, by the workflow's own annotations."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Raw

from perdure.authoring.registry import registry
from perdure.errors import BadArgument, NotDecodable, UnknownWorkflow
from perdure.kernel.definitions import WorkflowSpec


def find_workflow(name: str, version: str | None) -> WorkflowSpec:
    """Raises `UnknownWorkflow` with the close names, or the versions there are."""
    newest = registry.latest(name)
    if version is None:
        return newest
    spec = registry.workflow(name, version)
    if spec is None:
        known = ", ".join(registry.workflow_names()[name])
        raise UnknownWorkflow(f"workflow {name!r} has no version {version!r}. Known: {known}.")
    return spec


def arguments_of(spec: WorkflowSpec, pairs: Sequence[str], document: str | None) -> bytes:
    """The input as `workflow(...)` in Python would record it, so that both mean the same run under one id."""
    if pairs and document is not None:
        raise BadArgument("give the arguments either as NAME=VALUE or with --input, not both.")
    values = _from_document(document) if document is not None else _from_pairs(spec, pairs)
    _check_names(spec, values)
    data = msgspec.json.encode(values)
    args, kwargs = spec.arguments.decode(data)
    return _as_called(spec, values, args, kwargs)


def _as_called(
    spec: WorkflowSpec, given: Mapping[str, Raw], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> bytes:
    """Encode again what was decoded: only what was given, in the order and form of the function."""
    parameters = inspect.signature(spec.function).parameters.values()
    if any(p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        return spec.arguments.encode(args, kwargs)
    names = [p.name for p in parameters]
    decoded = {**dict(zip(names, args, strict=False)), **kwargs}
    return spec.arguments.encode((), {name: decoded[name] for name in names if name in given})


def _from_document(text: str) -> dict[str, Raw]:
    try:
        return msgspec.json.decode(text.encode(), type=dict[str, Raw])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadArgument(
            f'--input is not a JSON object: {error}. Write for example --input \'{{"order_id": "o-1"}}\'.'
        ) from None


def _from_pairs(spec: WorkflowSpec, pairs: Sequence[str]) -> dict[str, Raw]:
    values: dict[str, Raw] = {}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator:
            raise BadArgument(f"{pair!r} is not NAME=VALUE. {_signature(spec)}")
        if name in values:
            raise BadArgument(f"the argument {name!r} is given twice.")
        values[name] = _value(spec, name, text)
    return values


def _value(spec: WorkflowSpec, name: str, text: str) -> Raw:
    """JSON if the parameter's type takes it so, else text: `cents=1999` is a number, `order_id=1999` text."""
    as_text = Raw(msgspec.json.encode(text))
    try:
        msgspec.json.decode(text.encode())
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return as_text
    as_json = Raw(text.encode())  # as it was written: 1.50 is not 1.5 to a Decimal
    codec = spec.arguments.codec_of(name)
    if codec is None:
        return as_json
    try:
        codec.decode(as_json, name)
    except NotDecodable:
        return as_text
    return as_json


def _check_names(spec: WorkflowSpec, values: Mapping[str, Raw]) -> None:
    """Here rather than in the codec, whose words are about old journals."""
    parameters = inspect.signature(spec.function).parameters
    unknown = [name for name in values if name not in parameters]
    if unknown:
        raise BadArgument(f"workflow {spec.name!r} takes no argument {unknown[0]!r}. {_signature(spec)}")
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for name, parameter in parameters.items():
        if name not in values and parameter.default is parameter.empty and parameter.kind not in variadic:
            raise BadArgument(f"workflow {spec.name!r} needs the argument {name!r}. {_signature(spec)}")


def _signature(spec: WorkflowSpec) -> str:
    return f"It is {spec.name}{inspect.signature(spec.function)}."
