"""The door that these tests enter by."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.promises.door import Door


@pytest.fixture
def door(tmp_path: Path) -> Door:
    return Door(tmp_path)
