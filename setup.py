"""The compiled part, which pyproject.toml has no stable word for yet; everything else stands there.

Without a C compiler the package installs all the same: LightGBM, NumPy, polars and pydantic then do the same, slower,
and the log says so of the first stage.
"""

from pathlib import Path

from setuptools import Extension, setup

FLAGS = ["-O3", "-ffp-contract=off"]
"""No product and sum in one rounding: what is compiled equals its NumPy twin to the bit, whatever the processor."""

LOCKSTEP = ["ranking/compiled/lockstep.h", "ranking/compiled/lockstep_kernel.h"]

setup(
    ext_modules=[
        Extension(
            f"listwright.{name.replace('/', '.')}",
            [f"{name}.pyx"],
            depends=headers,
            extra_compile_args=FLAGS,
            optional=True,
        )
        for name, headers in (
            ("ranking/compiled/linear_product", []),
            ("ranking/compiled/list_summary", []),
            ("ranking/compiled/relative_columns", []),
            ("ranking/compiled/tree_traversal", LOCKSTEP),
            ("service/wire/json_fast", []),
            ("training/data/letor/scan", []),
        )
        if Path(f"{name}.pyx").exists()  # the image is built without training
    ]
)
