"""Every case that is at hand is answered rightly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.__main__ import default_folders, judge_files, vector_files
from tests.conformance.core import ADAPTERS, Verdict, load_adapters

load_adapters()
FILES = [path for path in vector_files(default_folders(), []) if path.stem in ADAPTERS]


@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}-{path.stem}" for path in FILES])
def test_nothing_is_wrong(path: Path) -> None:
    """No answer is wrong in any case of the file."""
    wrong = [j for j in judge_files([path]) if j.verdict is Verdict.WRONG]
    assert not wrong, "\n".join(f"{j.case.id}: {j.detail}" for j in wrong[:10])
