"""Every case that is at hand is answered rightly."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.conformance.__main__ import default_folders, judge_files, vector_files
from tests.conformance.core import ADAPTERS, Verdict, load_adapters
from tests.conformance.open_cases import AWAITED, OPEN

load_adapters()
FILES = vector_files(default_folders(), [])


@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}-{path.stem}" for path in FILES])
def test_nothing_is_wrong(path: Path) -> None:
    """No answer is wrong or missing in any case of the file, but for the listed ones, and those are."""
    if path.stem not in ADAPTERS and any(fnmatchcase(path.stem, awaited) for awaited in AWAITED):
        pytest.skip("no adapter yet")
    judged = judge_files([path])
    wrong = {j.case.id: j.detail for j in judged if j.verdict in (Verdict.WRONG, Verdict.MISSING)}
    listed = OPEN.get(path.stem, {}).keys() & {j.case.id for j in judged}
    assert wrong.keys() == listed, "\n".join(f"{name}: {detail}" for name, detail in list(wrong.items())[:10])
