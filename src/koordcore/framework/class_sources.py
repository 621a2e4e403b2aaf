"""Opening what counts as gone for a class of pods, such as room that is lent to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from koordcore._arrays import BoolVector, IntMatrix, IntVector
from koordcore.framework.evaluator import Evaluator, Scope
from koordcore.framework.node_view import NodeView
from koordcore.framework.plugin import Plugin
from koordcore.framework.sources import Source
from koordcore.framework.static_result import Part


def source_of(parts: Sequence[Part]) -> tuple[Source | None, Plugin | None]:
    """Open it, if there is anything, to the plugin that knows, which is given, too; all others answer."""
    for part in parts:
        if "sources" not in part.evaluator.answers:
            continue
        local = [one for one in parts if one is not part and one.evaluator.scope is Scope.NODE]
        filters = [one.evaluator for one in local if one.setting.filters]
        rating = [one.evaluator for one in local if one.evaluator.rates_loans]
        source = part.evaluator.sources(partial(_all_fit, filters), partial(_ratings, rating))
        if source is not None:
            return source, part.plugin
    return None, None


def lifted_in(sources: Iterable[Source | None]) -> IntMatrix | None:
    """Give what goes away on each node, ``(R, N)``, for pods of several classes together; ``None``: nothing.

    Each may use its own; what several may use counts once.
    """
    found = [one for one in sources if one is not None]
    if len(found) <= 1:
        return found[0].lifted(slice(None)) if found else None
    return found[0].lifted_with(found[1:])


def _all_fit(filters: Sequence[Evaluator], view: NodeView) -> BoolVector:
    fitting = np.ones(view.size, np.bool_)
    for one in filters:
        mask = one.fits(view)
        if mask is not None:
            fitting &= mask
    return fitting


def _ratings(rating: Sequence[Evaluator], view: NodeView) -> list[IntVector]:
    scores = (one.scores(view) for one in rating)
    return [one for one in scores if one is not None]
