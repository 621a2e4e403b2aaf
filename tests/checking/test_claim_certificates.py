"""What is claimed of an allocation of claims: nothing is lost that somebody else's choice would have kept."""

from __future__ import annotations

import attrs
import pytest

from benchmarks.bench_claims import QUESTIONS
from benchmarks.claims_data import CLASSES, empty_room
from koordcore.allocators import ClaimsAllocated, allocate_claims
from koordcore.checking import check_certificate


@pytest.mark.parametrize("question", sorted(QUESTIONS))
def test_first_wishes_without_losses_are_shown_to_be_the_best(question: str) -> None:
    """Parts that count something are at least nothing; less is rejected, and so is more."""
    held, asked, _ = QUESTIONS[question]
    answer = allocate_claims(empty_room(held), asked, CLASSES)
    if not isinstance(answer, ClaimsAllocated):
        return
    found = answer.certificate
    assert found is not None
    assert found.objective == (0,) * len(found.objective)
    assert check_certificate(found.problem, found).accepted
    for other in (-1, 1):
        parts = (*found.objective[:-1], other)
        planted = attrs.evolve(found, objective=parts, bound=parts)
        assert not check_certificate(planted.problem, planted).accepted
