"""The classic group protocol, in dialogues: see transcripts/*.txt, and `stage.py` for what their commands mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.coordinator.classic.stage import Stage
from tests.transcript import run, transcripts


@pytest.mark.parametrize("path", transcripts(Path(__file__).parent / "transcripts"), ids=lambda path: path.stem)
def test_transcript(path: Path, request: pytest.FixtureRequest) -> None:
    run(path, Stage().execute, request.config)
