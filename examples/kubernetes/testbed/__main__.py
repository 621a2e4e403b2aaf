"""Run the scenarios against a real API server: ``python -m examples.kubernetes.testbed``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import attrs
import yaml

from examples.kubernetes.client import connect
from examples.kubernetes.testbed.apiserver import cache_folder, running
from examples.kubernetes.testbed.bed import Bed
from examples.kubernetes.testbed.check import check
from examples.kubernetes.testbed.scenarios import SCENARIOS, Outcome, Plan
from examples.kubernetes.testbed.world import cluster

_HEADS = ("scenario", "pods bound", "seconds", "pods/s", "deciding", "CPU ms/pod", "kills", "passed", "")
_DEFINITIONS = Path(__file__).parents[1] / "crds.yaml"
_RIGHTS = Path(__file__).parents[1] / "rbac.yaml"


def main() -> int:
    """Build the server if need be, run what is asked for, print a table; 1 when something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m examples.kubernetes.testbed", description=__doc__)
    parser.add_argument("--cache", type=Path, help="folder of the server's binary")
    parser.add_argument("--kube-apiserver", type=Path, help="a server that is there; nothing is built then")
    parser.add_argument("--log", type=Path, default=Path("scheduler.log"), help="log of the schedulers")
    parser.add_argument(
        "--only",
        choices=SCENARIOS,
        action="append",
        metavar="NAME",
        help=f"a scenario, may be repeated: {', '.join(SCENARIOS)}",
    )
    for field in attrs.fields(Plan):
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            type=int,
            default=field.default,
            metavar="N",
            help=f"{field.metadata['what']} ({field.default})",
        )
    arguments = vars(parser.parse_args())
    only, cache, log = arguments.pop("only"), arguments.pop("cache"), arguments.pop("log")
    binary = arguments.pop("kube_apiserver")
    plan = Plan(**arguments)
    failed = 0
    with (
        running(cache_folder(cache), binary) as server,
        closing(Bed(connect(str(server.kubeconfig)), server, log)) as bed,
    ):
        bed.define(list(yaml.safe_load_all(_DEFINITIONS.read_text())))
        bed.permit(yaml.safe_load_all(_RIGHTS.read_text()))
        bed.open(cluster(plan.nodes, plan.gpu_nodes))
        _print_row(_HEADS)
        _print_row(["---"] * len(_HEADS))
        for name in only or SCENARIOS:
            outcome = Outcome(name)
            SCENARIOS[name](bed, plan, outcome)
            outcome.wrong += check(bed.api) + bed.kubelets.complaints
            bed.kubelets.complaints.clear()
            _print_row(_figures(outcome))
            for wrong in outcome.wrong:
                print(f"{name}: {wrong}", file=sys.stderr)
            failed += bool(outcome.wrong)
            bed.clear()
    return 1 if failed else 0


def _figures(one: Outcome) -> Sequence[str]:
    """Give the cells of a row; a scheduler that was killed has no figures."""
    busy = 0.0 if one.kills else one.booked("read", "decide", "verify", "write")
    return (
        one.name,
        str(one.bound),
        f"{one.seconds:.1f}",
        f"{one.bound / one.seconds:.0f}" if busy else "",
        f"{one.booked('decide') / busy:.0%}" if busy else "",
        f"{1000 * one.booked('cpu') / one.bound:.1f}" if busy and one.bound else "",
        str(one.kills or ""),
        "no" if one.wrong else "yes",
        one.note,
    )


def _print_row(cells: Sequence[str]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
