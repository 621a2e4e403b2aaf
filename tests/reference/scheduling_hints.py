"""Scheduling hints as the reference applies them: which nodes remain, and which are tried first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import attrs

from koordcore.protocol.hints import DEFAULT_MAX_HINT_NODES, HINT_PLUGIN, SchedulingHint


@attrs.frozen(kw_only=True)
class HintOutcome:
    """What is left to look at after all node sets and the hint were applied.

    Parameters
    ----------
    nodes
        Candidate nodes, sorted; None for all of them.
    message
        Why nothing is left; empty when something is. Such a pod is unresolvable.
    """

    nodes: tuple[str, ...] | None = None
    message: str = ""


def merge_node_sets(node_sets: Mapping[str, Collection[str] | None]) -> HintOutcome:
    """Intersect the node sets that plugins allow, None meaning all nodes.

    An empty intersection names every plugin that took part until then, sorted.
    """
    merged: frozenset[str] | None = None
    restricting: list[str] = []
    for plugin, allowed in node_sets.items():
        if allowed is None:
            continue
        restricting.append(plugin)
        merged = frozenset(allowed) if merged is None else merged & frozenset(allowed)
        if not merged:
            names = sorted(restricting)
            who = f"plugin(s) [{' '.join(names)}] simultaneously" if len(names) > 1 else f"plugin {names[0]}"
            return HintOutcome(nodes=(), message=f"node(s) didn't satisfy {who}")
    return HintOutcome(nodes=None if merged is None else tuple(sorted(merged)))


def preferred_nodes(
    hint: SchedulingHint | None,
    allowed: Collection[str] | None,
    *,
    limit: int = DEFAULT_MAX_HINT_NODES,
) -> tuple[str, ...]:
    """Give the nodes to try first: cut to ``limit``, then to the allowed ones (None: all); order kept."""
    if hint is None:
        return ()
    head = hint.preferred_node_names[:limit]
    return head if allowed is None else tuple(name for name in head if name in allowed)


def apply_hint(
    hint: SchedulingHint | None,
    other_sets: Mapping[str, Collection[str] | None],
    *,
    known: Collection[str],
    fits: Callable[[str], bool],
    limit: int = DEFAULT_MAX_HINT_NODES,
) -> HintOutcome:
    """Apply a hint together with the node sets of other plugins.

    Parameters
    ----------
    hint
        The pod's hint, None for none.
    other_sets
        Allowed nodes per plugin, None for all.
    known
        Nodes that exist; preferred ones that do not are passed over.
    fits
        The filters of the pod on one node; asked for preferred nodes only, in order.
    limit
        Preferred nodes looked at.

    Returns
    -------
    HintOutcome
        The first preferred node that fits alone, else all nodes that are allowed.
    """
    own = hint.node_names if hint is not None and hint.node_names else None
    merged = merge_node_sets({HINT_PLUGIN: own, **other_sets})
    if merged.message:
        return merged
    for name in preferred_nodes(hint, merged.nodes, limit=limit):
        if name in known and fits(name):
            return HintOutcome(nodes=(name,))
    return merged
