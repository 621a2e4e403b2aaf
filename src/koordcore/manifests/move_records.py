"""Plans of moves as plain JSON, and back: for programs, for files, for a later check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from koordcore.errors import ManifestError
from koordcore.manifests.held_claims import held_claim_from_record, held_claim_record
from koordcore.model.decisions import Bound
from koordcore.model.moves import Move
from koordcore.model.pods import PodKey
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

MOVES_FORMAT: Final = "koordcore/moves/v1"


def moves_record(moves: Sequence[Move], bound: Sequence[Bound]) -> dict[str, Any]:
    """Write moves, with what each pod gets at its target, as JSON values."""
    given = {one.pod: one for one in bound}
    return {"format": MOVES_FORMAT, "moves": [_record(move, given.get(move.pod)) for move in moves]}


def _record(move: Move, decision: Bound | None) -> dict[str, Any]:
    record: dict[str, Any] = {
        "pod": str(move.pod),
        "from": move.source,
        "to": move.target,
        "leaves": move.leaves,
        "arrives": move.arrives,
    }
    if decision is not None:
        extras = {
            "annotations": dict(sorted(decision.annotations.items())),
            "labels": dict(sorted(decision.labels.items())),
            "reservation": decision.reservation,
            "claims": [held_claim_record(one) for one in decision.claims],
        }
        record |= {key: value for key, value in extras.items() if value}
    return record


def moves_from_record(record: Json) -> tuple[tuple[Move, ...], tuple[Bound, ...]]:
    """Read moves back, and what each pod gets at its target.

    Raises
    ------
    ManifestError
        When the record is not of this format, with the path.
    """
    raw = as_mapping(record)
    if required(raw, "format", as_str) != MOVES_FORMAT:
        raise ManifestError.at("format", f'expected "{MOVES_FORMAT}"')
    pairs = required(raw, "moves", list_of(_pair))
    return tuple(move for move, _ in pairs), tuple(decision for _, decision in pairs)


def _pair(value: Json) -> tuple[Move, Bound]:
    raw = as_mapping(value)
    move = Move(
        pod=required(raw, "pod", _key),
        source=required(raw, "from", as_str),
        target=required(raw, "to", as_str),
        leaves=optional(raw, "leaves", as_int, 0),
        arrives=optional(raw, "arrives", as_int, 0),
    )
    decision = Bound(
        pod=move.pod,
        node=move.target,
        annotations=optional(raw, "annotations", as_str_mapping, {}),
        labels=optional(raw, "labels", as_str_mapping, {}),
        reservation=optional(raw, "reservation", as_str, ""),
        claims=optional(raw, "claims", list_of(held_claim_from_record), ()),
    )
    return move, decision


def _key(value: Json) -> PodKey:
    namespace, slash, name = as_str(value).partition("/")
    if not slash or not namespace or not name:
        raise ManifestError.at("", "expected namespace/name")
    return PodKey(namespace, name)
