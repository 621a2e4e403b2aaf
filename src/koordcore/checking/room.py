"""Sums of amounts on one node: what does not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from koordcore.checking.nodes import slots_taken
from koordcore.model.mappings import EMPTY
from koordcore.model.nodes import Node
from koordcore.model.plugin_args import FitArgs
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, counted
from koordcore.protocol.reserved_on_node import trimmed_allocatable


def overflow(
    node: Node,
    staying: Sequence[Pod],
    coming: Sequence[Pod],
    policy: Policy,
    *,
    lent: Sequence[tuple[Pod, Mapping[str, int]]] = (),
    classes: Mapping[str, str] = EMPTY,
) -> Iterator[tuple[str, int, int]]:
    """Name what those who come ask for and do not find, with the sum and the limit.

    Parameters
    ----------
    lent
        What some of those who come draw from what others of the node hold, beside who holds it. What is left
        of that is no worse than before where it is more than the node has.
    classes
        Resources that device classes go by: a node that lists none of one need not have it.
    """
    setting = policy.plugin("NodeResourcesFit")
    args = setting.args if setting and setting.args else FitArgs()
    limits = trimmed_allocatable(node.allocatable, node.annotations)
    sums: Counter[str] = Counter()
    for pod in staying:
        sums.update(pod.requests)
    before = {**sums, PODS: slots_taken(staying)}
    for pod in coming:
        sums.update(pod.requests)
    sums[PODS] = before[PODS] + len(coming)
    left: Counter[str] = Counter()
    for holder, amounts in lent:
        sums.subtract(amounts)
        for name in (name for name, amount in amounts.items() if amount):
            left[name] += holder.requests.get(name, 0) - amounts[name]
    asked = {name for pod in coming for name, amount in pod.requests.items() if amount > 0}
    for name in sorted({*asked, PODS}):
        ignored = name in args.ignored or name.split("/", 1)[0] in args.ignored_groups
        if not counted(name) or (ignored and name not in (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)):
            continue
        if name in classes and not limits.get(name):
            continue
        limit, amount = limits.get(name, 0), sums[name]
        no_worse = left[name] > 0 and amount <= before.get(name, 0) and amount - left[name] <= limit
        if amount > limit and not no_worse:
            yield name, amount, limit
