"""Mutants: every place changes one thing, and names, annotations and texts are left alone."""

from __future__ import annotations

import ast

from tools.mutants import mutated, places

TEXT = '''
def f(a: int, b: list[int]) -> bool:
    """Words."""
    assert a == 1
    if a < 2 and not b:
        g(b)
        return True
    return max(a, 3) == a + 4
'''


def test_every_place_changes_one_thing() -> None:
    whats = [what for _, what, _ in places(ast.parse(TEXT))]
    assert sorted(whats) == sorted(
        ["if negated", "And for Or", "Lt for LtE", "2 + 1", "not removed", "call removed", "True negated",
         "Eq for NotEq", "max for min", "3 + 1", "Add for Sub", "4 + 1"]
    )  # fmt: skip
    plain = ast.unparse(ast.parse(TEXT))
    changed = [ast.unparse(mutated(TEXT, place)) for place in range(len(whats))]
    assert len({plain, *changed}) == len(whats) + 1
    for text in changed:
        lines = zip(plain.splitlines(), text.splitlines(), strict=True)
        assert sum(one != other for one, other in lines) == 1
        assert "a: int, b: list[int]" in text
