"""The site can be built, and nothing in it points at what is not there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make docs` does it: a warning ends it."""
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(directory)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


@pytest.mark.slow
def test_every_page_is_in_the_site(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        built = site / page.relative_to(ROOT / "docs").with_suffix(".html")
        assert built.exists(), f"{page.name} is not in the site"


@pytest.mark.slow
def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    """No font, no script, no picture: only links that a person may follow."""
    fetched = re.compile(r"""<(?:script|img|iframe)[^>]*\ssrc=["'](?:https?:)?//|<link[^>]*href=["'](?:https?:)?//""")
    for page in site.rglob("*.html"):
        found = [each for each in fetched.findall(page.read_text()) if 'rel="canonical"' not in each]
        assert not found, f"{page.name}: {found}"


@pytest.mark.slow
def test_every_picture_is_shown(site: Path) -> None:
    shown = "".join(page.read_text() for page in (site / "how").glob("*.html"))
    for picture in (ROOT / "docs" / "how" / "pictures").glob("*.svg"):
        assert f"pictures/{picture.name}" in shown, f"no page shows {picture.name}"
