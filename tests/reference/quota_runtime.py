"""Runtime quotas the slow and obvious way: recursion over names, exact fractions, no sharing of work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from koordcore.model.quotas import ROOT_QUOTA, ElasticQuota, QuotaUsage

Amounts = Mapping[str, int]


def share(total: int, claims: Mapping[str, tuple[int, int, int, bool]]) -> dict[str, int]:
    """Share one resource; a claim is floor, need, weight, lends."""
    runtime: dict[str, int] = {}
    for name, (floor, need, _, lends) in claims.items():
        runtime[name] = floor if need > floor or not lends else need
    borrowers = {name for name, (floor, need, _, _) in claims.items() if need > floor}
    left = total - sum(runtime.values())
    while left > 0:
        weights = sum(claims[name][2] for name in borrowers)
        if not borrowers or weights <= 0:
            break
        exact = {name: Fraction(claims[name][2] * left, weights) for name in borrowers if claims[name][2] > 0}
        dealt = {name: part.numerator // part.denominator for name, part in exact.items()}
        order = sorted(exact, key=lambda name: (dealt[name] - exact[name], name))
        for name in order[: max(0, left - sum(dealt.values()))]:
            dealt[name] += 1
        left = 0
        for name in sorted(borrowers):
            runtime[name] += dealt.get(name, 0)
            if runtime[name] >= claims[name][1]:
                left += runtime[name] - claims[name][1]
                runtime[name] = claims[name][1]
                borrowers.discard(name)
    return runtime


class SlowTree:
    """One tree of quotas."""

    def __init__(
        self,
        quotas: Sequence[ElasticQuota],
        usage: Mapping[str, QuotaUsage],
        *,
        scale: bool = True,
        guarantee: bool = False,
    ) -> None:
        self.quotas = {quota.name: quota for quota in quotas}
        self.usage = usage
        self.scale = scale
        self.guarantee = guarantee
        self.keys = sorted({name for quota in quotas for name in quota.max})

    def children(self, name: str) -> list[ElasticQuota]:
        return [quota for quota in self.quotas.values() if (quota.parent or ROOT_QUOTA) == name]

    def own(self, name: str, part: str, key: str) -> int:
        if key not in self.quotas[name].max:
            return 0
        amounts: Amounts = getattr(self.usage.get(name, QuotaUsage()), part)
        return amounts.get(key, 0)

    def request(self, name: str, key: str) -> int:
        quota = self.quotas[name]
        asked = self.own(name, "request", key)
        asked += sum(self.limit(child.name, key) for child in self.children(name))
        if quota.allow_lent and not self.guarantee:
            return asked
        return max(asked, quota.min.get(key, 0))

    def limit(self, name: str, key: str) -> int:
        request, most = self.request(name, key), self.quotas[name].max
        return min(request, most[key]) if key in most else request

    def guaranteed(self, name: str, key: str) -> int:
        allocated = self.own(name, "used", key)
        allocated += sum(self.guaranteed(child.name, key) for child in self.children(name))
        return max(allocated if key in self.keys else 0, self.quotas[name].min.get(key, 0))

    def runtimes(self, total: Amounts) -> dict[str, dict[str, int]]:
        result: dict[str, dict[str, int]] = {}
        self._descend(ROOT_QUOTA, total, result)
        return result

    def _descend(self, parent: str, total: Amounts, result: dict[str, dict[str, int]]) -> None:
        children = self.children(parent)
        handled = self.keys if parent == ROOT_QUOTA else list(self.quotas[parent].max)
        for child in children:
            result[child.name] = {}
        for key in handled:
            available = total.get(key, 0)
            mins = {child.name: child.min.get(key, 0) for child in children}
            promised = sum(mins.values())
            if self.scale and key in total and available < promised:
                mins = {
                    name: int(float(available) * float(least) / float(promised))
                    if available > 0 and promised > 0
                    else 0
                    for name, least in mins.items()
                }
            claims = {
                child.name: (
                    max(mins[child.name], self.guaranteed(child.name, key) if self.guarantee else 0),
                    self.limit(child.name, key),
                    child.weight.get(key, 0),
                    child.allow_lent and not self.guarantee,
                )
                for child in children
            }
            if self.guarantee is False:
                claims = {
                    name: (mins[name], need, weight, lends)
                    for name, (_, need, weight, lends) in claims.items()
                }
            for name, amount in share(available, claims).items():
                result[name][key] = amount
        for child in children:
            self._descend(child.name, dict(result[child.name]), result)
