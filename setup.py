"""The twins in C (`perdure/native`). Optional: without a compiler perdure is plain Python, and does the same."""

import os

from setuptools import Extension, setup

FOLDER = "src/perdure/native"

setup(
    ext_modules=[
        Extension(
            f"perdure.native._{layer}",
            [f"{FOLDER}/{layer}.c"],
            depends=[f"{FOLDER}/fields.h", f"{FOLDER}/json.h"],
            extra_compile_args=[] if os.name == "nt" else ["-O3"],
            optional=True,
        )
        for layer in ("kernel", "store", "engine")
    ]
)
