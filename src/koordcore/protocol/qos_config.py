"""The key ``resource-qos-config`` of the ConfigMap of the control plane: what a NodeSLO is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from koordcore._record import record
from koordcore.model.selectors import NOTHING, LabelSelector
from koordcore.protocol.fields import Json, as_mapping, list_of, optional
from koordcore.protocol.pod_qos import ResourceQoS, parse_resource_qos
from koordcore.protocol.selectors import as_label_selector

QOS_KEY: Final = "resource-qos-config"
_NOT_STRATEGY: Final = ("name", "nodeselector")
_EMPTY: Final[Mapping[str, Json]] = {}


@record
class QoSConfig:
    """Strategies as they are written, names of fields in lower case.

    Parameters
    ----------
    cluster
        For all nodes.
    nodes
        For those that a selector chooses, over the cluster's; the first that chooses a node counts.
    """

    cluster: Mapping[str, Json] = attrs.field(factory=dict)
    nodes: tuple[tuple[LabelSelector, Mapping[str, Json]], ...] = ()

    def of(self, labels: Mapping[str, str]) -> ResourceQoS:
        """Give the strategy of a node with these labels."""
        own = next((said for selector, said in self.nodes if selector.matches(labels)), _EMPTY)
        return parse_resource_qos(_merged(self.cluster, own))


def parse_qos_config(raw: Json) -> QoSConfig:
    """Read the content of the key.

    Raises
    ------
    ManifestError
        With the path of what has another type.
    """
    fields = as_mapping(raw)
    cluster = optional(fields, "clusterStrategy", _strategy, _EMPTY, fold_case=True)
    nodes = optional(fields, "nodeStrategies", list_of(_node_strategy), (), fold_case=True)
    return QoSConfig(cluster, nodes)


def _strategy(value: Json) -> Mapping[str, Json]:
    parse_resource_qos(as_mapping(value))
    folded = _folded(value)
    return as_mapping(folded)


def _node_strategy(value: Json) -> tuple[LabelSelector, Mapping[str, Json]]:
    raw = as_mapping(value)
    chosen = optional(raw, "nodeSelector", as_label_selector, NOTHING, fold_case=True)
    said = {key: one for key, one in _strategy(raw).items() if key not in _NOT_STRATEGY}
    return chosen, said


def _folded(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {key.lower(): _folded(one) for key, one in value.items()}
    return value


def _merged(below: Mapping[str, Json], above: Mapping[str, Json]) -> Mapping[str, Json]:
    """Lay one object over another, field by field at every depth; null says nothing."""
    found = dict(below)
    for key, value in above.items():
        old = found.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            found[key] = _merged(old, value)
        elif value is not None:
            found[key] = value
    return found
