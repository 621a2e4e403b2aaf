"""Why a gang has no place, in upstream's words and in plain ones."""

from __future__ import annotations

from collections.abc import Mapping

from koordcore.allocators.gang.demand import GangShortfall, IntVector
from koordcore.allocators.gang.lacking import gather_roots, where_text
from koordcore.allocators.gang.mending import slots_to_add
from koordcore.allocators.gang.objective import Terms
from koordcore.model.certificates import Certificate
from koordcore.topology.network import NetworkTopology


def no_candidate_message(
    tree: NetworkTopology,
    *,
    desired: int,
    must_layer: str,
    multiples: Mapping[str, int],
    slots: IntVector,
    fit_error: str,
) -> str:
    """Write the message of a gang that no domain holds.

    Parameters
    ----------
    tree
        The network.
    desired
        Pending members.
    must_layer
        Layer that the members must share a domain of; empty for the whole cluster.
    multiples
        Binding pod-count multiples per layer.
    slots
        Offer slots of every domain after the multiples, shape (T,).
    fit_error
        What the filters said over all nodes.
    """
    depth = tree.depth_of(must_layer) if must_layer else 0
    roots = [] if depth is None else tree.domains_at(depth)
    offers = ";".join(sorted(f"topology topologyNode {tree.label(root)}: {slots[root]}" for root in roots))
    binding = ", ".join(f"{layer}={multiple}" for layer, multiple in sorted(multiples.items()))
    tail = f"; podCountMultiple constraints: {binding}" if binding else ""
    listed = f"{offers}, "
    if depth is None and not fit_error:
        listed, fit_error = "", _no_layer(must_layer)  # upstream says nothing here
    return (
        f"no candidate topology nodes can accommodate job, desiredOfferSlot: {desired}, "
        f"{listed}{fit_error}{tail}"
    )


def _no_layer(must_layer: str) -> str:
    return f"the network topology has no layer {must_layer}"


def explain_shortfall(
    terms: Terms,
    *,
    fit_error: str,
    placeable: int,
    certificate: Certificate,
    lacking: str | None = None,
) -> GangShortfall:
    """Describe a gang without a place.

    Parameters
    ----------
    placeable
        Members that would fit, -1 when that is not known.
    certificate
        What is known: that there is none, or nothing.
    lacking
        What is short, where members are of several shapes; empty where nothing is by itself.
    """
    tree, demand = terms.tree, terms.demand
    must_layer = demand.spec.must_layer(tree.layers)
    message = no_candidate_message(
        tree,
        desired=demand.size,
        must_layer=must_layer,
        multiples=demand.spec.multiples,
        slots=terms.slots,
        fit_error=fit_error,
    )
    return GangShortfall(
        message=message,
        detail=_detail(terms, must_layer, placeable, lacking),
        desired=demand.least,
        placeable=placeable,
        certificate=certificate,
    )


def _detail(terms: Terms, must_layer: str, placeable: int, lacking: str | None) -> str:
    tree, least = terms.tree, terms.demand.least
    depth = terms.must_depth
    if depth is None:
        return _no_layer(must_layer)
    roots = gather_roots(terms)
    if not roots:
        return f"no node has a place in the network topology; {least} members must be placed"
    if lacking:
        return lacking
    best = max(roots, key=lambda root: (int(terms.slots[root]), int(terms.offered[root])))
    offer = int(terms.slots[best])
    where = where_text(tree, best)
    rules = [f"{layer}={m}" for layer, m in sorted(terms.demand.spec.multiples.items())]
    if lacking is None and offer < least and not rules:
        return f"{where} has {offer} of {least} slots; {least - offer} more would do"
    why = f" with podCountMultiple {', '.join(rules)}" if rules else ""
    if lacking is None and offer < least:
        mended = slots_to_add(terms, roots)
        best = best if mended is None else mended[0]
        more = "" if mended is None else f"; {mended[1]} more would do"
        has = f"{where_text(tree, best)} has {terms.offered[best]} slots, room for {terms.slots[best]}"
        return f"{has} of {least} members{why}{more}"
    if lacking is not None and offer < least and not rules:
        return f"{where} has {offer} of {least} slots; {least - offer} more needed"
    short = f"at most {placeable} of {least} members fit" if placeable >= 0 else f"{least} members do not fit"
    if lacking is None:
        return f"{where} has {terms.offered[best]} slots, yet {short} together{why}"
    room = "one domain" if depth else "the cluster"
    if least < terms.demand.size:  # some may stay out, so what each kind has says little
        return f"{short} together in {room}{why}"
    return f"every kind of member has slots enough in {room}, yet {short} together{why}"
