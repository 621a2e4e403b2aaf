"""Who is asked about no node: pods that want what is not modelled (ruling 28), or are being deleted."""

from __future__ import annotations

from koordcore.allocators.gang.members import in_two_gangs
from koordcore.framework.evaluator import Refusal
from koordcore.model.pods import Pod
from koordcore.protocol.gang_names import gang_name


def refuse_unmodelled(pod: Pod, *, claims: bool = False) -> Refusal | None:
    """Say what a pod asks for that no plugin looks at, or that it is on its way out; mostly ``None``.

    Parameters
    ----------
    claims
        The policy has a plugin that looks at claims.
    """
    if pod.deleted is not None and pod.node_name is None:
        # An API server binds it no more; a finalizer may keep it there for long.
        return Refusal("the pod is being deleted")
    if in_two_gangs(pod):
        gang, group = gang_name(pod.labels, pod.annotations), pod.scheduling_group
        named = "" if group is None else group.pod_group
        told = f'the pod is in gang "{gang}" by its labels and in group "{named}": which one is meant?'
        return Refusal(told)
    if pod.resource_claims and not claims:
        names = ", ".join(one.name for one in pod.resource_claims)
        return Refusal(f"resource claims are not modelled (spec.resourceClaims: {names})")
    return None
