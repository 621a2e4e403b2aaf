"""Does a pod fit its quota: the scheduler's check, with the reasons that upstream prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Final, Protocol, TypeAlias

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.quotas import BUILTIN_QUOTAS, NO_SPELLING, ROOT_QUOTA, QuotaPod, Spelling
from koordcore.model.resources import NO_RESOURCES, Resources, make_resources
from koordcore.protocol.exact import ExactQuantity, Notation, exact_of, print_list
from koordcore.quota.ledger import QuotaLedger

_EMPTY: Final = "<empty>"
"""What upstream prints for a list without entries."""

_NO_NOTATIONS: Final[tuple[immutabledict[str, bool], immutabledict[str, bool]]] = (
    immutabledict(),
    immutabledict(),
)


class QuotaCheckKind(StrEnum):
    """Which check refused."""

    RUNTIME = "runtime"
    NON_PREEMPTIBLE = "nonPreemptible"
    HOOK = "hook"
    PARENT = "parent"
    ERROR = "error"


@record(kw_only=True)
class Admitted:
    """The pod fits its quota.

    Parameters
    ----------
    quota
        The quota that it belongs to.
    """

    quota: str


@record
class Ungoverned:
    """No quota has a say in the pod."""


@record(kw_only=True)
class QuotaRefusal:
    """The pod does not fit.

    Parameters
    ----------
    quota
        The quota that the pod belongs to.
    kind
        Which check refused; ``ERROR`` is a broken chain of parents, which evictions cannot mend.
    exceeded
        Resources that are exceeded, sorted.
    request, used, limit
        Amounts of the check that refused; a resource absent from ``limit`` is unlimited.
    ancestor
        The quota whose limit it is: the pod's own, or one above it.
    message
        Upstream's text.
    """

    quota: str
    kind: QuotaCheckKind
    exceeded: tuple[str, ...] = ()
    request: Resources = NO_RESOURCES
    used: Resources = NO_RESOURCES
    limit: Resources = NO_RESOURCES
    ancestor: str = ""
    message: str = ""

    @property
    def resolvable(self) -> bool:
        """Whether less use by others would help."""
        return self.kind is not QuotaCheckKind.ERROR

    @property
    def lacking(self) -> Resources:
        """How much is missing, by exceeded resource."""
        return make_resources(
            {
                name: self.used.get(name, 0) + self.request.get(name, 0) - self.limit[name]
                for name in self.exceeded
                if name in self.limit
            }
        )


Admission: TypeAlias = Admitted | Ungoverned | QuotaRefusal


class QuotaCheck(Protocol):
    """A rule of the embedder's own, asked after the limits of the quota itself (upstream's hook plugins)."""

    @property
    def key(self) -> str:
        """Name of the rule, for messages."""

    def check_pod(self, ledger: QuotaLedger, quota: str, pod: QuotaPod) -> str:
        """Say why the pod may not be admitted to the quota; empty where it may.

        Parameters
        ----------
        ledger
            The quotas and what they use.
        quota
            Name of the pod's quota.
        pod
            Who asks.
        """


def masked_request(ledger: QuotaLedger, quota: str, pod: QuotaPod) -> Resources:
    """Give what a pod counts for in a quota: its request in the resources of the quota's ``max``.

    Parameters
    ----------
    ledger
        The quotas with what is used of them.
    quota
        Name of the quota.
    pod
        The pod.
    """
    limit = ledger.max_of(quota)
    request = pod.request
    if all(name in limit for name in request):
        return request
    return immutabledict({name: amount for name, amount in request.items() if name in limit})


def limit_of(ledger: QuotaLedger, quota: str) -> Resources:
    """Give what a quota may use now; a resource that is absent is unlimited.

    It is the runtime, or ``max`` where runtime quotas are off, and of what the parent does not hand out. The
    default and the system quota have no runtime; their ``max`` binds all the same (ruling 22). The root
    limits nothing.
    """
    share, found = _share_of(ledger, quota), ledger.find(quota)
    if found is None or not ledger.policy.enable_runtime_quota:
        return share
    state, row = found
    if state.runtime(row) is None:
        return share  # below a parent that is not there nothing is handed out, and nothing limits
    tree = state.tree
    if tree.binding[row] == tree.counted[row]:
        return share
    rows = zip(tree.resources, tree.max[row], tree.counted[row], tree.binding[row], strict=True)
    return immutabledict({**{name: most for name, most, counts, binds in rows if counts > binds}, **share})


def _share_of(ledger: QuotaLedger, quota: str) -> Resources:
    """Give what upstream limits a quota to: its runtime, which names what the parent hands out."""
    if quota == ROOT_QUOTA:
        return NO_RESOURCES
    if not ledger.policy.enable_runtime_quota or quota in BUILTIN_QUOTAS:
        return ledger.max_of(quota)
    return ledger.runtime_of(quota) or NO_RESOURCES


def admit(ledger: QuotaLedger, pod: QuotaPod, *, checks: Sequence[QuotaCheck] = ()) -> Admission:
    """Check a pod against its quota, before it is placed.

    The pod should be tracked (:meth:`QuotaLedger.track`): an idle quota that lends has no runtime to give.

    Parameters
    ----------
    ledger, pod
        The quotas with what is used of them, and who asks.
    checks
        Rules of the embedder's own, after those of the ledger's policy.

    Notes
    -----
    In order: everything the quota uses with the pod against its limit; for a non-preemptible pod, what
    such pods use against ``min``; the embedder's rules; and, if the policy says so, the pod's own
    resources against every ancestor from the nearest up; then all of them once more, where their own
    ``max`` bounds what their parents do not hand out. After ``plugin.go: PreFilter`` and
    ``plugin_helper.go`` of upstream's elastic quota plugin.
    """
    name = ledger.resolve(pod)
    if name is None:
        return Ungoverned()
    checks = (*ledger.policy.checks, *checks)
    if not checks and not ledger.policy.enable_check_parent_quota and _clearly_fits(ledger, name, pod):
        return Admitted(quota=name)
    request, used, limit = masked_request(ledger, name, pod), ledger.used_of(name), limit_of(ledger, name)
    if name == ROOT_QUOTA:
        request, used = NO_RESOURCES, NO_RESOURCES
    refusal = _beyond(QuotaCheckKind.RUNTIME, name, name, request, used, _share_of(ledger, name))
    if refusal is None and not pod.preemptible:
        held, least = ledger.held_of(name), ledger.min_of(name)
        refusal = _beyond(QuotaCheckKind.NON_PREEMPTIBLE, name, name, request, held, least)
    if refusal is not None:
        return _refused(ledger, pod, refusal)
    for check in checks:
        problem = check.check_pod(ledger, name, pod)
        if problem:
            return QuotaRefusal(
                quota=name,
                kind=QuotaCheckKind.HOOK,
                request=request,
                used=used,
                limit=limit,
                ancestor=name,
                message=f"CheckPod failed for hook plugin {check.key}, err: {problem}",
            )
    parents = ledger.policy.enable_check_parent_quota
    above = _check_ancestors(ledger, pod, name, request, _share_of) if parents else None
    if above is not None:
        return above
    # What upstream does not look at comes last, so that its reasons stay the same.
    refusal = _beyond(QuotaCheckKind.RUNTIME, name, name, request, used, limit)
    if refusal is not None:
        return _refused(ledger, pod, refusal)
    above = _check_ancestors(ledger, pod, name, request, limit_of) if parents else None
    return Admitted(quota=name) if above is None else above


def admit_together(
    ledger: QuotaLedger, pods: Iterable[QuotaPod], *, checks: Sequence[QuotaCheck] = ()
) -> QuotaLedger | QuotaRefusal:
    """Check several tracked pods as one, such as a gang: each beside those before it.

    Parameters
    ----------
    ledger
        The quotas with what is used of them.
    pods
        In the order in which they are placed.
    checks
        What is asked besides, for each pod and each of its quotas.

    Returns
    -------
    QuotaLedger or QuotaRefusal
        The ledger with all of them placed, or the first refusal; nothing is kept then.
    """
    for pod in pods:
        outcome = admit(ledger, pod, checks=checks)
        if isinstance(outcome, QuotaRefusal):
            return outcome
        ledger = ledger.assume(pod)
    return ledger


def _clearly_fits(ledger: QuotaLedger, name: str, pod: QuotaPod) -> bool:
    """Check an ordinary preemptible pod on vectors, which is what a scheduling loop does most of the time."""
    found = ledger.find(name)
    if found is None or not pod.preemptible or name in ledger.published:
        return False
    state, row = found
    tree = state.tree
    limit = tree.max[row]
    if ledger.policy.enable_runtime_quota:
        runtime = state.runtime(row)
        if runtime is None:
            return True
        if tree.binding[row] == tree.counted[row]:
            limit = runtime  # mostly
        else:
            shares = zip(runtime, limit, tree.binding[row], strict=True)
            limit = tuple([share if binds else most for share, most, binds in shares])
    used, asked = state.tally(row).used, pod.request
    for bound, spent, resource, counts in zip(limit, used, tree.resources, tree.counted[row], strict=True):
        if counts and spent + asked.get(resource, 0) > bound:
            return False
    return True


def exceeding(used: Resources, request: Resources, limit: Resources) -> tuple[str, ...]:
    """Resources in which use and request together exceed a limit, sorted.

    A resource that neither names is not looked at; one that the limit does not name is unlimited.

    Parameters
    ----------
    used, request, limit
        Amounts by resource, in the units of :mod:`~koordcore.model.resources`.
    """
    return tuple(
        sorted(
            name
            for name, bound in limit.items()
            if (name in used or name in request) and used.get(name, 0) + request.get(name, 0) > bound
        )
    )


def _beyond(
    kind: QuotaCheckKind, name: str, ancestor: str, request: Resources, used: Resources, limit: Resources
) -> QuotaRefusal | None:
    """Give the refusal of a pod that would bring a quota beyond a limit; ``None`` where it does not."""
    known = used
    if kind is QuotaCheckKind.PARENT:  # upstream asks ancestors about the pod's own resources alone
        known = immutabledict({key: amount for key, amount in used.items() if key in request})
    exceeded = exceeding(known, request, limit)
    if not exceeded:
        return None
    return QuotaRefusal(
        quota=name,
        kind=kind,
        exceeded=exceeded,
        request=request,
        used=used,
        limit=limit,
        ancestor=ancestor,
    )


def _check_ancestors(
    ledger: QuotaLedger,
    pod: QuotaPod,
    name: str,
    request: Resources,
    limited: Callable[[QuotaLedger, str], Resources],
) -> QuotaRefusal | None:
    trail = [name]
    at = name
    while True:
        above = ledger.quotas[at].parent if at in ledger.quotas else ROOT_QUOTA
        if at == ROOT_QUOTA:
            above = ""
        if above == ROOT_QUOTA:
            return None
        trail.insert(0, above)
        if above not in ledger.quotas or ledger.find(above) is None:
            return QuotaRefusal(
                quota=name,
                kind=QuotaCheckKind.ERROR,
                request=request,
                ancestor=above,
                message=f"Could not find the elasticQuota {above}, quotaNameTopo: [{' '.join(trail)}]",
            )
        used, limit = ledger.used_of(above), limited(ledger, above)
        refusal = _beyond(QuotaCheckKind.PARENT, name, above, request, used, limit)
        if refusal is not None:
            return _refused(ledger, pod, refusal, trail)
        at = above


def _refused(
    ledger: QuotaLedger,
    pod: QuotaPod,
    refusal: QuotaRefusal,
    trail: Sequence[str] = (),
) -> QuotaRefusal:
    """Put upstream's message on a refusal; ``trail`` names the quotas from the one that refused down."""
    quota = ledger.quotas.get(refusal.ancestor)
    guarded = refusal.kind is QuotaCheckKind.NON_PREEMPTIBLE
    asked = print_list(_as_written(refusal.request, pod.written), empty=_EMPTY)
    spent = print_list(_spent(ledger, refusal.ancestor, refusal.used, guarded=guarded), empty=_EMPTY)
    written = NO_SPELLING
    if quota is not None and guarded:
        written = quota.written_min
    elif quota is not None and not ledger.policy.enable_runtime_quota:
        written = quota.written_max
    limit = refusal.limit
    if not guarded and ledger.policy.enable_runtime_quota and refusal.ancestor not in BUILTIN_QUOTAS:
        limit = ledger.handed_to(refusal.ancestor) or limit
    bound = print_list(_as_written(limit, written), empty=_EMPTY)
    tail = f"pod's request: {asked}, exceedDimensions: [{' '.join(refusal.exceeded)}]"
    if guarded:
        head = f"Insufficient non-preemptible quotas, quotaName: {refusal.quota}, min: {bound}"
        return attrs.evolve(refusal, message=f"{head}, nonPreemptibleUsed: {spent}, {tail}")
    where = f"quotaNameTopo: [{' '.join(trail)}]" if trail else f"quotaName: {refusal.quota}"
    head = f"Insufficient quotas, {where}, runtime: {bound}"
    return attrs.evolve(refusal, message=f"{head}, used: {spent}, {tail}")


