"""Kubernetes' own groups: enough of every part, in one domain of every label, or nobody.

Where no label binds, members go one by one to the nodes that score best, part by part; that is all there is
to do where everybody finds a place. Where somebody is left over, and where a label binds, the tree is planned
as a whole: most parts start, then most members (rulings 18 and 34). Of the domains that the topmost label
makes that one is taken which holds most, then the fullest by upstream's placement score, then the first name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import attrs
import numpy as np

from koordcore._arrays import IntMatrix, IntVector
from koordcore.allocators.gang.demand import GangDemand
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.certificates import Certificate, CertificateStatus, Limits
from koordcore.model.decisions import Bound, PodDecision, Unschedulable
from koordcore.model.gangs import GangFit, NetworkTopologySpec
from koordcore.model.pods import PodKey
from koordcore.preemption.problem import Domains
from koordcore.scheduling.domain_choice import DomainChoice
from koordcore.scheduling.gang_groups import Job
from koordcore.scheduling.gang_input import Conflict, PlanningInput, demand_of, offers_of, planning_input_of
from koordcore.scheduling.gang_roles import counts_beyond_amounts
from koordcore.scheduling.group_tree import GroupTree, units_of
from koordcore.scheduling.key_domains import KeyDomains, key_domains
from koordcore.scheduling.nominated_members import beside, bind_each, bind_nominated
from koordcore.scheduling.one_pod import place_pod
from koordcore.scheduling.outcomes import NO_REFUSALS, Outcome, all_of, give_up, plan_of, unplaced, weakened
from koordcore.scheduling.planned import Failed, Planned, plan_and_bind
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import once
from koordcore.topology.network import NODE_LAYER, LayerSpec, NetworkTopology, build_tree

_ANYWHERE: Final = NetworkTopologySpec()
_IMPOSSIBLE: Final = Certificate(CertificateStatus.INFEASIBLE)


def place_groups(
    workspace: Workspace, plugins: PluginSet, job: Job, tree: GroupTree, limits: Limits
) -> Outcome:
    """Decide about all members of a tree of groups that are asked about."""
    return Groups(workspace, plugins, job, tree, limits).decide()


@attrs.define(eq=False, slots=False)
class Groups:
    """One turn of one tree."""

    workspace: Workspace
    plugins: PluginSet
    job: Job
    tree: GroupTree
    limits: Limits

    def decide(self) -> Outcome:
        """Nominated members first; then one by one, or by a plan."""
        job, workspace = self.job, self.workspace
        if not workspace.layout.names:
            return give_up(workspace, job, {}, "no nodes available to schedule pods")
        wrong = next(self._misplaced(self.tree), "")
        if wrong:
            text = f"cannot determine domain for already scheduled pods: {wrong}"
            if not self.tree.key:
                text = f"composite pod group evaluation failed due to child error: {text}"
            decisions, plan = give_up(workspace, job, {}, text)
            return decisions, attrs.evolve(plan, malformed=True)
        nominated = self._as_nominated()
        return self.decide_anew() if nominated is None else self._written(nominated)

    def decide_anew(self) -> Outcome:
        """Decide without looking at nominations; running members lie where they may."""
        job, workspace = self.job, self.workspace
        if self.tree.keys:
            return self._planned()
        mark = workspace.checkpoint()
        greedy = self._one_by_one()
        count = self._count(greedy)
        if count[1] == len(job.pods):
            return self._written(greedy)
        simple = self._uniform and not self._chooses and sum(map(bool, job.members.values())) == 1
        if simple:
            return self._written(greedy) if count[1] else self._refused(greedy, None)
        workspace.rollback(mark)
        found = self._anywhere()
        if isinstance(found, Planned) and self._count(found.bound) > count:
            return self._written(found.bound, found)
        if isinstance(found, Planned):
            workspace.rollback(mark)
        if not count[1]:
            return self._refused(greedy, found if isinstance(found, Failed) else None)
        return self._written(self._one_by_one())

    # -- who and where ---------------------------------------------------------------------------------

    def preferred_domains(self) -> Domains:
        """Give the domains of the topmost label that may do, the one that would be taken first first."""
        if isinstance(self._inputs, Unschedulable):
            return Domains(np.full(len(self.workspace.layout.names), -1, dtype=np.int64), 0)
        return self._choice.preferred()

    @cached_property
    def _choice(self) -> DomainChoice:
        """The domains of the topmost label."""
        assert isinstance(self._inputs, PlanningInput)
        return DomainChoice(
            workspace=self.workspace,
            domains=self._domains(self.tree.key),
            inputs=self._inputs,
            offers=self._offers,
            sizes=self._sizes,
            least=self._least,
            fixed=self._fixed(self.tree),
        )

    def domains_of(self, group: GroupTree) -> Domains:
        """Give the domains of a group's label; only that of its running members where there are any."""
        known, fixed = self._domains(group.key), self._fixed(group)
        home = known.home if fixed < 0 else np.where(known.home == fixed, fixed, -1)
        return Domains(home, len(known.names))

    @cached_property
    def _idle(self) -> tuple[str, ...]:
        """Leaves with members to place that do not run yet: late members of others start nothing."""
        job = self.job
        idle = (leaf for leaf in self.tree.leaves if len(job.bound[leaf.id]) < leaf.least)
        return tuple(leaf.id for leaf in idle if job.members[leaf.id])

    @cached_property
    def _uniform(self) -> bool:
        return len({self.plugins.key_of(pod) for pod in self.job.pods}) == 1

    @cached_property
    def _chooses(self) -> bool:
        """Cards or CPUs of one member may be what another needs, and not only amounts."""
        return counts_beyond_amounts(self.plugins, self.job.pods)

    def _domains(self, key: str) -> KeyDomains:
        return once(self.workspace.snapshot, key_domains, key)

    def _running(self, group: GroupTree) -> list[str]:
        return [node for leaf in group.leaves for node in self.job.bound[leaf.id]]

    def _misplaced(self, group: GroupTree) -> Iterator[str]:
        """Say of groups with a label why their running members have no domain in common."""
        if group.key:
            domain = self._domains(group.key).of_running(self._running(group))
            if isinstance(domain, str):
                yield domain
        for child in group.children:
            yield from self._misplaced(child)

    def _fixed(self, group: GroupTree) -> int:
        domain = self._domains(group.key).of_running(self._running(group))
        assert isinstance(domain, int), "misplaced members were refused before"
        return domain

    def _count(self, decisions: Mapping[PodKey, PodDecision]) -> tuple[int, int]:
        """Count the leaves that start with them, and the members."""
        placed = {key for key, one in decisions.items() if isinstance(one, Bound)}
        members = [self.job.members[name] for name in self._idle]
        return sum(any(pod.key in placed for pod in pods) for pods in members), len(placed)

    # -- one by one ------------------------------------------------------------------------------------

    def _as_nominated(self) -> dict[PodKey, PodDecision] | None:
        """Bind members where room was made for them, and others beside them; ``None`` for too few."""
        mark = self.workspace.checkpoint()
        decisions = bind_nominated(self.workspace, self.plugins, self.job.pods)
        if not decisions:
            return None
        if not self._legal(self.tree, decisions):
            self.workspace.rollback(mark)
            return None
        if len(decisions) < len(self.job.pods):
            others, _ = attrs.evolve(self, job=beside(self.job, decisions)).decide_anew()
            decisions |= {one.pod: one for one in others if isinstance(one, Bound)}
        return decisions

    def _legal(self, group: GroupTree, decisions: Mapping[PodKey, PodDecision]) -> bool:
        """Tell whether a group succeeds, with nobody below a part that does not."""
        here = [pod for leaf in group.leaves for pod in self.job.members[leaf.id]]
        nodes = [one.node for pod in here if isinstance(one := decisions.get(pod.key), Bound)]
        if group.key:
            domain = self._domains(group.key).of_running([*self._running(group), *nodes])
            if isinstance(domain, str):
                return False
        if group.leaf:
            return len(nodes) + len(self.job.bound[group.id]) >= group.least
        well = 0
        for child in group.children:
            if self._legal(child, decisions):
                well += 1
            elif any(pod.key in decisions for leaf in child.leaves for pod in self.job.members[leaf.id]):
                return False
        return well >= group.least

    def _one_by_one(self) -> dict[PodKey, PodDecision]:
        """Place part after part; what fails is taken back."""
        decisions: dict[PodKey, PodDecision] = {}
        self._part(self.tree, decisions)
        return decisions

    def _part(self, group: GroupTree, decisions: dict[PodKey, PodDecision]) -> bool:
        mark = self.workspace.checkpoint()
        if group.leaf:
            placed = 0
            for pod in self.job.members[group.id]:
                decision = decisions[pod.key] = place_pod(self.workspace, self.plugins, pod)
                placed += isinstance(decision, Bound)
            success = placed + len(self.job.bound[group.id]) >= group.least
        else:
            success = sum(self._part(child, decisions) for child in group.children) >= group.least
        if not success:
            self.workspace.rollback(mark)
            failed = next((one for one in decisions.values() if isinstance(one, Unschedulable)), None)
            text = self._short(group, "" if failed is None else failed.message)
            for leaf in group.leaves:
                for pod in self.job.members[leaf.id]:
                    if isinstance(decisions[pod.key], Bound):
                        decisions[pod.key] = unplaced(self.workspace, pod.key, text)
        return success

    def _short(self, group: GroupTree, why: str) -> str:
        """Say that a group did not reach its minimum."""
        tail = f": {why}" if why else ""
        if not group.leaf:
            return f"minGroupCount ({group.least}) of {group.name} is not satisfied{tail}"
        running, waiting = len(self.job.bound[group.id]), len(self.job.members[group.id])
        if running + waiting < group.least:
            return f"minCount ({group.least}) cannot be satisfied: {running} scheduled, {waiting} remaining"
        return f"minCount ({group.least}) is not yet satisfied{tail}"

    # -- planning --------------------------------------------------------------------------------------

    def _planned(self) -> Outcome:
        """Try the domains of the topmost label, best first; or the whole cluster."""
        if isinstance(self._inputs, Unschedulable):
            return give_up(self.workspace, self.job, {self._inputs.pod: self._inputs}, "")
        if not self.tree.key:
            found = self._anywhere()
            return (
                self._written(found.bound, found) if isinstance(found, Planned) else self._refused({}, found)
            )
        domains = self._domains(self.tree.key)
        order = self._choice.order()
        if not domains.names:
            return self._refused({}, Failed("no feasible placements found"))
        if not order:
            certificate = None if self._inputs.undercounted else _IMPOSSIBLE
            failed = Failed(detail=self._choice.nearest(), certificate=certificate)
            return self._refused({}, failed, len(domains.names))
        best: tuple[tuple[int, int, int], Planned, int] | None = None
        first: Failed | None = None
        proven = True
        for most, number in order:
            if best is not None and best[0][0] == len(self._idle) and most < best[0][1]:
                break
            mark = self.workspace.checkpoint()
            found = self._within(domains.rows[number], domains.tree(number))
            if isinstance(found, Failed):
                proven = proven and found.certificate is not None and found.certificate.proven
                first = first or found
                continue
            groups, members = self._count(found.bound)
            if best is None and (members == int(self._sizes.sum()) or (self._simple and members == most)):
                return self._written(found.bound, found, domains.names[number], proven=proven)
            value = (groups, members, int(self._choice.fullest()[number]))
            self.workspace.rollback(mark)
            if best is None or value > best[0]:
                best = (value, found, number)
        if best is None:
            return self._refused({}, first, len(domains.names))
        _, planned, number = best
        pod_of = {pod.key: pod for pod in self.job.pods}
        nodes = {key: one.node for key, one in planned.bound.items() if isinstance(one, Bound)}
        again = bind_each(self.workspace, self.plugins, [(pod_of[key], node) for key, node in nodes.items()])
        planned.bound.update(again)
        if not again:
            # Cards or claims of several were chosen together: the same question has the same answer.
            once_more = self._within(domains.rows[number], domains.tree(number))
            assert isinstance(once_more, Planned), "what was planned is planned again"
            planned = once_more
        return self._written(planned.bound, planned, domains.names[number], proven=proven)

    @property
    def _simple(self) -> bool:
        """How many members a domain takes is the sum of its slots."""
        inputs = self._inputs
        return not self.tree.children and isinstance(inputs, PlanningInput) and len(inputs.classes) == 1

    @cached_property
    def _inputs(self) -> PlanningInput | Unschedulable:
        """The members over all nodes."""
        return planning_input_of(self.workspace, self.plugins, self.job.pods, flat_tree(self.workspace))

    @cached_property
    def _offers(self) -> IntMatrix:
        """Members of each shape that every node takes, at most all of them, shape (shapes, nodes)."""
        assert isinstance(self._inputs, PlanningInput)
        return np.minimum(offers_of(self._inputs), self._sizes[:, None])

    @cached_property
    def _sizes(self) -> IntVector:
        """Members of each shape."""
        assert isinstance(self._inputs, PlanningInput)
        shapes = [self._inputs.shape_of[str(pod.key)] for pod in self._inputs.members]
        return np.bincount(shapes, minlength=len(self._inputs.classes)).astype(np.int64)

    @property
    def _least(self) -> int:
        """Fewest members that have to be placed."""
        return max(1, _fewest(self.tree, self.job))

    def _within(self, rows: IntVector, tree: NetworkTopology) -> Planned | Failed:
        """Plan and bind on some of the nodes, given by row in the order of a tree without layers."""
        if isinstance(self._inputs, Unschedulable):
            return Failed(refused=self._inputs)
        inner = [self._domains(key) for child in self.tree.children for key in child.keys]
        place = rows
        if inner:
            tree = _cells(self.workspace, rows, inner)
            place = np.array([self.workspace.layout.row_of[name] for name in tree.nodes], dtype=np.int64)
        inputs = self._inputs.among(place)

        def ask(offers: IntMatrix, conflicts: Sequence[Conflict]) -> GangDemand:
            demand = demand_of(self.workspace, self.job, _ANYWHERE, tree, inputs, offers, conflicts)
            return self._in_units(demand, place) if self.tree.children else demand

        whole = self.job.fit is GangFit.TIGHTEST_FIT
        offers = (offers_of(self._inputs, self.job.fit) if whole else self._offers)[:, place]
        return plan_and_bind(self.workspace, self.plugins, tree, inputs, offers, ask, self.limits)

    def _anywhere(self) -> Planned | Failed:
        rows = np.arange(len(self.workspace.layout.names), dtype=np.int64)
        return self._within(rows, flat_tree(self.workspace))

    def _in_units(self, demand: GangDemand, place: IntVector) -> GangDemand:
        """Say how the roles hang together, and in which domains each part may lie."""

        def home_of(group: GroupTree) -> tuple[IntVector, int] | None:
            if not group.key or group is self.tree:
                return None
            return self._domains(group.key).home[place], self._fixed(group)

        units, above = units_of(self.tree, home_of)
        homes = {leaf.id: home_of(leaf) for leaf in self.tree.leaves}
        least = {leaf.id: leaf.least for leaf in self.tree.leaves}
        roles = []
        for role in demand.roles:
            home, fixed = homes[role.name] or (role.home, -1)
            started = len(self.job.bound[role.name]) >= least[role.name]
            own = above[role.name]
            roles.append(attrs.evolve(role, unit=own, home=home, fixed=fixed, started=started))
        return attrs.evolve(demand, roles=tuple(roles), units=units)

    # -- outcomes --------------------------------------------------------------------------------------

    def _written(
        self,
        decisions: Mapping[PodKey, PodDecision],
        planned: Planned | None = None,
        domain: str = "",
        *,
        proven: bool = True,
    ) -> Outcome:
        """Write down who starts, and why others do not."""
        listed: list[PodDecision] = []
        refused = NO_REFUSALS if planned is None else planned.refused
        for leaf in self.tree.leaves:
            pods = self.job.members[leaf.id]
            running = len(self.job.bound[leaf.id])
            starts = running >= leaf.least or any(isinstance(decisions.get(p.key), Bound) for p in pods)
            if all(pod.key in decisions for pod in pods):
                listed += [decisions[pod.key] for pod in pods]
                continue
            left = "no place is left beside the members that start" if starts else self._short(leaf, "")
            listed += [
                decisions.get(p.key) or refused.get(p.key) or unplaced(self.workspace, p.key, left)
                for p in pods
            ]
        nodes = [one.node for one in listed if isinstance(one, Bound)]
        used = {self.tree.key: 1} if domain else {}
        if nodes:
            used[NODE_LAYER] = len(set(nodes))
        certificate = all_of(len(nodes), len(listed)) if planned is None else planned.answer.certificate
        if planned is not None and (planned.cut or not proven):
            certificate = weakened(planned.answer.certificate)
        job = plan_of(self.job, placed=len(nodes), domains=used, certificate=certificate, least=self._least)
        return listed, job

    def _refused(
        self, decisions: Mapping[PodKey, PodDecision], failed: Failed | None, domains: int = 0
    ) -> Outcome:
        """Write down why nobody starts."""
        known = dict(decisions)
        if failed is not None and failed.refused is not None:
            known[failed.refused.pod] = failed.refused
        why = next((one.message for one in known.values() if isinstance(one, Unschedulable)), "")
        if not known and failed is not None and failed.message == "no feasible placements found":
            text = failed.message
        else:
            text = self._short(self.tree, why or (failed.detail if failed is not None else ""))
            if domains:
                text = f"0/{domains} placements are available, first placement status: {text}"
        listed, plan = give_up(self.workspace, self.job, known, text)
        detail = "" if failed is None else failed.detail
        certificate: Certificate | None = None if failed is None else failed.certificate
        if certificate is None and self._simple and not self._chooses and not self.tree.key:
            certificate = _IMPOSSIBLE
        return listed, attrs.evolve(plan, detail=detail, certificate=certificate, least=self._least)


def _fewest(group: GroupTree, job: Job) -> int:
    """Count the fewest members that a group needs beside those that run."""
    if group.leaf:
        return max(0, group.least - len(job.bound[group.id]))
    able = (child for child in group.children if child.leaves)
    return sum(sorted(_fewest(child, job) for child in able)[: group.least])


def flat_tree(workspace: Workspace) -> NetworkTopology:
    """Give the tree of a cluster without a network: all nodes under the root."""
    return once(workspace.snapshot, _flat_tree)


def _flat_tree(snapshot: ClusterSnapshot) -> NetworkTopology:
    return build_tree([LayerSpec(NODE_LAYER)], {state.name: {} for state in snapshot.nodes})


def _cells(workspace: Workspace, rows: IntVector, inner: Sequence[KeyDomains]) -> NetworkTopology:
    """Give the tree of some nodes; those that labels of parts of the job tell apart lie in cells."""
    names = workspace.layout.names
    labels = {
        names[row]: {"cell": "/".join(str(int(one.home[row])) for one in inner)} for row in rows.tolist()
    }
    return build_tree([LayerSpec("Cell", ("cell",)), LayerSpec(NODE_LAYER, (), "Cell")], labels)
