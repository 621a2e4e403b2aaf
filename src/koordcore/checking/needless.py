"""Who leaves in vain: every victim is put back, and the job must then fit no longer.

The cluster is looked at as it stood at the plan's turn, by sums of amounts, host ports and quotas. Where
these do not settle it, because cards, claims, CPUs, volumes, neighbours, reservations, the load or a runtime
quota have a say, or a plugin of one's own, the victim has the benefit of the doubt.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, TypeAlias

from koordcore._record import record
from koordcore.checking.extended import classes_of_resources
from koordcore.checking.leaving import leaving_anyhow
from koordcore.checking.nodes import STANDS_FOR
from koordcore.checking.quota_chains import QuotaChains
from koordcore.checking.quota_sums import Elsewhere, in_force, quota_of, spaces_of
from koordcore.checking.room import overflow
from koordcore.checking.violation import Violation, ViolationKind
from koordcore.model.decisions import Bound
from koordcore.model.devices import DeviceObject
from koordcore.model.installed import offered_plugins
from koordcore.model.metrics import NodeMetric
from koordcore.model.nodes import NodeState
from koordcore.model.numa import NodeResourceTopology
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.model.preemption import Move
from koordcore.model.quotas import ElasticQuota, QuotaPolicy
from koordcore.model.reservations import Reservation
from koordcore.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from koordcore.protocol.gang_names import gang_name
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

PLAIN: Final = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
HOLDING: Final = (
    "scheduling.koordinator.sh/device-allocated",
    "scheduling.koordinator.sh/resource-status",
    "scheduling.koordinator.sh/reservation-allocated",
)
_MOST_TOGETHER: Final = 10
"""Pods of one gang on one node among whom subsets are tried."""

Verdict: TypeAlias = bool | None
"""Whether the job fits; None where sums do not tell."""


@record(eq=False)
class _Turn:
    """The cluster when a plan was made, with the plan carried out.

    Parameters
    ----------
    states
        Nodes with their pods as they are at the end of the call.
    later
        Pods that were placed after the plan.
    gone
        Victims of this plan and of the earlier ones, and who leaves anyhow.
    coming, promised
        Members and pods that move, by node; pods that were nominated before.
    everywhere, elsewhere
        Every node of the cluster, and what pods hold that are not in ``states``.
    given_up
        Nodes on which reservations held room at some time of the call and hold none at its end.
    """

    snapshot: ClusterSnapshot
    result: ScheduleResult
    states: Mapping[str, NodeState]
    later: frozenset[PodKey]
    gone: frozenset[PodKey]
    coming: Mapping[str, Sequence[Pod]]
    promised: Mapping[str, Sequence[Pod]]
    everywhere: Sequence[NodeState]
    elsewhere: Elsewhere
    given_up: frozenset[str]

    def fits(self, node: str, back: Sequence[Pod], group: Sequence[Pod]) -> Verdict:
        """Tell whether those who come to a node fit although some victims of a group stay there."""
        state, keys = self.states[node], {pod.key for pod in group}
        coming = [pod for pod in self.coming.get(node, ()) if pod.key not in keys]
        away = self.gone | self.later
        staying = [pod for pod in state.pods if pod.key not in away]
        there = [*staying, *back, *self.promised.get(node, ())]
        policy = self.result.policy
        if not coming:
            return None if self._reserved(node, there) else True
        classes = classes_of_resources(self.snapshot, policy)
        if next(overflow(state.node, there, coming, policy, classes=classes), None):
            return None if self._reserved(node, there) else False
        ports = [port for pod in coming for port in pod.host_ports]
        if policy.filters("NodePorts") and any(
            port.conflicts(other) for pod in back for other in pod.host_ports for port in ports
        ):
            return False
        return None if self.apart(group, coming) or self._doubtful(node, there, back, coming) else True

    def _reserved(self, node: str, there: Sequence[Pod]) -> bool:
        """What a reservation still held at the time is not known."""
        return node in self.given_up or any(
            pod.annotations.get(STANDS_FOR) == "true" or HOLDING[2] in pod.annotations for pod in there
        )

    def apart(self, group: Sequence[Pod], coming: Sequence[Pod]) -> bool:
        """Tell whether who stays may speak against those who come, on whatever node he is."""
        return (
            any(pod.affinity is not None or pod.spread_constraints for pod in (*coming, *group))
            or (any(pod.claims for pod in group) and any(pod.claims for pod in coming))
            or (any(map(self._claims_devices, group)) and any(map(self._claims_devices, coming)))
        )

    def _claims_devices(self, pod: Pod) -> bool:
        """A resource that a class goes by may be a claim, too: a node that lists it serves it itself."""
        classes = classes_of_resources(self.snapshot, self.result.policy)
        return bool(pod.resource_claims) or any(name in classes for name in pod.requests)

    def _doubtful(self, node: str, there: Sequence[Pod], back: Sequence[Pod], coming: Sequence[Pod]) -> bool:
        """Tell whether more than sums may speak against those who come."""
        devices = {name for pod in coming for name in pod.requests if name not in PLAIN}
        fine = any(key in pod.annotations for pod in back for key in HOLDING) or any(
            name in devices for pod in back for name in pod.requests
        )
        # Of the cards of a node without a Device object those tell who hold some.
        told = bool(devices) and any(HOLDING[0] in pod.annotations for pod in there)
        listed = any(one.name == node for one in self.snapshot.of(DeviceObject))
        detailed = told or listed or any(one.name == node for one in self.snapshot.of(NodeResourceTopology))
        reported = any(one.node == node for one in self.snapshot.of(NodeMetric))
        loaded = reported and self.result.policy.filters("LoadAwareScheduling")
        return loaded or (detailed and fine) or self._reserved(node, there)

    def admitted(self, members: Sequence[Pod], back: Sequence[Pod]) -> Verdict:
        """Tell whether the members' quotas admit them although some victims stay."""
        tree = self._quotas()
        if tree is None:
            return True
        asked = {name for pod in members for name in tree.chain(pod)}
        if not asked & tree.quotas.keys():
            return True
        held = tree.held(self._counting(back))
        sure = not tree.policy.guarantee_usage
        for name in sorted(asked & tree.quotas.keys()):
            used = held[name]
            most, least = tree.quotas[name].max, tree.quotas[name].min
            # A quota that is beyond its limit in anything admits nobody, whatever is asked for.
            if any(used.get(one, 0) > bound for one, bound in most.items()):
                return False
            names = {resource for pod in members for resource in pod.requests} | most.keys()
            sure &= all(
                used.get(one, 0) <= least.get(one, 0)
                and tree.kept(name, one, held)
                and not tree.capped(name, one, held)
                for one in names
            )
        return True if sure or not tree.policy.enable_runtime_quota else None

    def promised_to(self, members: Sequence[Pod], group: Sequence[Pod]) -> bool:
        """Tell whether some victims lie within the min of a quota that neither has the members nor is above.

        Nobody may borrow more because they leave (ruling 26).
        """
        tree = self._quotas()
        if tree is None:
            return False
        own = {name for pod in members for name in tree.counting(pod)}
        # Whoever was promised room before, in the very quota, may use the min that they lie in.
        held = tree.held(self._counting(group))
        names = {resource for pod in members for resource in pod.requests}

        def within(pod: Pod) -> bool:
            quota = tree.quotas.get(tree.chain(pod)[0])
            if quota is None or quota.name in own:
                return False
            used = held[quota.name]
            return all(used.get(one, 0) <= quota.min.get(one, 0) for one in names & pod.requests.keys())

        return all(map(within, group))

    def _counting(self, back: Sequence[Pod]) -> list[Pod]:
        """Who uses quota when some victims are back: who runs then, and who comes or was promised room."""
        stays = {pod.key for pod in back}
        arriving = [pod for pods in self.coming.values() for pod in pods if pod.key not in stays]
        running = self._running(back)
        there = {pod.key for pod in running}
        waiting = [pod for pods in self.promised.values() for pod in pods if pod.key not in there]
        return [*running, *arriving, *waiting]

    def _running(self, back: Sequence[Pod]) -> list[Pod]:
        """Who runs when the plan's victims have left and some are back."""
        away = (self.gone | self.later) - {pod.key for pod in back}
        running = [pod for state in self.states.values() for pod in state.pods if pod.key not in away]
        known = {pod.key for pod in running}
        return [*running, *(one for one in back if one.key not in known)]

    def _quotas(self) -> QuotaChains | None:
        quotas = in_force(self.snapshot.of(ElasticQuota))
        policy = self.result.policy
        if not quotas or not policy.filters("ElasticQuota"):
            return None
        setting = policy.plugin("ElasticQuota")
        args = setting.args if setting and setting.args else QuotaPolicy()
        return QuotaChains.of(quotas, args, self.everywhere, self.elsewhere)


