"""What one pod is expected to use, resource by resource."""

from __future__ import annotations

from koordcore.model.load import LoadAwareArgs
from koordcore.model.pods import Pod
from koordcore.model.resources import (
    Resources,
    make_resources,
)
from koordcore.protocol.pod_class import pod_priority_class
from koordcore.scoring.load_estimates import (
    _estimate,
)


def estimate_pod(pod: Pod, args: LoadAwareArgs) -> Resources:
    """Estimate what a pod will use, by the names that have a scaling factor.

    A name is looked up as the pod's priority class spells it (``cpu`` of a batch pod is
    ``kubernetes.io/batch-cpu``); the answer keeps the plain name. The larger of request and limit is scaled
    and capped by the limit; a pod that asks for nothing is taken to use 250 milli-CPU and 200 MiB, except
    where its class has no such name.

    Parameters
    ----------
    pod
        Whoever it is, waiting or bound.
    args
        Scaling factors, and whether the pod's own are honoured.
    """
    return make_resources(_estimate(pod, pod_priority_class(pod), args))