def _as_written(amounts: Resources, written: Spelling) -> dict[str, str]:
    exact = exact_of(amounts)
    return {name: written.get(name) or str(exact[name]) for name in amounts}


def _spent(ledger: QuotaLedger, name: str, used: Resources, *, guarded: bool) -> dict[str, ExactQuantity]:
    """Used amounts as upstream prints them: sums keep the notation of their first operand, and its zeros."""
    result = dict(exact_of(used))
    for key, binary in _notation_below(ledger, name, guarded=guarded).items():
        nano = result[key].nano if key in result else 0
        result[key] = ExactQuantity(nano, Notation.BINARY_SI if binary else Notation.DECIMAL_SI)
    return result


def _notation_below(ledger: QuotaLedger, name: str, *, guarded: bool) -> dict[str, bool]:
    """Tell which used amounts are in powers of two: by its own pods first, then by its children."""
    if not ledger.notations:
        return {}
    own, limit = ledger.own_of(name), ledger.max_of(name)
    amounts = own.non_preemptible_used if guarded else own.used
    result: dict[str, bool] = {}
    settled: set[str] = set()
    for key, binary in ledger.notations.get(name, _NO_NOTATIONS)[guarded].items():
        if key in limit and amounts:
            result[key] = binary
            if amounts.get(key):
                settled.add(key)
    for child in _children(ledger, name):
        amounts = ledger.held_of(child) if guarded else ledger.used_of(child)
        for key, binary in _notation_below(ledger, child, guarded=guarded).items():
            if key not in settled:
                result[key] = binary
                if amounts.get(key):
                    settled.add(key)
    return result


def _children(ledger: QuotaLedger, name: str) -> tuple[str, ...]:
    found = ledger.find(name)
    if found is None:
        return ()
    tree = found[0].tree
    below = tree.group_below[found[1]]
    return () if below < 0 else tuple(tree.quotas[row].name for row in tree.groups[below])
