"""Values across the durable boundary: the door to what the rest of perdure uses.

codec.py        one value of one annotation       ValueCodec, codec_for, why_not_storable
arguments.py    the arguments of one function     ArgumentsCodec
annotations.py  what a type says about its values
exact.py        is what came back the same?       difference
tagged.py       JSON for values without a type
class_codecs.py classes as data                   storable
instances.py    instances with fields: their state, and making them again
models.py       pydantic models
quiet.py        plain JSON without running `__post_init__`
refusals.py     saying no, with the path
faults.py       exceptions
lazy_types.py   classes of modules that are imported when the first value of one comes by
digests.py      hashes of bytes
"""

from __future__ import annotations

from perdure.kernel.values.arguments import ArgumentsCodec
from perdure.kernel.values.class_codecs import storable
from perdure.kernel.values.codec import ValueCodec, codec_for, why_not_storable

__all__ = ["ArgumentsCodec", "ValueCodec", "codec_for", "storable", "why_not_storable"]
