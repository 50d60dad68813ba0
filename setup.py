"""The compiled part, which pyproject.toml has no stable word for yet; everything else stands there.

Without a C compiler the package installs all the same: LightGBM then scores the first stage, and the log says so.
"""

from setuptools import Extension, setup

traversal = Extension("ranking.traversal", ["ranking/traversal.pyx"], extra_compile_args=["-O3"], optional=True)
setup(ext_modules=[traversal])
