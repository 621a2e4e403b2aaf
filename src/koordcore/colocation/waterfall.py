"""Why a node lends what it lends: each step from capacity to what is published, as data and text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.colocation.amounts import Amounts, amounts_of, bytes_up, milli_up
from koordcore.colocation.batch import Batch, BatchTerms, Degraded, Failed, batch_of_node
from koordcore.colocation.cluster import node_load_of
from koordcore.colocation.config import effective_strategy, is_disabled
from koordcore.colocation.mid import Mid, MidTerms, StaticMidTerms, mid_of_node
from koordcore.colocation.sync import NodeResource, NodeStatus, prepare_node
from koordcore.colocation.usage import dangling_metrics, node_use, pod_uses
from koordcore.model.colocation import CalculatePolicy, ColocationConfig, ColocationStrategy, NodeLoad
from koordcore.model.metrics import Measured, measured_of
from koordcore.model.quantity import NANO
from koordcore.model.resources import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from koordcore.protocol.normalization import ANNOTATION_NORMALIZATION_RATIO
from koordcore.snapshot import ClusterSnapshot

_DISABLED: Final = "colocation is off for the node"


@record
class Step:
    """One line of a waterfall.

    Parameters
    ----------
    label
        What it is, such as ``safety margin``.
    amount
        Milli-cores or bytes; negative where it is taken away.
    note
        What stands behind it, such as the larger of two amounts.
    detail
        Whether the line only breaks the one before it down and is no part of the sum.
    """

    label: str
    amount: int
    note: str = ""
    detail: bool = False


@record
class Waterfall:
    """How one lent resource of one node came about.

    Parameters
    ----------
    node, resource
        Such as ``node-1`` and ``kubernetes.io/batch-cpu``.
    steps
        Lines of which those without ``detail`` add up to ``lent``.
    lent
        Milli-cores or bytes before amplification.
    published
        Milli-cores or bytes that the node offers in the end.
    message
        The same in upstream's words, or why nothing is lent.
    """

    node: str
    resource: str
    steps: tuple[Step, ...]
    lent: int
    published: int
    message: str


def _units(resource: str, exact: int) -> int:
    return milli_up(exact) if resource in (BATCH_CPU, MID_CPU) else bytes_up(exact)


def _of(amounts: Amounts, resource: str) -> int:
    return amounts.cpu if resource in (BATCH_CPU, MID_CPU) else amounts.memory


def _balanced(steps: list[Step], lent: int, label: str) -> tuple[Step, ...]:
    """Close a sum that a floor, a cap or rounding kept from coming out even."""
    rest = lent - sum(step.amount for step in steps if not step.detail)
    return (*steps, Step(label, rest)) if rest else tuple(steps)


def _batch_steps(node: NodeLoad, terms: BatchTerms) -> tuple[Step, ...]:
    name = terms.resource

    def line(label: str, exact: int, note: str = "", *, detail: bool = False) -> Step:
        return Step(label, -_units(name, exact), note, detail)

    use = node_use(node)
    system = use.system + use.host_high
    steps = [
        Step("capacity", _units(name, terms.capacity)),
        line("safety margin", terms.margin),
        line(
            "reserved" if terms.policy is CalculatePolicy.REQUEST else "system or reserved",
            terms.taken,
            "the larger of the lines below" if terms.policy is not CalculatePolicy.REQUEST else "",
        ),
        line("kubelet reserved", _of(use.kubelet_reserved, name), detail=True),
        line("reserved by annotation", _of(use.annotation_reserved, name), detail=True),
    ]
    if terms.policy is not CalculatePolicy.REQUEST:
        steps.append(line("system usage", _of(system, name), "with host applications", detail=True))
    pods = list(pod_uses(node))
    unmeasured = sum(not one.measured for one in pods)
    gone = list(dangling_metrics(node))
    counted = f"{len(pods)} prod and mid pods by {terms.policy.value}"
    if unmeasured:
        counted += f", {unmeasured} of them without metric"
    steps.append(line("pods", terms.pods, counted))
    if gone and terms.policy is not CalculatePolicy.REQUEST:
        total = sum(_of(amounts_of(metric.usage), name) for metric in gone)
        steps.append(
            line(
                "of them gone, still measured", total, f"{len(gone)} pod{'s' * (len(gone) > 1)}", detail=True
            )
        )
    lent = _units(name, terms.amount)
    left = sum(step.amount for step in steps if not step.detail)
    label = "rounding"
    if left < 0:
        label = "floor at 0"
    elif terms.threshold_percent is not None and lent < left:
        label = f"cap at {terms.threshold_percent}% of capacity"
    return _balanced(steps, lent, label)


def _mid_steps(terms: MidTerms | StaticMidTerms) -> tuple[Step, ...]:
    if isinstance(terms, StaticMidTerms):
        steps = [Step("static share", int(terms.capacity * (terms.reserved_percent / 100.0)))]
    else:
        base = max(min(terms.reclaimable, terms.unused), 0)
        reclaimable, unused, unallocated = (
            _shown(terms.resource, amount) for amount in (terms.reclaimable, terms.unused, terms.unallocated)
        )
        note = f"the smaller of {reclaimable} reclaimable and {unused} unused"
        share = int(float(terms.unallocated) * (terms.unallocated_percent / 100.0))
        steps = [
            Step("reclaimable from prod", base, note),
            Step("share of unallocated", share, f"{terms.unallocated_percent}% of {unallocated}"),
        ]
    return _balanced(steps, terms.amount, f"cap at {terms.threshold_percent}% of capacity")


def waterfalls_of(
    node: NodeLoad,
    strategy: ColocationStrategy,
    now: int,
    *,
    enabled: bool = True,
    annotations: Mapping[str, str] = immutabledict(),
) -> tuple[Waterfall, ...]:
    """Explain batch cpu, batch memory, mid cpu and mid memory of a node.

    Parameters
    ----------
    node, strategy, now
        As for :func:`~koordcore.colocation.batch.batch_of_node`.
    enabled
        Whether colocation is on for the node.
    annotations
        Of the node: a stored normalization ratio and what third parties hold change what is published.
    """
    found: list[tuple[str, tuple[Step, ...], int, str]] = []
    outcomes = (
        (BATCH_CPU, BATCH_MEMORY, batch_of_node(node, strategy, now)),
        (MID_CPU, MID_MEMORY, mid_of_node(node, strategy, now)),
    )
    for cpu, memory, outcome in outcomes:
        if not enabled:
            found += [(name, (), 0, _DISABLED) for name in (cpu, memory)]
            continue
        match outcome:
            case Batch():
                for batch_terms in (outcome.cpu, outcome.memory):
                    lent = outcome.resources[batch_terms.resource]
                    steps = _batch_steps(node, batch_terms)
                    found.append((batch_terms.resource, steps, lent, batch_terms.message))
            case Mid():
                found += [
                    (terms.resource, _mid_steps(terms), terms.amount, terms.message)
                    for terms in (outcome.cpu, outcome.memory)
                ]
            case Degraded(message) | Failed(message):
                found += [(name, (), 0, message) for name in (cpu, memory)]
    published = _published(node, annotations, {name: lent for name, steps, lent, _ in found if steps})
    return tuple(
        Waterfall(node.name, name, steps, lent, published.get(name, 0) // NANO, message)
        for name, steps, lent, message in found
    )


def _published(node: NodeLoad, annotations: Mapping[str, str], lent: Mapping[str, int]) -> Measured:
    ratio = {key: text for key, text in annotations.items() if key == ANNOTATION_NORMALIZATION_RATIO}
    resource = NodeResource(resources=measured_of(lent), annotations=immutabledict(ratio))
    status = NodeStatus(allocatable=node.allocatable, annotations=immutabledict(annotations) or None)
    return prepare_node(status, resource).allocatable or immutabledict()


def explain_node(
    snapshot: ClusterSnapshot, config: ColocationConfig, name: str, *, now: int
) -> tuple[Waterfall, ...]:
    """Explain what one node of a snapshot lends.

    Parameters
    ----------
    snapshot
        The cluster, with NodeMetrics.
    config
        From the ConfigMap.
    name
        The node.
    now
        Nanoseconds since 1970.

    Raises
    ------
    ModelError
        When there is no such node.
    """
    state = snapshot.node(name)
    strategy = effective_strategy(config, state.node.labels, state.node.annotations)
    return waterfalls_of(
        node_load_of(snapshot, state),
        strategy,
        now,
        enabled=not is_disabled(config, strategy),
        annotations=state.node.annotations,
    )


def _shown(resource: str, amount: int) -> str:
    if resource in (BATCH_CPU, MID_CPU):
        return f"{amount}m"
    return f"{amount / 2**30:.2f}Gi"


def render_waterfalls(waterfalls: tuple[Waterfall, ...]) -> str:
    """Write waterfalls as text, one block per resource."""
    lines: list[str] = []
    for one in waterfalls:
        lines.append(f"{one.node}  {one.resource}")
        if not one.steps:
            lines.append(f"  nothing is lent: {one.message}")
            continue
        for step in one.steps:
            label = ("    " if step.detail else "  ") + step.label
            note = f"  ({step.note})" if step.note else ""
            lines.append(f"{label:<34}{_shown(one.resource, step.amount):>14}{note}".rstrip())
        lines.append(f"{'  = lent':<34}{_shown(one.resource, one.lent):>14}")
        if one.published != one.lent:
            lines.append(f"{'  published':<34}{_shown(one.resource, one.published):>14}")
    return "\n".join(lines)