def check_needed(
    snapshot: ClusterSnapshot,
    result: ScheduleResult,
    members: Mapping[str, Sequence[Pod]],
    minimums: Mapping[str, int],
    *,
    everywhere: Sequence[NodeState],
    elsewhere: Elsewhere,
) -> Iterator[Violation]:
    """Put every victim, and every gang that breaks, back: its job must not fit then.

    Parameters
    ----------
    members, minimums
        Running pods of every gang, and its minimum, by id.
    everywhere, elsewhere
        Every node of the cluster, and what pods hold that the snapshot does not show.
    """
    if not result.policy.filters("NodeResourcesFit"):
        return
    running = {pod.key: pod for pod in snapshot.bound_pods()}
    pending = {str(pod.key): pod for pod in (*snapshot.pending, *result.snapshot.pending)}
    turn_of = {one.pod: number for number, one in enumerate(result.decisions)}
    states = {state.name: state for state in result.snapshot.nodes}
    gone: set[PodKey] = set()
    coming: dict[str, list[Pod]] = defaultdict(list)
    placed: set[PodKey] = set()
    gang_of = {pod.key: gang for gang in minimums for pod in members[gang]}
    over = {one.name: one for one in result.snapshot.of(Reservation) if one.over}
    given_up = frozenset(
        over[one.name].status.node_name
        for one in snapshot.of(Reservation)
        if not one.over and one.name in over
    )
    for plan in result.preemptions:
        own = [pending[key] for key in plan.nominations if key in pending]
        known = [one for one in plan.victims if one.pod in running and one.node in states]
        if not own or len(known) < len(plan.victims):
            continue  # named elsewhere
        if any(_has_own_rules(result.policy, pod) for pod in own):
            continue
        leaving = Counter(gang_of[victim.pod] for victim in plan.victims if victim.pod in gang_of)
        ran = {gang: sum(pod.key not in gone for pod in members[gang]) for gang in leaving}
        broken = {gang for gang, number in leaving.items() if ran[gang] - number < minimums[gang]}
        gone.update(victim.pod for victim in plan.victims)
        placed.update(pod.key for pod in own)
        for pod in own:
            coming[plan.nominations[str(pod.key)]].append(pod)
        for move in plan.moves:
            coming[move.node].append(running[move.victim.pod])
        first = min(turn_of.get(pod.key, 0) for pod in own)
        came = {one.pod for one in result.decisions[first:] if isinstance(one, Bound)}
        # Those of the same gangs were placed in the same turn, before anybody was asked to leave.
        own_gangs = {*plan.job.split(",")}
        theirs = [pod for pod in snapshot.pending if _gang_of(pod) in own_gangs]
        beside = {pod.key for pod in theirs if pod.key in came}
        # A gang counts on whom the least of those who wait could evict, whoever of them gets room.
        least = min((pod.priority for pod in (*own, *theirs) if pod.key not in beside), default=0)
        turn = _Turn(
            snapshot=snapshot,
            result=result,
            states=states,
            later=frozenset(came - beside),
            gone=leaving_anyhow(snapshot, least).union(gone),
            coming=coming,
            promised=_promised(snapshot, own, placed, plan.moves),
            everywhere=everywhere,
            elsewhere=elsewhere,
            given_up=given_up,
        )
        groups: dict[str, list[Pod]] = defaultdict(list)
        for victim in plan.victims:
            gang = gang_of.get(victim.pod, "")
            groups[gang if gang in broken else str(victim.pod)].append(running[victim.pod])
        # To break a gang whose members move may cost less than that one of them leaves for good.
        moved = {gang_of.get(move.victim.pod) for move in plan.moves}
        slack = {gang: max(0, ran[gang] - minimums[gang]) for gang in broken - moved}
        yield from _check_groups(turn, own, groups, slack)


