"""Values across the durable boundary: the door to what the rest of perdure uses.

values.py       one value of one annotation       ValueCodec, codec_for, why_not_storable
arguments.py    the arguments of one function     ArgumentsCodec
annotations.py  what a type says about its values
exact.py        is what came back the same?       difference
tagged.py       JSON for values without a type
shapes.py       classes as data                   storable
instances.py    instances with fields: their state, and making them again
models.py       pydantic models
quiet.py        plain JSON without running `__post_init__`
refusals.py     saying no, with the path
faults.py       exceptions
"""

from __future__ import annotations

from perdure.kernel.arguments import ArgumentsCodec
from perdure.kernel.shapes import storable
from perdure.kernel.values import UNREAD, ValueCodec, codec_for, why_not_storable

__all__ = ["UNREAD", "ArgumentsCodec", "ValueCodec", "codec_for", "storable", "why_not_storable"]
