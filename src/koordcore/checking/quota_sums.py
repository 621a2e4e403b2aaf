"""What the pods of every quota hold, as sums that follow the pods that come and leave."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final, TypeAlias

from koordcore.checking.nodes import STANDS_FOR
from koordcore.model.claims import ClaimSpec, ResourceClaim, ResourceClaimTemplate
from koordcore.model.pods import Pod
from koordcore.model.quotas import DEFAULT_QUOTA, ROOT_QUOTA, ElasticQuota, QuotaPolicy
from koordcore.model.resources import Resources, make_resources
from koordcore.snapshot import ClusterSnapshot

QUOTA_LABEL: Final = "quota.scheduling.koordinator.sh/name"
DEVICES: Final = ".deviceclass.resource.k8s.io/devices"
PREEMPTIBLE_LABEL: Final = "quota.scheduling.koordinator.sh/preemptible"


def in_force(quotas: Iterable[ElasticQuota]) -> dict[str, ElasticQuota]:
    """Give those that govern, by name: none that is being deleted, of one name the first by namespace."""
    found: dict[str, ElasticQuota] = {}
    for quota in sorted(quotas, key=lambda one: (one.name, one.namespace)):
        if not quota.deleting:
            found.setdefault(quota.name, quota)
    return found


def spaces_of(quotas: Mapping[str, ElasticQuota]) -> dict[str, str]:
    """Give the quota of each namespace that one lists; of several the first by namespace and name."""
    found: dict[str, str] = {}
    for quota in sorted(quotas.values(), key=lambda one: (one.namespace, one.name)):
        for space in quota.namespaces:
            found.setdefault(space, quota.name)
    return found


Specs: TypeAlias = Callable[[Pod], Iterable[ClaimSpec]]
"""Gives what the claims of a pod ask for."""


def specs_in(snapshot: ClusterSnapshot) -> Specs:
    """Say where claims of pods are found."""

    def of(pod: Pod) -> Iterator[ClaimSpec]:
        for entry in pod.resource_claims:
            made = snapshot.find(ResourceClaimTemplate, entry.template, pod.namespace)
            named = snapshot.find(ResourceClaim, entry.claim, pod.namespace) if made is None else None
            yield from (one.spec for one in (made, named) if one is not None)

    return of


def no_specs(_: Pod) -> tuple[ClaimSpec, ...]:
    """Say that no claims are looked at."""
    return ()


def charged(pod: Pod, specs: Specs = no_specs) -> Resources:
    """Give what a pod counts with, with the devices that its claims ask for by class."""
    amounts = _charged(pod)
    if not pod.resource_claims:
        return amounts
    devices: Counter[str] = Counter()
    for spec in specs(pod):
        for request in spec.requests:
            for name in {form.class_name for form in request.forms}:
                counts = [
                    32 if form.mode == "All" else form.count
                    for form in request.forms
                    if form.class_name == name
                ]
                devices[f"{name}{DEVICES}"] += max(counts)
    return make_resources({**amounts, **devices})


def _charged(pod: Pod) -> Resources:
    """An amount of ``koordinator.sh/gpu`` is core, memory and cards as well."""
    percent = pod.requests.get("koordinator.sh/gpu", 0)
    if not percent:
        return pod.requests
    names = {"gpu-core": percent, "gpu-memory-ratio": percent, "gpu.shared": max(1, percent // 100)}
    return make_resources({**{f"koordinator.sh/{name}": one for name, one in names.items()}, **pod.requests})


def counting(amounts: Resources, quota: ElasticQuota | None) -> Resources:
    """Give what pods of a quota count with there and above it: what its ``max`` does not name is left out."""
    if quota is None or all(name in quota.max for name in amounts):
        return amounts
    return make_resources({name: amount for name, amount in amounts.items() if name in quota.max})


def quota_of(pod: Pod, quotas: Mapping[str, ElasticQuota], spaces: Mapping[str, str]) -> str:
    """Name the quota of a pod."""
    return _quota_by(pod.labels.get(QUOTA_LABEL, ""), pod.namespace, quotas, spaces)


def _quota_by(named: str, space: str, quotas: Mapping[str, ElasticQuota], spaces: Mapping[str, str]) -> str:
    """Name the quota of the pods of a namespace that name one, or none."""
    if named:
        return named if named in quotas else DEFAULT_QUOTA
    own = quotas.get(space)
    if own is not None and own.namespace == space:
        return own.name
    return spaces.get(space, DEFAULT_QUOTA)


def parents_of(name: str, quotas: Mapping[str, ElasticQuota]) -> list[str]:
    """Name what is above a quota, the nearest first."""
    seen = [name]
    quota = quotas.get(name)
    while quota is not None and quota.parent not in seen:
        seen.append(quota.parent)
        quota = quotas.get(quota.parent)
    return seen[1:]


def counted_in(name: str, quotas: Mapping[str, ElasticQuota], *, several: bool = False) -> list[str]:
    """Name the quotas that count what pods of one use: itself, and those above it that limit somebody.

    ``several``: there are several trees, and what stands in another one is not above it.
    """
    found = [name]
    for above in parents_of(name, quotas):
        if above == ROOT_QUOTA or above not in quotas:
            break
        if several and quotas[above].tree != quotas[name].tree:
            break
        found.append(above)
    return found


class QuotaSums:
    """Amounts by quota; what stands for a reservation is used by nobody yet and does not count.

    Parameters
    ----------
    quotas
        Every quota by name; for other ones there is :meth:`take`.
    specs
        What the claims of pods ask for.
    policy
        Without a default quota pods whose label names no quota are those of none; where there are several
        trees, what stands in another one is not above a quota.
    """

    def __init__(
        self, quotas: Mapping[str, ElasticQuota], specs: Specs = no_specs, policy: QuotaPolicy | None = None
    ) -> None:
        self._quotas = quotas
        self._specs = specs
        self._named_only = policy is not None and policy.disable_default_quota
        self._several = policy is not None and policy.multi_quota_tree
        self._spaces = spaces_of(quotas)
        self._chains: dict[tuple[str, str], tuple[str, ...]] = {}
        self._alike: defaultdict[tuple[str, str, bool], Counter[str]] = defaultdict(Counter)
        """What pods hold that name one quota in one namespace, those apart that nobody may evict."""
        self.whole: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """What the pods of a quota and of the quotas below hold."""
        self.guarded: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """What those of them hold that nobody may evict."""

    @cached_property
    def of_devices(self) -> bool:
        """Whether any quota counts devices of Kubernetes' drivers."""
        named = (name for one in self._quotas.values() for name in (*one.max, *one.min))
        return any(name.endswith(DEVICES) for name in named)

    def take(self, known: QuotaSums) -> None:
        """Add all pods of the sums under other quotas."""
        for (named, space, guarded), amounts in known._alike.items():
            self._add(named, space, guarded, amounts, 1)

    def under(self, policy: QuotaPolicy) -> QuotaSums:
        """Give the sums as a policy counts them."""
        sums = QuotaSums(self._quotas, self._specs, policy)
        sums.take(self)
        return sums

    def chain(self, pod: Pod) -> tuple[str, ...]:
        """Name the quota of a pod and those above it."""
        return self._chain_of(pod.labels.get(QUOTA_LABEL, ""), pod.namespace)

    def _chain_of(self, named: str, space: str) -> tuple[str, ...]:
        known = self._chains.get((named, space))
        if known is None and self._named_only and named not in self._quotas:
            known = self._chains[named, space] = ("",)
        if known is None:
            own = _quota_by(named, space, self._quotas, self._spaces)
            known = self._chains[named, space] = (own, *parents_of(own, self._quotas))
        return known

    def count(self, pod: Pod, sign: int = 1) -> None:
        """Add a pod, or take it away again."""
        if STANDS_FOR in pod.annotations and pod.annotations[STANDS_FOR] == "true":
            return
        guarded = PREEMPTIBLE_LABEL in pod.labels and pod.labels[PREEMPTIBLE_LABEL] == "false"
        named = pod.labels.get(QUOTA_LABEL, "")
        self._add(named, pod.namespace, guarded, charged(pod, self._specs), sign)

    def _add(self, named: str, space: str, guarded: bool, amounts: Mapping[str, int], sign: int) -> None:
        chain, alike = self._chain_of(named, space), self._alike[named, space, guarded]
        own = self._quotas.get(chain[0])
        counting_it = counted_in(chain[0], self._quotas, several=self._several)
        sums = [self.whole[name] for name in counting_it]
        if guarded:
            sums += [self.guarded[name] for name in counting_it]
        for name, amount in amounts.items():
            alike[name] += sign * amount  # also what other quotas may name
            if own is None or name in own.max:
                for each in sums:
                    each[name] += sign * amount


