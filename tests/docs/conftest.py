"""The site of ``docs/``."""

import pytest

from support.pages.site import mkdocs


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = mkdocs("--quiet", "--site-dir", folder)
    assert (done.returncode, done.stderr) == (0, "")
    return folder
