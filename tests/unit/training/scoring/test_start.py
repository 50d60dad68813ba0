"""What the command imports before its workers have begun: they need the same second for their own imports."""

import subprocess
import sys


def test_nothing_large_is_imported_before_the_workers_begin():
    said = "import sys, listwright.training.commands.score; print([name for name in ('polars', 'numpy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
