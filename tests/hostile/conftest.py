"""One node for all, with a canary beside it, whose data must be whole at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .harness import Target, watched


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with watched(tmp_path_factory.mktemp("hostile")) as made:
        yield made


@pytest.fixture(autouse=True)
def undisturbed(target: Target) -> Iterator[None]:
    """Whatever a test does, the node lives, calls nothing an internal error, and the canary is served."""
    yield
    target.check_alive()
    target.mark()
