"""``koordcore world``: a cluster in a bottle, told as a story."""

from __future__ import annotations

import argparse
import shlex
import textwrap
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from koordcore.cli.inputs import need_picture
from koordcore.cli.output import add_limit, add_record_output, for_programs, print_record
from koordcore.cli.policies import policy_called
from koordcore.cli.progress import add_quiet, working
from koordcore.cli.words import many, near
from koordcore.errors import ModelError
from koordcore.model.load import LoadAwareArgs
from koordcore.model.policy import Policy
from koordcore.simulate.world.engine import run_world
from koordcore.simulate.world.own_loop import own_scheduler
from koordcore.simulate.world.picture import draw_world, plot_world
from koordcore.simulate.world.profile import PROFILES, SECOND, FaultProfile, named_profile
from koordcore.simulate.world.record import Happening, WorldRun
from koordcore.simulate.world.shrinking import shrink_world

_WIDTH: Final = 79
_TOGETHER: Final = SECOND // 4
_JOURNAL: Final = "writes its journal"
EPILOG: Final = """\
profiles:
  calm       nothing fails
  network    requests and answers get lost, watches are cut and lag
  nodes      nodes die, leave, are closed; pods crash and are slow to go
  kills      schedulers are killed between any two calls
  rivals     three schedulers at once, frozen and killed
  storm      all of it; hurricane: more of it, and two schedulers

examples:
  koordcore world --seed 7 --profile storm
  koordcore world --seed 7 --profile storm --plot storm.svg --limit 0
  koordcore world --seed 7 --profile storm --set nodes=3 --set kill=1000
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = (
        "Let koordcore's own scheduler live through a world with faults, which follows from a seed, check at "
        "every event what has to hold, and tell what happened."
    )
    parser.epilog = EPILOG
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="what happens (1)")
    parser.add_argument(
        "--profile", default="storm", choices=tuple(PROFILES), metavar="NAME", help="what can happen (storm)"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=N",
        help="another value in the profile; repeat it",
    )
    parser.add_argument(
        "--policy",
        metavar="NAME|FILE",
        help="how it decides, as schedule takes it (default, with quotas that are monitored)",
    )
    parser.add_argument(
        "--without", default="", metavar="N,N", help="leave these out of what comes from outside"
    )
    parser.add_argument(
        "--shrink", action="store_true", help="where a rule breaks, leave out what is not needed"
    )
    add_limit(parser, 60, "last lines of the story (60); 0: all")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the cluster over time: PNG, SVG or PDF"
    )
    add_quiet(parser)
    add_record_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run, tell, draw; 1 when a rule does not hold."""
    profile = named_profile(arguments.profile)
    changed = dict(map(_setting, arguments.set))
    if changed:
        profile = FaultProfile(**{**attrs.asdict(profile), **changed})
    without = frozenset(_number("--without", one) for one in arguments.without.split(",") if one)
    need_picture(arguments.plot)
    policy = None if arguments.policy is None else policy_called(arguments.policy, quiet=arguments.quiet)
    make = partial(own_scheduler, policy=policy)
    reported = None if policy is None else _reported(policy)
    with working(f"living through the seconds of seed {arguments.seed}") as step:
        found = run_world(
            arguments.seed, profile, make, reported=reported, without=without, tell=True, progress=step
        )
    if arguments.shrink and found.breaches:
        with working("shrinking") as step:
            found = shrink_world(found, make, reported=reported, progress=step)
    if for_programs(arguments):
        print_record(arguments, _record(found))
    else:
        _tell(found, arguments)
    if arguments.plot:
        plot_world(found, arguments.plot)
    return 1 if found.breaches else 0


def _reported(policy: Policy) -> LoadAwareArgs | None:
    setting = policy.plugin("LoadAwareScheduling")
    if setting is None or not setting.filters:
        return None
    return setting.args if isinstance(setting.args, LoadAwareArgs) else LoadAwareArgs()