def _gang_of(pod: Pod) -> str:
    """Give the id of a pod's gang; empty for none."""
    name = gang_name(pod.labels, pod.annotations)
    return f"{pod.namespace}/{name}" if name else ""


def _has_own_rules(policy: Policy, pod: Pod) -> bool:
    """Tell whether a filter that is none of the library's decides about a pod: it may want victims gone."""
    profile = policy.profile_of(pod.scheduler_name) or policy
    return any(
        one.filters and (one.plugin is not None or one.name in offered_plugins()) for one in profile.plugins
    )


def _promised(
    snapshot: ClusterSnapshot, own: Sequence[Pod], placed: set[PodKey], moves: Iterable[Move]
) -> Mapping[str, Sequence[Pod]]:
    """Pods of others that were nominated before and are as important, or may have been promised it.

    Where pods move to, as important as these: they leave them their room.
    """
    least = min(pod.priority for pod in own)
    there: dict[str, int] = {}
    for move in moves:
        there[move.node] = min(there.get(move.node, least), move.victim.priority)
    quotas = in_force(snapshot.of(ElasticQuota))
    spaces = spaces_of(quotas)
    found: dict[str, list[Pod]] = defaultdict(list)
    for pod in snapshot.pending:
        if not pod.nominated_node or pod.key in placed:
            continue
        quota = quotas.get(quota_of(pod, quotas, spaces))
        if pod.priority >= there.get(pod.nominated_node, least) or (quota is not None and quota.min):
            found[pod.nominated_node].append(pod)
    return found


