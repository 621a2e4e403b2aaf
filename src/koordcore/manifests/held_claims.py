"""What a bound pod's ResourceClaims were allocated, in a plan's JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from koordcore.manifests.claim_status import allocation_manifest
from koordcore.manifests.resource_claims import read_allocation
from koordcore.model.claims import HeldClaim
from koordcore.protocol.fields import (
    Json,
    as_bool,
    as_list,
    as_mapping,
    as_str,
    collect,
    load_json,
    optional,
    required,
)


def held_claim_record(held: HeldClaim) -> dict[str, Any]:
    """Write a claim as a pod has it; its allocation as in ``status.allocation``."""
    record: dict[str, Any] = {"claim": held.name, "entry": held.entry}
    record["allocation"] = allocation_manifest(held.allocation)
    return record | {"fresh": held.fresh, "planned": held.planned}


def write_held_claims(claims: Sequence[HeldClaim]) -> str:
    """Write what a reservation's claims were allocated, for its annotation."""
    return json.dumps([held_claim_record(one) for one in claims], sort_keys=True, separators=(",", ":"))


def read_held_claims(value: Json) -> tuple[HeldClaim, ...]:
    """Read the annotation of a reservation.

    Raises
    ------
    ManifestError
        When it is not of the form that :func:`write_held_claims` writes.
    """
    return collect(held_claim_from_record, as_list(load_json(as_str(value))))


def held_claim_from_record(value: Json) -> HeldClaim:
    """Read a claim back.

    Raises
    ------
    ManifestError
        When it is not of the form that :func:`held_claim_record` writes.
    """
    raw = as_mapping(value)
    return HeldClaim(
        name=required(raw, "claim", as_str),
        entry=optional(raw, "entry", as_str, ""),
        allocation=required(raw, "allocation", read_allocation),
        fresh=optional(raw, "fresh", as_bool, True),
        planned=optional(raw, "planned", as_bool, False),
    )
