"""Certificates with what proves them as plain JSON, and back: for whoever does not take our word."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import attrs
import numpy as np

from koordcore.errors import ManifestError
from koordcore.model.certificates import Certificate, CertificateStatus
from koordcore.model.proofs import (
    DEEPEST,
    Branch,
    CoolingProblem,
    EvictionEvidence,
    EvictionProblem,
    Evidence,
    Leaf,
    LinearEvidence,
    LinearProblem,
    LinearRow,
    LinearStage,
    Problem,
    ProofTree,
    TreeProblem,
    VacatingProblem,
)
from koordcore.protocol.fields import (
    Json,
    as_bool,
    as_list,
    as_mapping,
    as_str,
    choice,
    list_of,
    optional,
    required,
)
from koordcore.result import ScheduleResult

PROOFS_FORMAT: Final = "koordcore/proofs/v1"

_ARRAYS: Final[Mapping[str, type]] = {
    "parent": np.int64,
    "depth": np.int64,
    "slots": np.int64,
    "bound": np.int64,
    "near": np.int64,
    "worth": np.int64,
    "request": np.int64,
    "free": np.int64,
    "most": np.int64,
    "home": np.int64,
    "node": np.int64,
    "priority": np.int64,
    "job": np.int64,
    "amounts": np.int64,
    "slack": np.int64,
    "breakable": np.bool_,
    "restart": np.int64,
    "excess": np.int64,
    "share": np.int64,
    "host": np.int64,
    "cost": np.int64,
}
_MATRICES: Final = ("free", "amounts", "excess", "share")
_KINDS: Final[Mapping[str, type[TreeProblem | EvictionProblem | CoolingProblem | VacatingProblem]]] = {
    "Tree": TreeProblem,
    "Eviction": EvictionProblem,
    "Cooling": CoolingProblem,
    "Vacating": VacatingProblem,
}

Read: TypeAlias = Callable[[Json], Any]


def certificates_of(result: ScheduleResult) -> dict[str, Certificate]:
    """Name every certificate of a result: ``gang …``, ``together …``, ``preemption …``."""
    found = {f"gang {one.job}": one.certificate for one in result.jobs if one.certificate is not None}
    found |= {f"together {one.jobs[0]} to {one.jobs[-1]}": one.certificate for one in result.together}
    found |= {f"preemption {one.job}": one.certificate for one in result.preemptions}
    return found


def proofs_record(certificates: Mapping[str, Certificate]) -> dict[str, Any]:
    """Write certificates with their problems and evidence as JSON values."""
    return {
        "format": PROOFS_FORMAT,
        "proofs": {name: _record(one) for name, one in sorted(certificates.items())},
    }


def claim_record(certificate: Certificate) -> dict[str, Any]:
    """Write what a certificate claims, without its problem and evidence."""
    return {
        "status": certificate.status.value,
        "objective": list(certificate.objective),
        "bound": list(certificate.bound),
    }


def _record(certificate: Certificate) -> dict[str, Any]:
    record = claim_record(certificate)
    if certificate.problem is not None:
        record["problem"] = _problem_record(certificate.problem)
    if isinstance(certificate.evidence, EvictionEvidence):
        record["evidence"] = {"leaving": list(certificate.evidence.leaving)}
    elif certificate.evidence is not None:
        trees = [_tree_record(tree) for tree in certificate.evidence.trees]
        record["evidence"] = {"values": list(certificate.evidence.values), "trees": trees}
    return record


def _problem_record(problem: Problem) -> dict[str, Any]:
    match problem:
        case LinearProblem():
            return {
                "kind": "Linear",
                "lower": list(problem.lower),
                "upper": list(problem.upper),
                "rows": [attrs.asdict(row) for row in problem.rows],
                "stages": [attrs.asdict(stage) for stage in problem.stages],
            }
        case TreeProblem() | EvictionProblem() | CoolingProblem() | VacatingProblem():
            fields = {one.name: getattr(problem, one.name) for one in attrs.fields(type(problem))}
            rest = fields.pop("rest", None)
            record = {"kind": type(problem).__name__.removesuffix("Problem")}
            record |= {
                name: value.tolist() if isinstance(value, np.ndarray) else value
                for name, value in fields.items()
            }
            return record | ({"rest": _problem_record(rest)} if rest is not None else {})


def _tree_record(tree: ProofTree) -> dict[str, Any]:
    if isinstance(tree, Leaf):
        return {"weights": [list(pair) for pair in tree.weights], "scale": tree.scale}
    return {
        "variable": tree.variable,
        "at": tree.at,
        "below": _tree_record(tree.below),
        "above": _tree_record(tree.above),
    }


def proofs_from_record(record: Json) -> dict[str, Certificate]:
    """Read certificates back, by name.

    Raises
    ------
    ManifestError
        When the record is not of this format, with the path.
    """
    raw = as_mapping(record)
    if required(raw, "format", as_str) != PROOFS_FORMAT:
        raise ManifestError.at("format", f'expected "{PROOFS_FORMAT}"')
    return required(raw, "proofs", _by_name)


def _by_name(value: Json) -> dict[str, Certificate]:
    raw = as_mapping(value)
    return {name: required(raw, name, certificate_from_record) for name in raw}


def certificate_from_record(value: Json) -> Certificate:
    """Read a certificate, with its problem and evidence where they are there.

    Raises
    ------
    ManifestError
        When something cannot be read, with the path.
    ModelError
        When the parts contradict each other.
    """
    raw = as_mapping(value)
    return Certificate(
        required(raw, "status", choice(CertificateStatus)),
        optional(raw, "objective", _ints, ()),
        optional(raw, "bound", _ints, ()),
        optional(raw, "problem", _problem, None),
        optional(raw, "evidence", _evidence, None),
    )


def _as_whole(value: Json) -> int:
    """Take an integer of any size: weights are exact."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ManifestError.at("", f"expected int, got {type(value).__name__}")
    return value


