"""What the node agent sets for pods: rank of their CPU time, share of caches and of memory bandwidth.

The strategy of a node is that of its NodeSLO, else that of the ConfigMap which NodeSLOs are made of. What the
hardware is comes from the node's NodeResourceTopology; caches are taken to be one per socket.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from koordcore._record import record
from koordcore.colocation.cpuqos import GroupIdentityRule, group_identity_rule, pod_identity
from koordcore.colocation.resctrl import class_schemata, pod_group, pod_schemata, resctrl_group
from koordcore.errors import ManifestError
from koordcore.model.cluster import ConfigMap, RawObject
from koordcore.model.nodes import Node
from koordcore.model.numa import NodeResourceTopology
from koordcore.model.pods import Pod, PodKey
from koordcore.protocol.fields import as_mapping, load_json
from koordcore.protocol.pod_class import kubernetes_qos, pod_qos_class
from koordcore.protocol.pod_qos import (
    ANNOTATION_CPU_QOS,
    ANNOTATION_RESCTRL,
    ResourceQoS,
    cpu_qos_of,
    parse_resctrl,
    parse_resource_qos,
)
from koordcore.protocol.qos import LABEL_QOS_CLASS, QoSClass
from koordcore.protocol.qos_config import QOS_KEY, QoSConfig, parse_qos_config
from koordcore.snapshot import ClusterSnapshot

NODE_SLO: Final = ("slo.koordinator.sh", "NodeSLO")
_CONFIG_MAP: Final = ("slo-controller-config", "koordinator-system")


@record(kw_only=True)
class PodSetting:
    """What the agent sets for one pod.

    Parameters
    ----------
    pod, node, qos
        Who runs where, and its QoS class with the default for its Kubernetes QoS.
    identity
        Written to ``cpu.bvt_warp_ns``; ``None`` where nothing is written.
    group
        Control group of caches and bandwidth; empty for none.
    schemata
        Lines of that group; empty where the hardware is not known or nothing valid is asked.
    problems
        What cannot be read or computed, in words.
    """

    pod: PodKey
    node: str
    qos: str
    identity: int | None = None
    group: str = ""
    schemata: str = ""
    problems: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """Write it as JSON data: the verb ``write``, and files with what the agent writes to them.

        Nothing of it goes to the API server; ``path`` is that of the pod's object.
        """
        files: dict[str, str] = {}
        if self.identity is not None:
            files["cpu.bvt_warp_ns"] = str(self.identity)
        if self.schemata:
            files[f"resctrl/{self.group}/schemata"] = self.schemata
        record: dict[str, Any] = {
            "verb": "write",
            "path": f"/api/v1/namespaces/{self.pod.namespace}/pods/{self.pod.name}",
            "node": self.node,
            "qosClass": self.qos,
            "files": files,
        }
        if self.group:
            record["resctrlGroup"] = self.group
        if self.problems:
            record["problems"] = list(self.problems)
        return record


def pod_settings(snapshot: ClusterSnapshot, nodes: Iterable[str] | None = None) -> tuple[PodSetting, ...]:
    """Say what the agents of some nodes set for the pods that run there.

    Parameters
    ----------
    snapshot
        The cluster, with NodeSLOs or the ConfigMap, and NodeResourceTopologies.
    nodes
        Names; all when left out.

    Returns
    -------
    tuple of PodSetting
        By node and pod; pods for which nothing is set are left out.

    Notes
    -----
    A strategy that cannot be read counts as none, and is among the problems of each pod that runs by it.
    """
    config = _config(snapshot)
    written = {
        one.name: one.text
        for one in snapshot.of(RawObject)
        if (one.api_version.rpartition("/")[0], one.kind) == NODE_SLO
    }
    chosen = None if nodes is None else set(nodes)
    found: list[PodSetting] = []
    for state in snapshot.nodes:
        if chosen is not None and state.name not in chosen:
            continue
        agent = _Agent(state.node, _strategy(written, config, state.node), snapshot)
        found += (one for pod in sorted(state.pods, key=lambda pod: pod.key) for one in agent.setting(pod))
    return tuple(found)


def _config(snapshot: ClusterSnapshot) -> QoSConfig | str | None:
    """Give the configuration of the cluster, or why it cannot be read; ``None`` without one."""
    stored = snapshot.find(ConfigMap, *_CONFIG_MAP)
    text = stored.data.get(QOS_KEY) if stored is not None else None
    if not text:
        return None
    try:
        return parse_qos_config(load_json(text))
    except ManifestError as error:
        return str(error.within(f"ConfigMap {'/'.join(reversed(_CONFIG_MAP))}: data[{QOS_KEY}]"))


def _strategy(
    written: Mapping[str, str], config: QoSConfig | str | None, node: Node
) -> ResourceQoS | str | None:
    """Give the strategy of a node, or why it cannot be read; ``None`` without one."""
    if node.name in written:
        spec = json.loads(written[node.name]).get("spec")
        said = spec.get("resourceQOSStrategy") if isinstance(spec, dict) else None
        if said is not None:
            try:
                return parse_resource_qos(as_mapping(said))
            except ManifestError as error:
                return str(error.within(f"NodeSLO {node.name}: spec.resourceQOSStrategy"))
    return config.of(node.labels) if isinstance(config, QoSConfig) else config


class _Agent:
    """The agent of one node; private to one call."""

    def __init__(self, node: Node, found: ResourceQoS | str | None, snapshot: ClusterSnapshot) -> None:
        self._node = node.name
        self._problems = [found] if isinstance(found, str) else []
        strategy = None if isinstance(found, str) else found
        self._rule: GroupIdentityRule = group_identity_rule(strategy)
        self._nrt = snapshot.find(NodeResourceTopology, node.name)
        self._caches = () if self._nrt is None else tuple(one.id for one in self._nrt.topology.sockets)
        divides = strategy is not None and any(one.resctrl.enable for one in strategy.classes.values())
        self._classes = self._divided(strategy) if divides else {}

    def _divided(self, strategy: ResourceQoS | None) -> dict[str, str]:
        """Give the lines of each class's control group; empty texts where the hardware is not known."""
        vendor, root = ("", 0) if self._nrt is None else (self._nrt.cpu_vendor, self._nrt.cache_mask)
        classes = class_schemata(strategy, vendor=vendor, root=root, caches=self._caches)
        known = bool(root and self._caches)
        return {
            str(group): (one.l3 or "") + (one.mb or "") if known else "" for group, one in classes.items()
        }

    def setting(self, pod: Pod) -> Iterator[PodSetting]:
        """Give what is set for a pod; nothing where nothing is."""
        if pod.finished:
            return
        problems = list(self._problems)
        identity = self._identity(pod, problems)
        group, schemata = self._group(pod, problems)
        if identity is not None or group or problems:
            yield PodSetting(
                pod=pod.key,
                node=self._node,
                qos=str(pod_qos_class(pod)),
                identity=identity,
                group=group,
                schemata=schemata,
                problems=tuple(problems),
            )

    def _identity(self, pod: Pod, problems: list[str]) -> int | None:
        try:
            value = pod_identity(self._rule, pod.labels, pod.annotations, kubernetes_qos(pod))
        except ManifestError as error:
            problems.append(str(error))
            return None
        vain = self._in_vain(pod)
        if vain:
            problems.append(f"metadata.annotations[{ANNOTATION_CPU_QOS}] has no effect: {vain}")
        # A rule that nobody switched on is not written: the kernel's own switch is off then.
        return value if self._rule.enabled else None

    def _in_vain(self, pod: Pod) -> str:
        """Say why what a pod says of its group identity counts for nothing; empty where it counts."""
        own = cpu_qos_of(pod.annotations)
        if own is None:
            return ""
        if not self._rule.enabled:
            return "the strategy of its node switches cpuQOS on for no class"
        if pod.labels.get(LABEL_QOS_CLASS, "") != QoSClass.LS:
            return f"it counts for pods with the label {LABEL_QOS_CLASS}={QoSClass.LS} alone"
        return "" if own.enable or own.group_identity is None else 'without "enable": true it means 0'

    def _group(self, pod: Pod, problems: list[str]) -> tuple[str, str]:
        text = pod.annotations.get(ANNOTATION_RESCTRL)
        group = str(resctrl_group(pod_qos_class(pod)))
        schemata = self._classes.get(group, "")
        if text is not None:
            try:
                limits = parse_resctrl(text)
            except ManifestError as error:
                problems.append(str(error))
            else:
                group = pod_group(pod.uid or pod.name)
                nrt = self._nrt or NodeResourceTopology(name=self._node)
                made = pod_schemata(limits, vendor=nrt.cpu_vendor, root=nrt.cache_mask, caches=self._caches)
                schemata = made.text if nrt.cache_mask else ""
                if not schemata:
                    problems.append(self._why(bool(nrt.cache_mask and self._caches)))
                return group, schemata
        if group not in self._classes:
            return "", ""
        if not schemata:
            problems.append(self._why(False))
        return group, schemata

    def _why(self, known: bool) -> str:
        if known:
            return "no valid line comes of it: the caches stay as they are"
        return f"the node does not say what its caches are (NodeResourceTopology {self._node})"
