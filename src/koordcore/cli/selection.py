"""``-n`` and ``-l``: which rows the tables show. What is decided does not depend on it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Final

from koordcore._record import record
from koordcore.cli.output import for_programs
from koordcore.cli.words import near
from koordcore.errors import ModelError
from koordcore.model.gangs import PodGroup
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.model.quotas import ElasticQuota
from koordcore.model.selectors import EVERYTHING, LabelSelector
from koordcore.protocol.selector_text import label_selector_of
from koordcore.snapshot import ClusterSnapshot


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add ``-n``, ``-A`` and ``-l``."""
    parser.add_argument(
        "-n", "--namespace", metavar="NAME", help="show only pods of this namespace; what is decided stays"
    )
    parser.add_argument(
        "-A",
        "--all-namespaces",
        dest="namespace",
        action="store_const",
        const=None,
        help="show pods of all namespaces, as without -n",
    )
    parser.add_argument(
        "-l",
        "--selector",
        metavar="LABELS",
        help="show only pods (nodes, in tables of nodes) with such labels: app=web,tier!=db,'zone in (a,b)'",
    )


@record
class Selection:
    """Who is shown.

    Parameters
    ----------
    namespace
        Of pods; empty for all.
    labels
        Of pods, or of nodes where nodes are shown.
    """

    namespace: str = ""
    labels: LabelSelector = EVERYTHING

    @property
    def all(self) -> bool:
        """Everybody is shown."""
        return self == Selection()

    def pod(self, pod: Pod) -> bool:
        """Tell whether a pod is shown."""
        return self.namespace in ("", pod.namespace) and self.labels.matches(pod.labels)

    def node(self, state: NodeState) -> bool:
        """Tell whether a node is shown."""
        return self.labels.matches(state.node.labels)

    def named(self, namespace: str, labels: Mapping[str, str] | None = None) -> bool:
        """Tell whether an object of a namespace is shown, by its labels where it has any."""
        return self.namespace in ("", namespace) and (labels is None or self.labels.matches(labels))


ONE_POD: Final = "it chooses rows of tables, and this is about one pod, gang or job"
"""Why labels choose nothing where somebody is named."""
ONE_NODE: Final = "it is about rows of tables, and this is about one node"
"""Why nothing is chosen or ordered where a node is named."""
_ALL_THE_SAME: Final = "; what is decided is the whole cluster's all the same"
ALL: Final = Selection()
"""Everybody."""


def selection_of(arguments: argparse.Namespace) -> Selection:
    """Read ``-n`` and ``-l``.

    Raises
    ------
    ModelError
        When the labels cannot be read.
    """
    try:
        labels = label_selector_of(arguments.selector or "")
    except ModelError as error:
        raise ModelError(f"-l: {error}") from None
    return Selection(arguments.namespace or "", labels)


def need_tables(arguments: argparse.Namespace) -> None:
    """Refuse ``-n`` and ``-l`` where a plan is written for programs, or to be applied.

    Raises
    ------
    ModelError
        When one of them is there.
    """
    if (for_programs(arguments) or arguments.output == "patches") and not selection_of(arguments).all:
        raise ModelError("-n, -l: they choose rows of tables; a plan is written whole")


def need_use(arguments: argparse.Namespace, *, namespace: str = "", labels: str = "") -> None:
    """Refuse ``-n`` or ``-l`` where it would choose nothing, each where a reason is given.

    Raises
    ------
    ModelError
        With the reason.
    """
    for option, value, why in (("-n", arguments.namespace, namespace), ("-l", arguments.selector, labels)):
        if value and why:
            raise ModelError(f"{option}: {why}")


def nobody_selected(arguments: argparse.Namespace, snapshot: ClusterSnapshot) -> str:
    """Say that ``-n`` or ``-l`` choose nobody at all, which is more often a slip than an answer."""
    if getattr(arguments, "namespace", None) is None and getattr(arguments, "selector", None) is None:
        return ""
    selection = selection_of(arguments)
    pods = [*snapshot.pending, *snapshot.bound_pods()]
    named = {one.namespace for one in pods} | {one.namespace for one in snapshot.of(PodGroup)}
    named |= {one.namespace for one in snapshot.of(ElasticQuota)}
    if selection.namespace and selection.namespace not in named:
        hint = near(selection.namespace, named)
        return f"-n: nothing is in namespace {selection.namespace}{hint or _ALL_THE_SAME}"
    labelled = [one.labels for one in pods] + [state.node.labels for state in snapshot.nodes]
    if not any(map(selection.labels.matches, labelled)):
        return f"-l: no pod and no node has such labels{_ALL_THE_SAME}"
    return ""
