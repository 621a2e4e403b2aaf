"""Taking back what a quota uses beyond its runtime: when, and whose pods go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.quotas import DEFAULT_QUOTA, QuotaPod
from koordcore.model.resources import Resources
from koordcore.quota.admission import exceeding, limit_of, masked_request
from koordcore.quota.ledger import QuotaLedger


@record
class OveruseMonitor:
    """Remembers when a quota was last seen within its runtime.

    Parameters
    ----------
    last_under
        Nanoseconds since 1970.
    """

    last_under: int

    def observe(self, now: int, *, over: bool, delay: int) -> tuple[OveruseMonitor, bool]:
        """Take one look.

        Parameters
        ----------
        now
            Nanoseconds since 1970.
        over
            Whether the quota uses more than its runtime now.
        delay
            How long that has to last, in nanoseconds.

        Returns
        -------
        monitor, trigger
            The monitor afterwards, and whether the quota has been over for strictly longer than ``delay``. A
            trigger starts the clock anew.
        """
        if not over:
            return OveruseMonitor(now), False
        if now - self.last_under > delay:
            return OveruseMonitor(now), True
        return self, False


@record(kw_only=True)
class RevokePlan:
    """Outcome of one look at all quotas.

    Parameters
    ----------
    monitors
        Monitors afterwards, by quota; to be passed to the next look.
    victims
        Quotas that triggered, each with the pods to evict in this order; none where all that is too much
        is used below it.
    """

    monitors: immutabledict[str, OveruseMonitor]
    victims: immutabledict[str, tuple[QuotaPod, ...]]


def over_used(used: Resources, runtime: Resources) -> tuple[str, ...]:
    """Resources in which use exceeds the runtime, sorted; a resource that the runtime lacks is unlimited."""
    return exceeding(used, immutabledict(), runtime)


def _most_important_first(pods: Iterable[QuotaPod]) -> list[QuotaPod]:
    return sorted(
        pods,
        key=lambda pod: (-pod.priority, pod.start is None, 0 if pod.start is None else pod.start, pod.key),
    )


def select_revoked(
    used: Resources, runtime: Resources, requests: Sequence[tuple[QuotaPod, Resources]]
) -> tuple[QuotaPod, ...]:
    """Choose which pods of an over-used quota go.

    Parameters
    ----------
    used, runtime
        Of the quota.
    requests
        Its placed pods, each with what it counts for in the quota.

    Returns
    -------
    tuple of QuotaPod
        In the order of eviction. Pods are taken from the least important up until the rest fits, and those
        that can stay after all are given back from the most important down. Non-preemptible pods stay.
        Where not even all of them suffice, all go. Who terminates leaves anyhow, and is not evicted again.

    Notes
    -----
    After ``quota_overuse_revoke.go``, which forgets after each pod the resources that this pod does not
    ask for; here none is forgotten (QUOTA-7).
    """
    asked = {pod.key: request for pod, request in requests}
    left = dict(used)
    for pod, request in requests:
        if pod.terminating:
            _shift(left, request, -1)
    taken: list[QuotaPod] = []
    for pod in reversed(_most_important_first(pod for pod, _ in requests)):
        if not _over(left, runtime):
            break
        if pod.preemptible and not pod.terminating:
            _shift(left, asked[pod.key], -1)
            taken.append(pod)
    if _over(left, runtime):
        return tuple(taken)
    revoked: list[QuotaPod] = []
    for pod in reversed(taken):
        _shift(left, asked[pod.key], 1)
        if _over(left, runtime):
            _shift(left, asked[pod.key], -1)
            revoked.append(pod)
    return tuple(revoked)


def _over(used: Mapping[str, int], runtime: Resources) -> bool:
    return any(used.get(name, 0) > bound for name, bound in runtime.items() if name in used)


def _shift(used: dict[str, int], request: Resources, sign: int) -> None:
    for name, amount in request.items():
        used[name] = used.get(name, 0) + sign * amount


def monitored_quotas(ledger: QuotaLedger) -> tuple[str, ...]:
    """Names of the quotas that are watched: all but the root and the system quota, parents included."""
    states = (ledger.state(tree_id) for tree_id in ledger.trees)
    return tuple(sorted([DEFAULT_QUOTA, *(quota.name for state in states for quota in state.tree.quotas)]))


def plan_revoke(
    ledger: QuotaLedger,
    pods: Iterable[QuotaPod],
    monitors: Mapping[str, OveruseMonitor],
    *,
    now: int,
) -> RevokePlan:
    """Look at all quotas once.

    Parameters
    ----------
    ledger
        The quotas and what they use.
    pods
        All pods; only placed ones can be victims, each of the quota it belongs to itself.
    monitors
        From the look before; a quota that is not in it starts now.
    now
        Nanoseconds since 1970.

    Notes
    -----
    Nothing is watched unless the policy says ``monitor_all_quotas`` and runtime quotas are on.
    """
    policy = ledger.policy
    if not (policy.monitor_all_quotas and policy.enable_runtime_quota):
        return RevokePlan(monitors=immutabledict(monitors), victims=immutabledict())
    after: dict[str, OveruseMonitor] = {}
    triggered: list[str] = []
    for name in monitored_quotas(ledger):
        over = bool(over_used(ledger.used_of(name), limit_of(ledger, name)))
        monitor, trigger = monitors.get(name, OveruseMonitor(now)).observe(
            now, over=over, delay=policy.delay_evict
        )
        after[name] = monitor
        if trigger:
            triggered.append(name)
    members: dict[str, list[tuple[QuotaPod, Resources]]] = {name: [] for name in triggered}
    for pod in pods if triggered else ():
        quota = ledger.resolve(pod) if pod.assigned else None
        if quota is not None and quota in members:
            members[quota].append((pod, masked_request(ledger, quota, pod)))
    victims = {
        name: select_revoked(ledger.used_of(name), limit_of(ledger, name), members[name])
        for name in triggered
    }
    return RevokePlan(monitors=immutabledict(after), victims=immutabledict(victims))
