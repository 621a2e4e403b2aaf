"""``koordcore verify``: check a plan against the dump it was made from."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from koordcore.checking import Violation, check_certificate, verify
from koordcore.checking.certificates import CertificateCheck
from koordcore.checking.costs import cost_fault
from koordcore.checking.moves import verify_moves
from koordcore.cli.idle_options import need_use_of
from koordcore.cli.inputs import (
    add_lend,
    add_now,
    add_paths,
    as_of,
    lent,
    load_paths,
    read_json,
    read_now,
    say_left_out,
)
from koordcore.cli.layout import Column, Table, Tone
from koordcore.cli.moves import add_rules, read_rules
from koordcore.cli.output import add_output, for_programs, print_record
from koordcore.cli.progress import Step, working
from koordcore.cli.selection import add_selection, need_tables, selection_of
from koordcore.cli.tables import say, show
from koordcore.cli.words import many
from koordcore.manifests.move_records import MOVES_FORMAT, moves_from_record
from koordcore.manifests.proof_records import certificate_from_record, certificates_of, proofs_from_record
from koordcore.manifests.records import result_from_record
from koordcore.model.certificates import Certificate
from koordcore.model.metrics import NodeMetric
from koordcore.model.policy import Policy
from koordcore.model.reservations import Reservation
from koordcore.snapshot import ClusterSnapshot

_REJECTED: Final = "REJECTED"
_LOAD: Final = "LoadAwareScheduling"

EPILOG: Final = """\
examples:
  koordcore schedule cluster.yaml -o json > plan.json
  koordcore verify cluster.yaml --plan plan.json
  koordcore rebalance cluster.yaml --high cpu=65 -o json > moves.json
  koordcore verify cluster.yaml --plan moves.json
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = (
        "Check a plan, as `schedule`, `rebalance` and `defrag` print it with `-o json`, "
        "against the dump it was made from."
    )
    parser.epilog = EPILOG
    add_paths(parser)
    add_rules(parser)
    add_now(parser, "the time of the dump")
    add_lend(parser)
    parser.add_argument("--plan", required=True, metavar="FILE", help="the plan to check")
    parser.add_argument(
        "--proofs",
        metavar="FILE",
        help="why nothing better exists, as `schedule`, `rebalance` and `defrag` write it with --proofs; "
        "repeated here",
    )
    add_output(parser, watch=True)
    add_selection(parser)
    parser.set_defaults(run=run)


def _check_proofs(
    claims: Mapping[str, Certificate], file: str | None, step: Step, faults: Mapping[str, str]
) -> Table | None:
    """Repeat the proofs of what is claimed to be the best, or to be impossible; None where nothing is.

    Parameters
    ----------
    faults
        By the name of a claim why it is not about what is in the plan.
    """
    if not claims:
        return None
    given = {} if file is None else proofs_from_record(read_json("--proofs", file))
    rows = []
    for number, (name, claim) in enumerate(claims.items()):
        step(number, len(claims))
        proof = given.get(name)
        if proof is None:
            rows.append((name, claim.status.text, "no", "no proof is given" if file else "no --proofs"))
        elif proof != claim:
            rows.append((name, claim.status.text, _REJECTED, "the proof is about another claim"))
        elif faults.get(name):
            rows.append((name, claim.status.text, _REJECTED, faults[name]))
        else:
            check = check_certificate(proof.problem, proof)
            words = {CertificateCheck.ACCEPTED: "yes", CertificateCheck.REJECTED: _REJECTED}
            rows.append((name, claim.status.text, words.get(check.outcome, "no"), check.reason))
    columns = (Column("OF"), Column("CLAIM"), Column("REPEATED HERE"), Column("WHY NOT", text=True, rank=1))
    repeated = sum(row[2] == "yes" for row in rows)
    return Table(title=f"Proofs: {repeated} of {len(rows)} repeated here", columns=columns, rows=rows)


def _record(checked: str, violations: Sequence[Violation], proofs: Table | None) -> dict[str, Any]:
    heads = ("of", "claim", "repeated", "why")
    return {
        "legal": not violations,
        "checked": checked,
        "violations": [
            {"rule": str(one.kind), "where": one.subject, "what": one.message} for one in violations
        ],
        "proofs": [dict(zip(heads, row, strict=True)) for row in (proofs.rows if proofs else ())],
    }


