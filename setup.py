"""Only for the compiled hot path, which is optional: without a compiler the wheel is built without it, and
`ottla.records` falls back to Python. Everything else is in pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "ottla.records._native",
            sources=["src/ottla/records/_native.c"],
            extra_compile_args=["-O3"],
            optional=True,
        )
    ]
)
