"""What would help pods that only their quota keeps from starting: a larger quota, or who of it has to end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Final

import attrs

from koordcore.explaining.attempts import Attempts
from koordcore.explaining.remedy import Remedy, RemedyKind, exact_amount, rounded_up, some, told_apart
from koordcore.model.pods import PodKey
from koordcore.model.quotas import ElasticQuota, QuotaPolicy
from koordcore.model.resources import Resources
from koordcore.quota.device_classes import quota_reader
from koordcore.quota.lenders import chain_of
from koordcore.scheduling.plugins.quota import snapshot_ledger

if TYPE_CHECKING:
    from koordcore.quota.ledger import QuotaLedger

_PLUGIN: Final = "ElasticQuota"
_TRIES: Final = 24
"""Calls that are spent on finding out whose end is enough."""
_NAMED: Final = 3


def quota_remedies(asked: Attempts) -> Iterator[Remedy]:
    """Say that the quota alone stands in the way, where that is so, and what of it would do."""
    setting = asked.policy.plugin(_PLUGIN)
    if setting is None:
        return
    plugins = tuple(one for one in asked.policy.plugins if one.name != _PLUGIN)
    found = asked.fits(policy=attrs.evolve(asked.policy, plugins=plugins))
    if not found or asked.fits():
        return
    args = setting.args if isinstance(setting.args, QuotaPolicy) else QuotaPolicy()
    ledger = snapshot_ledger(asked.snapshot, args)
    read = quota_reader(asked.snapshot)
    chain = chain_of(ledger, read(asked.members[0]))
    node = some(sorted(set(found.values())))
    if not chain:
        yield Remedy(kind=RemedyKind.QUOTA, text=f"only its quota is in the way; without it it fits {node}")
        return
    pods = _whose_end(asked, ledger, chain[0])
    ways = [way for way in (_larger(asked, ledger, chain), _ends(pods)) if way]
    texts = (
        f"it fits {node} {', or '.join(ways)}" if ways else f"`koordcore quota --quota {chain[0]}` says more"
    )
    yield Remedy(kind=RemedyKind.QUOTA, text=f"only its quota {chain[0]} is in the way; {texts}", pods=pods)


def never_by_quota(asked: Attempts) -> Iterator[str]:
    """Name quotas whose ``max`` is below what one of the members asks for: nobody's end helps there."""
    setting = asked.policy.plugin(_PLUGIN)
    if setting is None or not asked.snapshot.of(ElasticQuota):
        return
    args = setting.args if isinstance(setting.args, QuotaPolicy) else QuotaPolicy()
    ledger = snapshot_ledger(asked.snapshot, args)
    read = quota_reader(asked.snapshot)
    wanted: dict[str, int] = {}
    for pod in asked.members:
        for name, amount in read(pod).request.items():
            wanted[name] = max(wanted.get(name, 0), amount)
    for quota in chain_of(ledger, read(asked.members[0])):
        one = _object(asked, quota)
        for name, most in sorted(one.max.items()) if one is not None else ():
            if wanted.get(name, 0) > most:
                asks, has = told_apart(name, wanted[name], most)
                yield f"the max of quota {quota} is {has.partition(' ')[0]}, below {asks}"


def _ends(pods: Sequence[PodKey]) -> str:
    if not pods:
        return ""
    more = f" and {len(pods) - _NAMED} more" if len(pods) > _NAMED else ""
    end = "ends" if len(pods) == 1 else "end"
    return f"once {', '.join(map(str, pods[:_NAMED]))}{more} {end}"


def _larger(asked: Attempts, ledger: QuotaLedger, chain: Sequence[str]) -> str:
    """Try a larger ``max`` of what is too small, then a larger ``min`` as well; empty where neither does."""
    read = quota_reader(asked.snapshot)
    before = [pod for pod in asked.refused if ledger.resolve(read(pod)) == chain[0]]
    members = [*asked.members]
    for pods, promise in product((members, before + members)[: 1 + bool(before)], (False, True)):
        wanted: dict[str, int] = {}
        for pod in pods:
            for name, amount in read(pod).request.items():
                wanted[name] = wanted.get(name, 0) + amount
        needs = {name: _needed(ledger.used_of(name), wanted) for name in chain}
        changed = [
            grown
            for name in chain
            if (one := _object(asked, name)) is not None
            and (grown := _grown(one, needs[name], promise=promise)) != one
        ]
        if changed and asked.fits(snapshot=asked.snapshot.with_records(*changed)):
            return f"with {'; '.join(_attempt_text(asked, one) for one in changed)}"
    return ""


def _needed(used: Resources, wanted: dict[str, int]) -> dict[str, int]:
    return {name: used.get(name, 0) + amount for name, amount in wanted.items() if amount}


def _grown(one: ElasticQuota, needed: dict[str, int], *, promise: bool) -> ElasticQuota:
    """Raise what is too small, to amounts that can be told as they are tried."""
    top = {name: _at_least(name, amount, needed.get(name, 0)) for name, amount in one.max.items()}
    floor = one.min
    if promise:
        short = {name: amount for name, amount in needed.items() if name in top}
        floor = attrs.evolve(one, min={**one.min, **_most(one.min, short)}).min
    return attrs.evolve(one, max=top, min=floor)


def _most(known: Resources, other: dict[str, int]) -> dict[str, int]:
    return {name: _at_least(name, known.get(name, 0), amount) for name, amount in other.items()}


def _at_least(name: str, known: int, needed: int) -> int:
    return known if known >= needed else rounded_up(name, needed)


def _attempt_text(asked: Attempts, grown: ElasticQuota) -> str:
    """Say what a quota needs more of, as ``max`` or ``min`` by resource."""
    was = _object(asked, grown.name)
    assert was is not None
    parts = [
        f"{bound} {exact_amount(name, amount)}"
        for bound, before, after in (("max", was.max, grown.max), ("min", was.min, grown.min))
        for name, amount in sorted(after.items())
        if amount != before.get(name, 0)
    ]
    return f"{' and '.join(parts)} for {grown.name}"


def _object(asked: Attempts, name: str) -> ElasticQuota | None:
    return next((one for one in asked.snapshot.of(ElasticQuota) if one.name == name), None)


def _whose_end(asked: Attempts, ledger: QuotaLedger, quota: str) -> tuple[PodKey, ...]:
    """Find few running pods of the quota without which it would be enough; empty where they do not do."""
    read = quota_reader(asked.snapshot)
    own = [pod.key for pod in asked.snapshot.bound_pods() if ledger.resolve(read(pod)) == quota]
    wanted = asked.members[0].requests
    own.sort(key=lambda key: (not _gives(asked, key, wanted), key))

    def enough(number: int) -> bool:
        return bool(asked.fits(snapshot=asked.snapshot.forget(*own[:number])))

    if not own or not enough(len(own)):
        return ()
    failing, fitting = 0, len(own)
    for _ in range(_TRIES):
        if fitting - failing <= 1:
            break
        middle = (failing + fitting) // 2
        if enough(middle):
            fitting = middle
        else:
            failing = middle
    return tuple(own[:fitting])


def _gives(asked: Attempts, key: PodKey, wanted: Resources) -> bool:
    """Tell whether a pod has as much as is asked for of what is scarcest: cards, else everything."""
    pod = asked.snapshot.pod(key)
    cards = [name for name in wanted if "/" in name] or list(wanted)
    return pod is not None and all(pod.requests.get(name, 0) >= wanted[name] for name in cards)
