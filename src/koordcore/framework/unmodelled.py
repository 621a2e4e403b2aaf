"""What a pod may ask for that nobody here models yet: it is refused, never placed by guess (ruling 28)."""

from __future__ import annotations

from koordcore.framework.evaluator import Refusal
from koordcore.model.pods import Pod


def refuse_unmodelled(pod: Pod, *, claims: bool = False) -> Refusal | None:
    """Say what a pod asks for that no plugin looks at; ``None`` for nearly all pods.

    Parameters
    ----------
    claims
        The policy has a plugin that looks at claims.
    """
    if pod.resource_claims and not claims:
        names = ", ".join(one.name for one in pod.resource_claims)
        return Refusal(f"resource claims are not modelled (spec.resourceClaims: {names})")
    return None
