"""Quotas: what the pods of each quota hold, added up anew, against what it may reach.

Runtime quotas depend on everybody's requests at the moment of each decision and are not worked out again
here. What must hold at any moment is checked: no quota that gained a pod holds more than its ``max``, or than
the floor that keeps its runtime above that, and its non-preemptible pods no more than its ``min``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from koordcore.checking.nodes import STANDS_FOR
from koordcore.checking.quota_sums import (
    NOBODY,
    PREEMPTIBLE_LABEL,
    QUOTA_LABEL,
    Elsewhere,
    Specs,
    charged,
    counted_in,
    counting,
    in_force,
    parents_of,
    quota_of,
    spaces_of,
    specs_in,
)
from koordcore.checking.violation import Violation, ViolationKind
from koordcore.model.decisions import Bound
from koordcore.model.pods import Pod, PodKey
from koordcore.model.quotas import ROOT_QUOTA, ElasticQuota, QuotaPolicy
from koordcore.model.resources import NO_RESOURCES, Resources, make_resources, total
from koordcore.protocol.gang_names import gang_name
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot


def check_quotas(
    snapshot: ClusterSnapshot, result: ScheduleResult, *, elsewhere: Elsewhere = NOBODY
) -> Iterator[Violation]:
    """No quota that a decision added to exceeds what it may reach."""
    quotas = in_force(snapshot.of(ElasticQuota))
    if not quotas or not result.policy.filters("ElasticQuota"):
        return
    setting = result.policy.plugin("ElasticQuota")
    policy = setting.args if setting and setting.args else QuotaPolicy()
    above, named_only = policy.enable_check_parent_quota, policy.disable_default_quota
    elsewhere = elsewhere.under(policy)
    turns = {one.pod: turn for turn, one in enumerate(result.decisions) if isinstance(one, Bound)}
    spaces, specs = spaces_of(quotas), specs_in(snapshot)
    parents = {quota.parent for quota in quotas.values()}
    held: dict[str, list[tuple[str, Pod]]] = defaultdict(list)
    """With the name of each pod's own quota."""
    guarded: dict[str, list[tuple[str, Pod]]] = defaultdict(list)
    grown: set[str] = set()
    for state in result.snapshot.nodes:
        for pod in state.pods:
            if pod.annotations.get(STANDS_FOR) == "true":
                continue  # what a reservation holds is used by nobody yet
            if named_only and pod.labels.get(QUOTA_LABEL) not in quotas:
                continue
            name = quota_of(pod, quotas, spaces)
            chain = counted_in(name, quotas, several=policy.multi_quota_tree)
            for member in chain:
                held[member].append((name, pod))
                if pod.labels.get(PREEMPTIBLE_LABEL) == "false":
                    guarded[member].append((name, pod))
            if pod.key in turns:
                grown.update(chain if above else (name,))

    sums = partial(_sums, turns=turns, quotas=quotas, specs=specs)
    for name in sorted(grown & quotas.keys()):
        # Quotas below that hold nothing may not be shown; the quota itself says that there are some.
        leaf = not quotas[name].is_parent and name not in parents
        limit = _reach(quotas[name], policy, leaf=leaf)
        if limit is not None and not (policy.enable_runtime_quota and _detached(name, quotas, policy)):
            used, added = sums(held[name], elsewhere.held(name), "" if above else name)
            yield from _check_limit(name, "max", used, added, limit)
        # The min of the quotas above is not asked for.
        used, added = sums(guarded[name], elsewhere.guarded(name), name)
        yield from _check_limit(name, "min for non-preemptible pods", used, added, quotas[name].min)


def _sums(
    pods: Sequence[tuple[str, Pod]],
    others: Mapping[str, int],
    asked: str,
    *,
    turns: Mapping[PodKey, int],
    quotas: Mapping[str, ElasticQuota],
    specs: Specs,
) -> tuple[Resources, Resources]:
    """Add up what all use when a quota is asked for the last time, and what those use who asked it.

    Parameters
    ----------
    pods, others
        Who counts, each with the name of its own quota; and amounts that count beside them.
    asked
        The pods of that quota alone ask it, not those of the quotas below; of these count those that surely
        came before. Empty where all ask.
    turns
        When each pod that came was decided about.
    """
    asking = [pod for own, pod in pods if pod.key in turns and (not asked or own == asked)]
    if not asking:
        return NO_RESOURCES, NO_RESOURCES
    last = max(asking, key=lambda pod: turns[pod.key])

    def before(own: str, pod: Pod) -> bool:
        """In which order the members of gangs came is not known."""
        if not asked or own == asked or pod.key not in turns:
            return True
        return turns[pod.key] < turns[last.key] and (_alone(pod) or _alone(last))

    counted = [(pod, counting(charged(pod, specs), quotas.get(own))) for own, pod in pods if before(own, pod)]
    used = Counter(total(amounts for _, amounts in counted))
    used.update(others)
    new = {pod.key for pod in asking}
    return make_resources(used), total(amounts for pod, amounts in counted if pod.key in new)


def _alone(pod: Pod) -> bool:
    return not gang_name(pod.labels, pod.annotations) and pod.scheduling_group is None


def _reach(quota: ElasticQuota, policy: QuotaPolicy, *, leaf: bool) -> Resources | None:
    """Give what a quota may surely not go beyond; ``None`` where its runtime has no such limit.

    A quota that does not lend has its min, even one above its max. Where what is used is guaranteed, so is
    what quotas below use and are promised, whatever the max above them says.
    """
    if not policy.enable_runtime_quota:
        return quota.max
    if policy.guarantee_usage and not leaf:
        return None
    if quota.allow_lent and not policy.guarantee_usage:
        return quota.max
    return make_resources({name: max(most, quota.min.get(name, 0)) for name, most in quota.max.items()})


def _detached(name: str, quotas: Mapping[str, ElasticQuota], policy: QuotaPolicy) -> bool:
    """Tell whether something above a quota does not exist: it is handed nothing, and nothing limits it.

    Of several trees, what stands in another one does not exist in this one.
    """
    chain = [name, *parents_of(name, quotas)]
    trees = {quotas[one].tree for one in chain if one in quotas} if policy.multi_quota_tree else ()
    return chain[-1] != ROOT_QUOTA or len(trees) > 1


def _check_limit(
    name: str, what: str, used: Resources, added: Resources, limit: Resources
) -> Iterator[Violation]:
    for resource, bound in sorted(limit.items()):
        # What was exceeded before is not held against who adds nothing to it.
        if used.get(resource, 0) > bound and added.get(resource, 0):
            message = f"{resource}: {used[resource]} used, {what} is {bound}"
            yield Violation(ViolationKind.QUOTA, name, message)
