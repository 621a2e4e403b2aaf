"""Who leaves for a job, as plain JSON, and back: parts of a plan."""

from __future__ import annotations

from typing import Any, Final

import attrs
from immutabledict import immutabledict

from koordcore.errors import ManifestError
from koordcore.manifests.proof_records import certificate_from_record, claim_record
from koordcore.model.decisions import Victim
from koordcore.model.pods import PodKey
from koordcore.model.preemption import NO_DAMAGE, Alternative, Damage, Move, PreemptionPlan
from koordcore.protocol.fields import (
    Json,
    as_int,
    as_mapping,
    as_str,
    as_str_mapping,
    list_of,
    optional,
    required,
)

_UNHURT: Final[dict[str, int]] = attrs.asdict(NO_DAMAGE)


def preemption_record(plan: PreemptionPlan) -> dict[str, Any]:
    """Write who leaves for a job as JSON values."""
    other = plan.alternative
    return {
        "job": plan.job,
        "nominations": dict(plan.nominations),
        "leftOut": list(plan.left_out),
        "victims": [victim_record(one) for one in plan.victims],
        "brokenGangs": list(plan.broken),
        "moves": {str(move.victim.pod): move.node for move in plan.moves},
        "damage": attrs.asdict(plan.damage),
        "certificate": claim_record(plan.certificate),
        "layer": plan.layer,
        "domain": plan.domain,
        "alternative": {"where": other.where, "damage": attrs.asdict(other.damage)} if other else None,
        **({"leaving": [victim_record(one) for one in plan.leaving]} if plan.leaving else {}),
        **({"borrowers": list(plan.borrowers)} if plan.borrowers else {}),
    }


def victim_record(victim: Victim) -> dict[str, Any]:
    """Write who leaves, and of what job it is."""
    return {"pod": str(victim.pod), "node": victim.node, "priority": victim.priority, "job": victim.job}


def preemption_from_record(value: Json) -> PreemptionPlan:
    """Read back who leaves for a job.

    Raises
    ------
    ManifestError
        When it is not of the form that :func:`preemption_record` writes, or moves somebody who is no victim.
    """
    raw = as_mapping(value)
    victims = optional(raw, "victims", list_of(victim_from_record), ())
    known = {victim.pod: victim for victim in victims}
    moves = optional(raw, "moves", as_str_mapping, {})
    strangers = sorted(name for name in moves if pod_key_from_record(name) not in known)
    if strangers:
        raise ManifestError.at("moves", f'"{strangers[0]}" is none of the victims')
    return PreemptionPlan(
        job=required(raw, "job", as_str),
        nominations=immutabledict(required(raw, "nominations", as_str_mapping)),
        left_out=optional(raw, "leftOut", list_of(as_str), ()),
        victims=victims,
        broken=optional(raw, "brokenGangs", list_of(as_str), ()),
        moves=tuple(Move(known[pod_key_from_record(name)], moves[name]) for name in sorted(moves)),
        damage=required(raw, "damage", _damage),
        certificate=required(raw, "certificate", certificate_from_record),
        layer=optional(raw, "layer", as_str, ""),
        domain=optional(raw, "domain", as_str, ""),
        alternative=optional(raw, "alternative", _alternative, None),
        leaving=optional(raw, "leaving", list_of(victim_from_record), ()),
        borrowers=optional(raw, "borrowers", list_of(as_str), ()),
    )


def _damage(value: Json) -> Damage:
    raw = as_mapping(value)
    return Damage(**{name: optional(raw, name, as_int, default) for name, default in _UNHURT.items()})


def _alternative(value: Json) -> Alternative | None:
    if value is None:
        return None
    raw = as_mapping(value)
    return Alternative(required(raw, "damage", _damage), required(raw, "where", as_str))


def victim_from_record(value: Json) -> Victim:
    """Read back who leaves.

    Raises
    ------
    ManifestError
        When it is not of the form that :func:`victim_record` writes.
    """
    raw = as_mapping(value)
    return Victim(
        required(raw, "pod", pod_key_from_record),
        required(raw, "node", as_str),
        required(raw, "priority", as_int),
        required(raw, "job", as_str),
    )


def pod_key_from_record(value: Json) -> PodKey:
    """Read the name of a pod.

    Raises
    ------
    ManifestError
        When it is not of the form that plans write.
    """
    namespace, slash, name = as_str(value).partition("/")
    if not slash or not namespace or not name:
        raise ManifestError.at("", "expected namespace/name")
    return PodKey(namespace, name)