_ints = list_of(_as_whole)


def _pairs(value: Json) -> tuple[tuple[int, int], ...]:
    def pair(one: Json) -> tuple[int, int]:
        numbers = _ints(one)
        if len(numbers) != 2:
            raise ManifestError.at("", "expected two numbers")
        return numbers[0], numbers[1]

    return list_of(pair)(value)


def _condition(value: Json) -> tuple[int, bool]:
    parts = as_list(value)
    if len(parts) != 2:
        raise ManifestError.at("", "expected a variable and a value")
    return _as_whole(parts[0]), as_bool(parts[1])


def _row(value: Json) -> LinearRow:
    raw = as_mapping(value)
    variables, coefficients = required(raw, "variables", _ints), required(raw, "coefficients", _ints)
    if len(variables) != len(coefficients) or len(set(variables)) != len(variables):
        raise ManifestError.at("variables", "expected every variable once, with its coefficient")
    return LinearRow(
        variables,
        coefficients,
        optional(raw, "lower", _as_whole, None),
        optional(raw, "upper", _as_whole, None),
        optional(raw, "conditions", list_of(_condition), ()),
    )


def _stage(value: Json) -> LinearStage:
    raw = as_mapping(value)
    return LinearStage(
        required(raw, "terms", _pairs),
        optional(raw, "constant", _as_whole, 0),
        optional(raw, "levels", _ints, ()),
    )


def _linear(value: Json) -> LinearProblem:
    raw = as_mapping(value)
    problem = LinearProblem(
        lower=required(raw, "lower", _ints),
        upper=required(raw, "upper", _ints),
        rows=required(raw, "rows", list_of(_row)),
        stages=required(raw, "stages", list_of(_stage)),
    )
    if len(problem.lower) != len(problem.upper):
        raise ManifestError.at("upper", "expected as many numbers as in lower")
    return problem


def _array(name: str) -> Read:
    """Read an array of whole numbers, or of truth values."""
    kind, matrix = _ARRAYS[name], name in _MATRICES
    one: Read = list_of(as_bool) if kind is np.bool_ else _ints

    def read(value: Json) -> Any:
        rows = list_of(one)(value) if matrix else one(value)
        try:
            return np.array(rows, kind) if rows or not matrix else np.zeros((0, 0), kind)
        except (ValueError, OverflowError):
            raise ManifestError.at("", "expected rows of one length, of 64-bit numbers") from None

    return read


def _problem(value: Json) -> Problem:
    raw = as_mapping(value)
    kind = required(raw, "kind", as_str)
    if kind == "Linear":
        return _linear(raw)
    if kind not in _KINDS:
        raise ManifestError.at("kind", f'expected Linear, {", ".join(_KINDS)}, got "{kind}"')
    made = _KINDS[kind]
    given: dict[str, Any] = {}
    for one in attrs.fields(made):
        if one.name in _ARRAYS:
            read: Read = _array(one.name)
        elif one.name == "rest":
            read = _linear
        else:
            read = _ints if one.name in ("multiples", "order", "even") else _as_whole
            read = as_bool if one.name == "snug" else read
        given[one.name] = (
            required(raw, one.name, read)
            if one.default is attrs.NOTHING
            else optional(raw, one.name, read, one.default)
        )
    return made(**given)


def _evidence(value: Json) -> Evidence:
    raw = as_mapping(value)
    if "leaving" in raw:
        return EvictionEvidence(required(raw, "leaving", _ints))
    return LinearEvidence(required(raw, "values", _ints), required(raw, "trees", list_of(_tree)))


def _tree(value: Json, depth: int = 0) -> ProofTree:
    raw = as_mapping(value)
    if depth > DEEPEST:
        raise ManifestError.at("", f"more than {DEEPEST} cases within cases")
    if "weights" in raw:
        return Leaf(required(raw, "weights", _pairs), required(raw, "scale", _as_whole))
    return Branch(
        required(raw, "variable", _as_whole),
        required(raw, "at", _as_whole),
        required(raw, "below", lambda one: _tree(one, depth + 1)),
        required(raw, "above", lambda one: _tree(one, depth + 1)),
    )
