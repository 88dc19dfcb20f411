"""The sample project is run by a pytest of its own (`test_sample_project.py`)."""

from __future__ import annotations

collect_ignore = ["sample_project"]
