"""The judges see what is changed in a right answer."""

from __future__ import annotations

from random import Random

from tests.conformance.__main__ import OWN, vector_files
from tests.conformance.core import load_adapters
from tests.conformance.corrupt import corrupt_files, corrupted, places

load_adapters()


def test_a_corrupted_answer_differs_in_one_place() -> None:
    answer = {"nodes": [{"name": "a", "score": 3}], "placed": True}
    seen = set()
    for seed in range(50):
        changed, path, _ = corrupted(answer, Random(seed))
        assert changed != answer
        seen.add(path)
    assert seen == set(places(answer))


def test_judges_accept_no_corrupted_answer_in_a_hundred() -> None:
    """Of the project's own cases, which are few, some dozen answers each."""
    tried = [one for one in corrupt_files(vector_files([OWN], []), 20, 0) if not one.case.ruled]
    accepted = [str(one) for one in tried if one.accepted]
    assert len(tried) > 1000
    assert len(accepted) * 100 < len(tried), "\n".join(accepted)