def _setting(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    known = [one.name for one in attrs.fields(FaultProfile) if one.name != "name"]
    if name not in known:
        hint = near(name, known) or f"; there are {', '.join(known)}"
        raise ModelError(f"--set {text}: no such field{hint}")
    return name, _number(f"--set {name}", value)


def _number(what: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ModelError(f"{what}: a whole number is needed, got {text!r}") from None


def _record(found: WorldRun) -> dict[str, Any]:
    return {
        "seed": found.seed,
        "profile": attrs.asdict(found.profile),
        "without": sorted(found.without),
        "ended": found.ended,
        "events": found.events,
        "counts": dict(found.counts),
        "breaches": [attrs.asdict(one) for one in found.breaches],
        "story": [attrs.asdict(one) for one in found.story],
    }


def _tell(found: WorldRun, arguments: argparse.Namespace) -> None:
    profile, limit = found.profile, arguments.limit
    print(
        f"seed {found.seed}, profile {profile.name}: {many(profile.nodes, 'node')}, "
        f"{many(profile.schedulers, 'scheduler')}, {found.ended // SECOND} s"
    )
    story = _gathered(found.story)
    shown = story[-limit:] if limit > 0 else story
    if len(shown) < len(story):
        print(f"  … {many(len(story) - len(shown), 'line')} before; --limit 0 shows all")
    for one in shown:
        print(*textwrap.wrap(str(one), _WIDTH, subsequent_indent=" " * 21), sep="\n")
    print()
    for line in draw_world(found):
        print(line)
    counts = found.counts
    print(
        f"\n{found.events} events: {counts.get('request', 0)} requests, {counts.get('news', 0)} news, "
        f"{many(counts.get('restart', 0), 'kill')}"
    )
    _tell_disruption(found)
    for breach in found.breaches:
        message = f"BROKEN at {breach.time / SECOND:.1f} s, {breach.rule.value}: {breach.what}"
        print(*textwrap.wrap(message, _WIDTH, subsequent_indent="  "), sep="\n")
    if found.breaches:
        words = ["koordcore", "world", "--seed", str(found.seed), "--profile", profile.name]
        words += (word for one in arguments.set for word in ("--set", one))
        words += () if arguments.policy is None else ("--policy", arguments.policy)
        words += ("--without", ",".join(map(str, sorted(found.without)))) if found.without else ()
        print(f"replay: {shlex.join(words)}")
    else:
        print("every rule holds")


def _tell_disruption(found: WorldRun) -> None:
    evicted, started = found.counts.get("evictions", 0), found.counts.get("started percent", 0)
    if started:
        each = 100 * evicted / started
        print(f"{many(evicted, 'eviction')} for {started / 100:.0f} started cards: {each:.2f} each")


def _gathered(story: Sequence[Happening]) -> list[Happening]:
    """Write what one does within a quarter of a second on one line."""
    lines: list[tuple[Happening, list[str]]] = []
    for one in story:
        if lines and lines[-1][0].who == one.who and one.time - lines[-1][0].time <= _TOGETHER:
            lines[-1][1].append(one.what)
        else:
            lines.append((one, [one.what]))
    return [attrs.evolve(first, what=_sentence(whats)) for first, whats in lines]


def _sentence(whats: Sequence[str]) -> str:
    """Say things that are alike once: ``binds a to n; binds b to n`` as ``binds a, b to n``."""
    alike: dict[tuple[str, str], list[str]] = {}
    for what in dict.fromkeys(whats):
        verb, _, rest = what.partition(" ")
        name, _, end = rest.partition(" ")
        if verb in ("binds", "evicts"):
            alike.setdefault((verb, end), []).append(name)
        else:
            alike.setdefault((what, ""), [])
    phrases = [" ".join(filter(None, (verb, ", ".join(names), end))) for (verb, end), names in alike.items()]
    # That something was written down first goes without saying where it is done on the same line.
    acts = [one for one in phrases if one != _JOURNAL]
    return "; ".join(acts or phrases)
