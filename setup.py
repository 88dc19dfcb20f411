"""Only for the compiled hot paths, which are optional: without a compiler the wheel is built without them, and
`ottla.records`, what is in it, and `ottla.wire` fall back to Python. Everything else is in pyproject.toml."""

from setuptools import Extension, setup

SHARED = [f"src/ottla/records/{name}.h" for name in ("_batch", "_crc32c", "_murmur2")]

setup(
    ext_modules=[
        Extension(
            f"ottla.{room}._native",
            sources=[f"src/ottla/{room.replace('.', '/')}/_native.c"],
            depends=SHARED if room.startswith("records") else [],
            extra_compile_args=["-O3"],
            optional=True,
        )
        for room in ("records", "records.cleaning", "records.columns", "wire")
    ]
)