def _check_groups(
    turn: _Turn, own: Sequence[Pod], groups: Mapping[str, Sequence[Pod]], slack: Mapping[str, int]
) -> Iterator[Violation]:
    """Put back what leaves together, one group after the other."""
    for name, group in sorted(groups.items()):
        if not turn.promised_to(own, group) and turn.admitted(own, group) is not True:
            continue
        if turn.apart(group, own):
            continue  # wherever they are
        back: dict[str, list[Pod]] = defaultdict(list)
        for pod in group:
            back[str(pod.node_name)].append(pod)
        verdicts = [turn.fits(node, pods, group) for node, pods in sorted(back.items())]
        if all(verdict is True for verdict in verdicts):
            yield Violation(ViolationKind.VICTIM, name, f"could stay: {own[0].key} fits all the same")
        elif slack.get(name):
            needed = [_fewest(turn, node, pods, group) for node, pods in sorted(back.items())]
            number = sum(one for one in needed if one is not None)
            if None not in needed and number <= slack[name]:
                message = f"need not break: {number} have to leave, it can spare {slack[name]}"
                yield Violation(ViolationKind.VICTIM, name, message)


def _fewest(turn: _Turn, node: str, pods: Sequence[Pod], group: Sequence[Pod]) -> int | None:
    """Count how many of a gang's pods have to leave a node at least; None where that is not certain."""
    if len(pods) > _MOST_TOGETHER:
        return None
    for number in range(len(pods) + 1):
        for back in combinations(pods, len(pods) - number):
            verdict = turn.fits(node, back, group)
            if verdict is not False:
                return number if verdict else None
    return None
