"""Taking back what was lent: a pod within its quota's promise may displace pods of quotas beyond theirs.

Upstream has no such thing: a borrower leaves only when its quota has been over its runtime for long, or
when a more important pod of its own quota comes. This is an option of ours, used by calling it.

**Who may.** A pod whose quota stays within its floor with the pod, in every resource that the pod asks for.
The floor is what a quota has without competing: its scaled min. Where a quota above would go beyond its own,
others below that one have to give: what a parent is promised, its children share out.

**Who goes.** Preemptible pods of other leaf quotas whose quota, and every quota above it below the common
ancestor, uses more than its floor in a resource that is asked for, at the moment at which the pod is taken.

**No ping-pong.** Let D be the sum over all leaf quotas and resources of what is used beyond the floor. A
reclaim adds nothing to D, for the quota of the pod that comes stays within its floor; and it takes at
least one unit from it with each victim. So D falls strictly, and a chain of reclaims ends. Nor can a pod
that has reclaimed be reclaimed while its quota stays within its floor: it is no candidate. A victim
therefore never reclaims back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from koordcore._record import record
from koordcore.model.cluster import PodDisruptionBudget
from koordcore.model.quotas import BUILTIN_QUOTAS, QuotaPod
from koordcore.model.resources import Resources
from koordcore.quota.admission import QuotaRefusal, admit, masked_request
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.preempt import NodeFilter, NoVictims, QuotaVictims, importance, split_by_budgets


@record(kw_only=True)
class ReclaimNode:
    """A node that may be cleared.

    Parameters
    ----------
    name
        Its name.
    pods
        Pods on it.
    refuse
        Its filters, see :data:`~koordcore.quota.preempt.NodeFilter`.
    """

    name: str
    pods: tuple[QuotaPod, ...]
    refuse: NodeFilter


@record(kw_only=True)
class ReclaimPlan:
    """Where a pod gets what its quota has lent, and who leaves."""

    node: str
    victims: tuple[QuotaPod, ...]
    violating: int


def _chain(ledger: QuotaLedger, name: str) -> tuple[str, ...]:
    found = ledger.find(name)
    if found is None:
        return ()
    tree = found[0].tree
    return tuple(tree.quotas[row].name for row in tree.path(found[1]))


def _asked(ledger: QuotaLedger, name: str, pod: QuotaPod) -> Resources:
    return masked_request(ledger, name, pod)


def entitled_to_reclaim(ledger: QuotaLedger, pod: QuotaPod) -> str:
    """Say why a pod may not reclaim; empty where it may.

    Parameters
    ----------
    ledger
        With the pod tracked and not placed.
    """
    name = ledger.resolve(pod)
    chain = () if name is None else _chain(ledger, name)
    if name is None or not chain:
        return "no elastic quota promises anything to the pod"
    request = _asked(ledger, name, pod)
    for above in chain:
        used, floor = ledger.used_of(above), ledger.floor_of(above)
        for resource, amount in sorted(request.items()):
            if amount and used.get(resource, 0) + amount > floor.get(resource, 0):
                return f"elastic quota {above} would go beyond its min in {resource}"
    return ""


def have_to_give(ledger: QuotaLedger, pods: Sequence[QuotaPod]) -> frozenset[str] | None:
    """Name the quotas below which others have to give so that some pods get what theirs are promised.

    Parameters
    ----------
    ledger
        Without what the pods use.

    Returns
    -------
    frozenset of str, or None
        All of them at once; empty where anybody may give, ``None`` where the pods' own quotas would go beyond
        their floors, so that they may not reclaim.
    """
    above: set[str] = set()
    for pod in pods:
        name = ledger.resolve(pod)
        chain = () if name is None else _chain(ledger, name)
        if name is None or not chain:
            return None
        request = _asked(ledger, name, pod)
        for quota in chain:
            used, floor = ledger.used_of(quota), ledger.floor_of(quota)
            if any(
                used.get(key, 0) + amount > floor.get(key, 0) for key, amount in request.items() if amount
            ):
                if quota == name:
                    return None
                above.add(quota)
        ledger = ledger.assume(pod)
    return frozenset(above)


def is_below(ledger: QuotaLedger, name: str, quotas: Iterable[str]) -> bool:
    """Tell whether a quota lies below all of some quotas."""
    return set(quotas) <= set(_chain(ledger, name))


def _over(ledger: QuotaLedger, name: str) -> Resources:
    # A min that is scaled down, since all of them together are more than there is, is kept all the same.
    floor, written = ledger.floor_of(name), ledger.min_of(name)
    floor = type(floor)(
        {key: max(amount, floor.get(key, 0)) for key, amount in written.items()}
        | {key: amount for key, amount in floor.items() if key not in written}
    )
    used = ledger.used_of(name)
    return type(used)(
        {key: amount - floor.get(key, 0) for key, amount in used.items() if amount > floor.get(key, 0)}
    )


def _is_leaf(ledger: QuotaLedger, name: str) -> bool:
    found = ledger.find(name)
    return found is not None and found[0].tree.group_below[found[1]] < 0


def _borrows(ledger: QuotaLedger, victim: str, spared: Sequence[str], wanted: Iterable[str]) -> bool:
    """Tell whether a quota and all above it below the common ancestor exceed their floors in one resource."""
    if not _is_leaf(ledger, victim):
        return False
    chain = [name for name in _chain(ledger, victim) if name not in spared]
    overs = [_over(ledger, name) for name in chain]
    return bool(chain) and any(all(key in over for over in overs) for key in wanted)


def borrows(
    ledger: QuotaLedger, victim: QuotaPod, reclaimers: Iterable[QuotaPod], wanted: Iterable[str]
) -> bool:
    """Tell whether the quota of a running pod is beyond its floor in something that others get back.

    Parameters
    ----------
    reclaimers
        Who gets it back; the quotas that they share with the pod do not count.
    wanted
        Resources that they ask for and the pod holds.
    """
    name = ledger.resolve(victim)
    if name is None or not victim.preemptible:
        return False
    shared = {above for pod in reclaimers for above in _chain(ledger, ledger.resolve(pod) or "")}
    return _borrows(ledger, name, tuple(shared), [key for key in wanted if key in ledger.max_of(name)])


def borrowers(
    ledger: QuotaLedger, name: str, wanted: Sequence[str]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """List the leaf quotas that use more than their floor of something, with what that is.

    Parameters
    ----------
    name
        The quota that may get it back; it and those above it are none of them.
    wanted
        Resources that are looked at.
    """
    mine = _chain(ledger, name)
    found = []
    for other in sorted(ledger.quotas):
        if other not in mine:
            over = tuple(key for key in wanted if _borrows(ledger, other, mine, (key,)))
            if over:
                found.append((other, over))
    return tuple(found)


def select_reclaimed(
    ledger: QuotaLedger,
    pod: QuotaPod,
    node: ReclaimNode,
    *,
    budgets: Sequence[PodDisruptionBudget] = (),
) -> QuotaVictims | NoVictims:
    """Find the least damage on one node that gives a pod what its quota has lent to others.

    Parameters
    ----------
    ledger
        With the pod tracked and not placed, and every pod counted that uses something.

    Notes
    -----
    Candidates are taken from the least important up, each while its quota is beyond its floor. Then they
    come back from the most important down, those first whose eviction breaks a budget, for as long as the
    pod still fits.
    """
    problem = entitled_to_reclaim(ledger, pod)
    if problem:
        return NoVictims(message=problem, resolvable=False)
    name = ledger.resolve(pod) or ""
    mine = _chain(ledger, name)
    wanted = [key for key, amount in sorted(_asked(ledger, name, pod).items()) if amount]
    residents = sorted(node.pods, key=importance)
    taken: list[QuotaPod] = []
    for other in reversed(residents):
        quota = ledger.resolve(other)
        if quota is None or quota == name or quota in BUILTIN_QUOTAS or not other.preemptible:
            continue
        useful = any(other.request.get(key, 0) and key in ledger.max_of(quota) for key in wanted)
        if useful and _borrows(ledger, quota, mine, [key for key in wanted if other.request.get(key, 0)]):
            ledger = ledger.forget(other)
            taken.append(other)
    gone = {other.key for other in taken}
    reason = node.refuse([other for other in residents if other.key not in gone])
    if reason:
        return NoVictims(message=reason, resolvable=bool(taken))
    outcome = admit(ledger, pod)
    if isinstance(outcome, QuotaRefusal):
        return NoVictims(message=outcome.message)
    breaking, others = split_by_budgets(sorted(taken, key=importance), budgets)
    victims: list[QuotaPod] = []
    for other in (*breaking, *others):
        back = ledger.assume(other)
        gone.discard(other.key)
        fits = not node.refuse([each for each in residents if each.key not in gone])
        if fits and not isinstance(admit(back, pod), QuotaRefusal):
            ledger = back
        else:
            gone.add(other.key)
            victims.append(other)
    broken, _ = split_by_budgets(victims, budgets)
    return QuotaVictims(victims=tuple(victims), violating=len(broken))


def plan_reclaim(
    ledger: QuotaLedger,
    pod: QuotaPod,
    nodes: Iterable[ReclaimNode],
    *,
    budgets: Sequence[PodDisruptionBudget] = (),
) -> ReclaimPlan | NoVictims:
    """Choose the node on which a pod gets back what its quota has lent, at the least damage.

    Fewest broken budgets first, then the lower highest priority among the victims, the lower sum of
    priorities, fewer victims, and the name of the node.

    Parameters
    ----------
    ledger
        The quotas with what is used of them.
    pod
        Who lacks quota.
    nodes
        Where it would fit once somebody has left, with the pods there.
    budgets
        Disruption budgets.
    """
    problem = entitled_to_reclaim(ledger, pod)
    if problem:
        return NoVictims(message=problem, resolvable=False)
    best: tuple[tuple[int, int, int, int, str], ReclaimPlan] | None = None
    reasons: Mapping[str, int] = {}
    for node in sorted(nodes, key=lambda node: node.name):
        found = select_reclaimed(ledger, pod, node, budgets=budgets)
        if isinstance(found, NoVictims):
            reasons = {**reasons, found.message: reasons.get(found.message, 0) + 1}
            continue
        priorities = [victim.priority for victim in found.victims]
        key = (
            found.violating,
            max(priorities, default=-(2**63)),
            sum(priorities),
            len(priorities),
            node.name,
        )
        if best is None or key < best[0]:
            best = key, ReclaimPlan(node=node.name, victims=found.victims, violating=found.violating)
    if best is not None:
        return best[1]
    told = ", ".join(f"{count} {message}" for message, count in sorted(reasons.items()))
    return NoVictims(message=told or "there is no node")