class Elsewhere:
    """What pods hold that a check is not shown one by one.

    Parameters
    ----------
    everybody
        Sums over all pods; ``None`` where every pod is shown.
    shown
        The pods that are.
    """

    def __init__(self, everybody: QuotaSums | None = None, shown: Iterable[Pod] = ()) -> None:
        self._everybody = everybody
        self._shown = None
        if everybody is not None:
            self._shown = QuotaSums(everybody._quotas, everybody._specs)  # noqa: SLF001  its own kind
            for pod in shown:
                self._shown.count(pod)

    def under(self, policy: QuotaPolicy) -> Elsewhere:
        """Give the same as a policy counts it."""
        plain = not policy.disable_default_quota and not policy.multi_quota_tree
        if plain or self._everybody is None or self._shown is None:
            return self
        found = Elsewhere()
        found._everybody, found._shown = self._everybody.under(policy), self._shown.under(policy)
        return found

    def held(self, name: str) -> Mapping[str, int]:
        """Give what the pods of a quota and of the quotas below hold."""
        return self._rest("whole", name)

    def guarded(self, name: str) -> Mapping[str, int]:
        """Give what those of them hold that nobody may evict."""
        return self._rest("guarded", name)

    def names(self) -> Iterable[str]:
        """Name the quotas that hold anything, and others that do not."""
        return () if self._everybody is None else self._everybody.whole

    def _rest(self, what: str, name: str) -> Mapping[str, int]:
        if self._everybody is None or self._shown is None:
            return {}
        found = Counter(getattr(self._everybody, what).get(name, {}))
        found.subtract(getattr(self._shown, what).get(name, {}))
        return found


NOBODY: Final = Elsewhere()
"""Every pod is shown."""


def held_away(snapshot: ClusterSnapshot) -> Elsewhere:
    """Give what pods hold that are bound to nodes which are not there."""
    away = [pod for pod in snapshot.of(Pod) if pod.bound]
    quotas = in_force(snapshot.of(ElasticQuota))
    if not away or not quotas:
        return NOBODY
    sums = QuotaSums(quotas, specs_in(snapshot))
    for pod in away:
        sums.count(pod)
    return Elsewhere(sums)
