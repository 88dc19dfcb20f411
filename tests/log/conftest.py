"""Assertions in the helpers explain themselves like those in tests."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(f"{__package__}.crash_story", f"{__package__}.story")
