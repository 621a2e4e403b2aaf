"""Which flavors the pod sets of a Kueue Workload may take, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Final, TypeAlias

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.affinity import TaintEffect, tolerated
from koordcore.model.kueue import PODS, ClusterQueue, FlavorQuota, KueueWorkload, PodSet
from koordcore.model.network import KueueTopology, ResourceFlavor
from koordcore.model.pods import Pod

MOST: Final = 256
"""Assignments of one Workload that are tried; and as many of all others, of those that have the quota."""


@record(kw_only=True)
class PodSetFlavors:
    """What flavors a pod set is given.

    Parameters
    ----------
    by_resource
        Names of flavors by resource that the queue covers.
    flavors
        The flavors themselves, each once.
    """

    by_resource: immutabledict[str, str]
    flavors: tuple[ResourceFlavor, ...]


@record(kw_only=True)
class FlavorChoice:
    """One assignment of flavors to all pod sets of a Workload, by name of the pod set."""

    pod_sets: immutabledict[str, PodSetFlavors]

    @property
    def flavors(self) -> dict[str, tuple[ResourceFlavor, ...]]:
        """The flavors of each pod set, by its name."""
        return {name: given.flavors for name, given in self.pod_sets.items()}

    def amounts(self, asked: Mapping[str, Mapping[str, int]], counts: Mapping[str, int]) -> dict[str, int]:
        """Add up what the pod sets ask for, by flavor and resource.

        Parameters
        ----------
        asked
            What one pod of each pod set asks for.
        counts
            Pods of each pod set.
        """
        found: dict[str, int] = {}
        for name, given in self.pod_sets.items():
            for resource, flavor in given.by_resource.items():
                each = 1 if resource == PODS else asked[name].get(resource, 0)
                key = f"{flavor}/{resource}"
                found[key] = found.get(key, 0) + each * counts[name]
        return found


Options: TypeAlias = tuple[tuple[Mapping[str, PodSetFlavors], ...], ...]
"""By pod set, or group of pod sets, what these may be given."""


def combined(parts: Sequence[Mapping[str, PodSetFlavors]]) -> FlavorChoice:
    """Put together what some pod sets are given."""
    return FlavorChoice(pod_sets=immutabledict({name: one for part in parts for name, one in part.items()}))


def first_choices(options: Options) -> tuple[FlavorChoice, ...]:
    """List the assignments in their order, as many as are tried whether or not there is quota."""
    return tuple(map(combined, islice(product(*options), MOST)))


@record(eq=False)
class Flavors:
    """The flavors of a cluster, with their topologies."""

    flavors: Mapping[str, ResourceFlavor]
    topologies: Mapping[str, KueueTopology]

    def options(self, queue: ClusterQueue, workload: KueueWorkload, pods: Mapping[str, Pod]) -> Options | str:
        """List by pod set, or group of these, what a Workload may have, the queue's first flavors first.

        Parameters
        ----------
        queue
            Whose flavors are all known.
        pods
            One pod of each pod set that has any.

        Returns
        -------
        tuple, or str
            Never empty; or why there is none.
        """
        sets = [one for one in workload.pod_sets if one.name in pods]
        joined: dict[str, list[PodSet]] = {}
        for one in sets:
            joined.setdefault(f"group {one.topology.group}" if one.topology.group else one.name, []).append(
                one
            )
        options: list[list[dict[str, PodSetFlavors]]] = []
        for members in joined.values():
            found = self._of_group(queue, members, pods)
            if isinstance(found, str):
                return found
            options.append(found)
        return tuple(map(tuple, options))

    def lay_out(self, choice: FlavorChoice) -> bool:
        """Tell whether any of some flavors has a topology that is known."""
        names = {one.topology for given in choice.flavors.values() for one in given}
        return any(self.topologies[name].levels for name in names if name in self.topologies)

    def _of_group(
        self, queue: ClusterQueue, members: Sequence[PodSet], pods: Mapping[str, Pod]
    ) -> list[dict[str, PodSetFlavors]] | str:
        """List what pod sets that take one flavor may take together."""
        asked = {one.name: _resources(pods[one.name]) for one in members}
        covered = {name for group in queue.groups for name in group.resources}
        for one in members:
            for name in sorted(asked[one.name] - covered):
                return f"{one.name}: ClusterQueue {queue.name} has no {name}"
        named = [quota.flavor for group in queue.groups for quota in group.flavors]
        whole = all(self.flavors[name].topology for name in named)
        lists: list[list[tuple[tuple[str, ...], ResourceFlavor]]] = []
        for group in queue.groups:
            wanted = {name for names in asked.values() for name in names}
            if not wanted & set(group.resources) and PODS not in group.resources:
                continue
            found = list(self._in_group(group.resources, group.flavors, members, pods, whole))
            fitting = [one for one in found if not isinstance(one, str)]
            if not fitting:
                return "; ".join(one for one in found if isinstance(one, str)) or "its queue has no flavor"
            lists.append(fitting)
        given = [
            {one.name: self._given(asked[one.name], parts) for one in members} for parts in product(*lists)
        ]
        return [one for one in given if all(_agree(each.flavors) for each in one.values())] or (
            "no two flavors of its resources lie on the same nodes"
        )

    def _given(
        self, asked: set[str], parts: Sequence[tuple[tuple[str, ...], ResourceFlavor]]
    ) -> PodSetFlavors:
        pairs = {
            name: flavor.name
            for resources, flavor in parts
            for name in resources
            if name in asked or name == PODS
        }
        # Who asks for nothing that the queue covers, such as a leader, lies where its group does.
        used = {one.name: one for _, one in parts if not pairs or one.name in pairs.values()}
        return PodSetFlavors(by_resource=immutabledict(sorted(pairs.items())), flavors=tuple(used.values()))

    def _in_group(
        self,
        resources: tuple[str, ...],
        quotas: Sequence[FlavorQuota],
        members: Sequence[PodSet],
        pods: Mapping[str, Pod],
        whole: bool,
    ) -> Iterator[tuple[tuple[str, ...], ResourceFlavor] | str]:
        for quota in quotas:
            flavor = self.flavors[quota.flavor]
            whys = (self._refused(flavor, one, pods[one.name], whole) for one in members)
            why = next(filter(None, whys), "")
            yield why or (resources, flavor)

    def _refused(self, flavor: ResourceFlavor, one: PodSet, pod: Pod, whole: bool) -> str:
        """Say why a pod set cannot take a flavor; empty where it can.

        ``whole`` says that all flavors of the queue have a topology: then nobody has to ask for one.
        """
        allowed = (*pod.tolerations, *flavor.tolerations)
        for taint in flavor.taints:
            if taint.effect is not TaintEffect.PREFER_NO_SCHEDULE and not tolerated(taint, allowed):
                return f"{one.name} does not tolerate taint {taint.key} of flavor {flavor.name}"
        for key, value in flavor.node_labels.items():
            if pod.node_selector.get(key, value) != value:
                return f"{one.name} wants {key}={pod.node_selector[key]}, not flavor {flavor.name}"
        if not _affine(pod, flavor):
            return f"{one.name} requires other nodes than those of flavor {flavor.name} (node affinity)"
        wanted = (one.topology.required, one.topology.preferred, one.topology.slice_level)
        topology = self.topologies.get(flavor.topology)
        levels = () if topology is None else topology.levels
        for level in wanted:
            if level and level not in levels:
                return f"flavor {flavor.name} has no topology level {level}, which {one.name} names"
        if one.topology.unconstrained and topology is None:
            return f"flavor {flavor.name} has no topology, which {one.name} asks for"
        if topology is not None and not (any(wanted) or one.topology.unconstrained) and not whole:
            return f"flavor {flavor.name} is for pod sets with a topology request, and {one.name} has none"
        return ""


def _resources(pod: Pod) -> set[str]:
    return {name for name, amount in pod.requests.items() if amount}


def _affine(pod: Pod, flavor: ResourceFlavor) -> bool:
    """Tell whether required node affinity allows a flavor, by the labels that the flavor has."""
    affinity = pod.affinity.node if pod.affinity else None
    terms = () if affinity is None or affinity.required is None else affinity.required.terms
    labels = flavor.node_labels
    return not terms or any(
        all(each.matches(labels) for each in term.expressions if each.key in labels) for term in terms
    )


def _agree(flavors: Sequence[ResourceFlavor]) -> bool:
    """Tell whether some node can have the labels of all of them."""
    labels: dict[str, str] = {}
    return all(
        labels.setdefault(key, value) == value for one in flavors for key, value in one.node_labels.items()
    )
