"""The compiled part, which pyproject.toml has no stable word for yet; everything else stands there.

Without a C compiler the package installs all the same: LightGBM, NumPy and pydantic then do the same, slower, and the
log says so of the first stage.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(name.replace("/", "."), [f"{name}.pyx"], depends=headers, extra_compile_args=["-O3"], optional=True)
        for name, headers in (
            ("ranking/linear", []),
            ("ranking/look", []),
            ("ranking/traversal", ["ranking/lockstep.h", "ranking/lockstep_kernel.h"]),
            ("service/scan", []),
        )
    ]
)