def _shown(
    arguments: argparse.Namespace, snapshot: ClusterSnapshot, violations: Sequence[Violation]
) -> list[Violation]:
    """Give those about whoever ``-n`` and ``-l`` choose; what is about no pod and no node is never hidden."""
    selection = selection_of(arguments)
    hidden = {str(pod.key) for pod in (*snapshot.pending, *snapshot.bound_pods()) if not selection.pod(pod)}
    hidden |= {state.name for state in snapshot.nodes if not selection.node(state)}
    return [one for one in violations if one.subject not in hidden]


def _asks_for_load(snapshot: ClusterSnapshot, policy: Policy) -> bool:
    """Tell whether the age of what was measured may have refused a pod: no plan tells its moment."""
    return snapshot.has(NodeMetric) and any(one.filters(_LOAD) for one in policy.profiles)


def run(arguments: argparse.Namespace) -> int:
    """Verify and print; 1 when something is not legal."""
    need_tables(arguments)
    snapshot = lent(arguments, as_of(arguments, load_paths(arguments).snapshot))
    record, now = read_json("--plan", arguments.plan), read_now(arguments)
    rules, strangers, faults = read_rules(arguments, snapshot), 0, dict[str, str]()
    if isinstance(record, dict) and record.get("format") == MOVES_FORMAT:
        moves, bound = moves_from_record(record)
        claim = certificate_from_record(record["certificate"]) if "certificate" in record else None
        claims = {"moves": claim} if claim is not None and claim.proven else {}
        with working("verifying the moves, wave by wave") as step:
            violations = verify_moves(
                snapshot,
                moves,
                bound,
                policy=rules.policy,
                args=rules.migration,
                limits=rules.limits,
                now=now,
                progress=step,
            )
        policy, checked = rules.policy, many(len(moves), "move")
    else:
        need_use_of(arguments, "it limits moves, and this plan has none", "--migration")
        result = result_from_record(snapshot, record, policy=rules.policy)
        held = {one.pod_key for one in snapshot.of(Reservation)}
        strangers = sum(snapshot.pod(one.pod) is None and one.pod not in held for one in result.decisions)
        with working("verifying the plan, rule by rule") as step:
            violations = verify(snapshot, result, now=now, progress=step)
        say_left_out(result, quiet=arguments.quiet)
        policy, checked = result.policy, many(len(result.decisions), "decision")
        claims = {name: one for name, one in certificates_of(result).items() if one.proven}
        faults = {f"preemption {one.job}": cost_fault(snapshot, one) for one in result.preemptions}
    if now is None and not arguments.quiet and _asks_for_load(snapshot, policy):
        print(f"not looked at: how old NodeMetrics were, for {_LOAD} (give --now)", file=sys.stderr)
    with working("repeating proofs") as step:
        proofs = _check_proofs(claims, arguments.proofs, step, faults)
    if for_programs(arguments):
        rejected = proofs is not None and any(row[2] == _REJECTED for row in proofs.rows)
        print_record(arguments, _record(checked, violations, proofs))
        return int(bool(violations) or rejected)
    if not violations:
        if not selection_of(arguments).all and not arguments.quiet:
            print("-n, -l: they choose rows of what is wrong; the plan is checked whole", file=sys.stderr)
        say(f"legal: {checked} checked, nothing is wrong")
        if proofs is not None:
            show(proofs)
        return int(proofs is not None and any(row[2] == _REJECTED for row in proofs.rows))
    columns = (Column("RULE", tone=Tone.BAD), Column("WHERE", tone=Tone.NAME), Column("WHAT", text=True))
    shown = _shown(arguments, snapshot, violations)
    rows = [(str(one.kind), one.subject, one.message) for one in shown]
    left = f", {len(rows)} of them shown" if len(rows) < len(violations) else ""
    show(Table(title=f"Not legal: {many(len(violations), 'violation')}{left}", columns=columns, rows=rows))
    if strangers:
        are = "is" if strangers == 1 else "are"
        say(f"{many(strangers, 'pod')} of the plan {are} not in the dump: was it made from this one?")
    return 1
