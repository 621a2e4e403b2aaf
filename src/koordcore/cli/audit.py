"""``koordcore audit --loops``: whether rules can evict for ever."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import Any, Final

import attrs

from koordcore.cli.inputs import read_json
from koordcore.cli.output import add_record_output, for_programs, print_record
from koordcore.cli.policies import KNOWN_POLICIES, policy_called
from koordcore.cli.progress import add_quiet, working
from koordcore.cli.tables import say
from koordcore.cli.words import many, near
from koordcore.errors import ModelError
from koordcore.model.policy import Policy
from koordcore.model.quotas import QuotaPolicy
from koordcore.simulate.loop_rules import KNOWN_RULES, Defragments, Kept, LoopRules, Preempts, Reclaims
from koordcore.simulate.loop_search import loop_story, search_loops

_FIELDS: Final = tuple(one.name for one in attrs.fields(LoopRules))
_WORDS: Final = {"preemption": Preempts, "reclaim": Reclaims, "kept": Kept, "defragment": Defragments}
"""Rules that say one of several words; all others are true or false."""
_RULES: Final = "\n  ".join(textwrap.wrap(", ".join(KNOWN_RULES), 76, break_on_hyphens=False))
EPILOG: Final = f"""\
POLICY is one of
  {_RULES};
or a JSON file with fields of these rules; or what --policy takes elsewhere.

fields of rules:
  preemption  {", ".join(Preempts)}
  promises    who goes beyond his quota's min preempts nobody within his
  partly      nor who is within it in part
  reclaim     {", ".join(Reclaims)}
  kept        against whom room is kept that was made for somebody:
              {", ".join(Kept)}
  defragment  who makes way for others: {", ".join(Defragments)}
  revoke, spread, pack, recreated
  graceful    evicted pods hold their room until they end

examples:
  koordcore audit --loops koordcore
  koordcore audit --loops scheduler-config.yaml --nodes 1
  koordcore audit --loops volcano-4947 --set kept=less-important-and-borrowers
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = (
        "Search all small worlds for one in which the rules that move pods go round for ever, and tell the "
        "shortest circle as a story."
    )
    parser.epilog = EPILOG
    parser.add_argument("--loops", required=True, metavar="POLICY", help="the rules")
    parser.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="another value of a rule; repeat it"
    )
    parser.add_argument(
        "--pods",
        type=int,
        default=2,
        choices=(1, 2, 3, 4),
        help="pods of a world (2; 3 takes half a minute, 4 ten minutes and more)",
    )
    parser.add_argument("--nodes", type=int, default=2, choices=(1, 2), help="nodes of a world (2)")
    parser.add_argument(
        "--trees", action="store_true", help="worlds with a quota above others, instead of side by side"
    )
    add_quiet(parser)
    add_record_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Search and tell; 1 where there is a loop."""
    rules, policy = _rules(arguments)
    for text in arguments.set:
        name, _, value = text.partition("=")
        rules = _made({**attrs.asdict(rules), name: _value(value)}, f"--set {text}")
    with working("searching small worlds") as step:
        loop, worlds = search_loops(
            rules, pods=arguments.pods, nodes=arguments.nodes, trees=arguments.trees, progress=step
        )
    if for_programs(arguments):
        story = [] if loop is None else loop_story(loop)
        print_record(
            arguments,
            {
                "rules": attrs.asdict(rules),
                "worlds": worlds,
                "loop": loop is not None,
                "story": story,
                "unsearched": _unsearched(policy, arguments.trees),
            },
        )
        return 0 if loop is None else 1
    for name, value in attrs.asdict(rules).items():
        print(f"  {name:<11} {str(value).lower()}")
    size = f"up to {many(arguments.pods, 'pod')}, {many(arguments.nodes, 'node')} and 2 quotas"
    size += ", one above others" if arguments.trees else ""
    if loop is None:
        say(f"no loop in {many(worlds, 'world')} of {size}, nor where a rule that moves pods is off")
        for line in _unsearched(policy, arguments.trees):
            print(*textwrap.wrap(line, 78, subsequent_indent="  "), sep="\n")
        return 0
    print(f"a loop, in the {worlds}. world of {size}:")
    for line in loop_story(loop):
        print(*textwrap.wrap(line, 78, initial_indent="  ", subsequent_indent="    "), sep="\n")
    return 1


def _unsearched(policy: Policy | None, trees: bool) -> list[str]:
    """Say what the worlds that were searched leave out."""
    how = "a quota above others" if trees else "quotas side by side"
    found = [f"searched: one resource, {how}; docs/loops.md says what follows for others"]
    if policy is None:
        return found
    setting = policy.plugin("ElasticQuota")
    if setting is None:
        return found
    args = setting.args if isinstance(setting.args, QuotaPolicy) else QuotaPolicy()
    if args.enable_runtime_quota:
        found.append("not searched: limits that are a share of what others leave (enableRuntimeQuota)")
    if args.enable_check_parent_quota and not trees:
        found.append("not searched: parents whose max refuses pods (enableCheckParentQuota; --trees)")
    return found


def _rules(arguments: argparse.Namespace) -> tuple[LoopRules, Policy | None]:
    """Give the rules that were asked for, and the policy that they were read from."""
    asked: str = arguments.loops
    if asked in KNOWN_RULES:
        return KNOWN_RULES[asked], None
    if asked.endswith(".json"):
        written = read_json("--loops", asked)
        if isinstance(written, dict) and "kind" not in written:
            return _made(written, asked), None
    if not Path(asked).exists() and asked not in KNOWN_POLICIES:
        known = (*KNOWN_RULES, *KNOWN_POLICIES)
        hint = near(asked, known) or f"; there are {', '.join(known)}"
        raise ModelError(f"--loops: no rules {asked}{hint}")
    policy = policy_called(asked, quiet=arguments.quiet, option="--loops")
    return rules_of(policy), policy


def rules_of(policy: Policy) -> LoopRules:
    """Give the rules by which koordcore moves pods under a policy."""
    setting = policy.plugin("ElasticQuota")
    if setting is None:
        return LoopRules(reclaim=Reclaims.NOBODY, revoke=False)
    args = setting.args if isinstance(setting.args, QuotaPolicy) else QuotaPolicy()
    return LoopRules(revoke=args.monitor_all_quotas)


def _made(fields: dict[str, Any], where: str) -> LoopRules:
    unknown = sorted(fields.keys() - set(_FIELDS))
    if unknown:
        raise ModelError(f"{where}: no such rule: {', '.join(unknown)}; there are {', '.join(_FIELDS)}")
    for name, value in sorted(fields.items()):
        allowed: tuple[object, ...] = tuple(_WORDS.get(name, ()))
        if not (value in allowed if allowed else isinstance(value, bool)):
            words = f"one of {', '.join(map(str, allowed))}" if allowed else "true or false"
            raise ModelError(f"{where}: {name}: expected {words}, got {value!r}")
    return LoopRules(**fields)


def _value(text: str) -> Any:
    return {"true": True, "false": False}.get(text, text)
