"""The quotas of a tree as a table: what each is owed, uses and borrows, and from whom."""

from __future__ import annotations

from koordcore._record import record
from koordcore.quota.ledger import QuotaLedger


@record(kw_only=True)
class QuotaRow:
    """One line of the table of a tree: one quota and one resource.

    Parameters
    ----------
    quota, depth, resource
        Which; depth 0 is the first level.
    min, max, request, runtime, used
        Amounts; ``None`` where there is no such limit.
    borrowed
        What it uses beyond its min.
    lenders
        Quotas that do not use all that they are promised and lend it, below the same parent as this one or
        one above it; empty where nothing is borrowed.
    """

    quota: str
    depth: int
    resource: str
    min: int | None
    max: int
    request: int
    runtime: int | None
    used: int
    borrowed: int
    lenders: tuple[str, ...] = ()


def quota_table(ledger: QuotaLedger, tree_id: str = "") -> tuple[QuotaRow, ...]:
    """Give a tree as rows, every quota below its parent, siblings by name, resources by name."""
    tree = ledger.state(tree_id).tree
    statuses = ledger.statuses()
    rows: list[QuotaRow] = []
    pending = [(row, 0) for group in (1, 0) for row in reversed(tree.groups[group])]
    while pending:
        row, depth = pending.pop()
        below = tree.group_below[row]
        if below >= 0:
            pending += [(child, depth + 1) for child in reversed(tree.groups[below])]
        status = statuses[tree.quotas[row].name]
        for resource in sorted(status.max):
            used = status.used.get(resource, 0)
            rows.append(
                QuotaRow(
                    quota=status.quota,
                    depth=depth,
                    resource=resource,
                    min=status.min.get(resource),
                    max=status.max[resource],
                    request=status.request.get(resource, 0),
                    runtime=None if status.runtime is None else status.runtime.get(resource),
                    used=used,
                    borrowed=max(0, used - status.min.get(resource, 0)),
                    lenders=_lenders(ledger, status.quota, resource),
                )
            )
    return tuple(rows)


def _lenders(ledger: QuotaLedger, name: str, resource: str) -> tuple[str, ...]:
    """Name who lends a resource to a quota that uses more than its min of it."""
    if ledger.used_of(name).get(resource, 0) <= ledger.min_of(name).get(resource, 0):
        return ()
    found = ledger.find(name)
    tree = ledger.state(ledger.tree_of(name)).tree
    path = [] if found is None else tree.path(found[1])
    idle = []
    for row in path:
        for sibling in tree.groups[tree.group_of[row]]:
            quota = tree.quotas[sibling]
            least = ledger.min_of(quota.name).get(resource, 0)
            if sibling != row and quota.allow_lent and ledger.used_of(quota.name).get(resource, 0) < least:
                idle.append(quota.name)
    return tuple(sorted(idle))
