"""Only for the compiled hot paths, which are optional: without a compiler the wheel is built without them, and
`ottla.records` and `ottla.wire` fall back to Python. Everything else is in pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            f"ottla.{room}._native",
            sources=[f"src/ottla/{room}/_native.c"],
            extra_compile_args=["-O3"],
            optional=True,
        )
        for room in ("records", "wire")
    ]
)
