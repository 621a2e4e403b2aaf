"""What ``koordcore explain`` shows: the answer in words, what would help, and every node's verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from koordcore.cli.finding import RESERVATION, Subject
from koordcore.cli.layout import Column, Table, Tone
from koordcore.cli.plan_tables import counted, cut, describe_requests
from koordcore.cli.tables import amount, say, show_ranked
from koordcore.explaining import Explanation, NodeVerdict
from koordcore.explaining.advice import Advice, Ahead
from koordcore.model.decisions import Bound, Shortfall
from koordcore.model.pods import Pod, PodKey
from koordcore.result import ScheduleResult

_NODES: Final = 4
_SHAPES: Final = 6


def say_head(pod: Pod, subject: Subject, advice: Advice | None) -> None:
    """Say who is asked about, where it is in the queue, and what it asks for."""
    if subject.kind == RESERVATION:
        say(f"{subject.name}: waits for a node, priority {pod.priority}")
    elif advice is None:
        say(f"{pod.key}: bound to {pod.node_name}, priority {pod.priority}, judged as if it were not there")
    else:
        more = f", a {subject.kind} of {len(subject.pods)}" if subject.kind != "pod" else ""
        turn = f"turn {advice.place} of {advice.queue}" if advice.place else "without a turn"
        say(f"{subject.name}: pending{more}, {turn} in the queue, priority {pod.priority}")
    shapes = Counter(map(describe_requests, subject.pods))
    for asked, number in shapes.most_common(_SHAPES):
        each = "each asks" if len(subject.pods) > 1 else "asks"
        each = f"{number} of them ask{'s' * (number == 1)}" if len(shapes) > 1 else each
        say(f"  {each} for {asked}")
    if len(shapes) > _SHAPES:
        say(f"  and {len(shapes) - _SHAPES} kinds more")
    if pod.gated:
        say(f"  gated by {', '.join(pod.gates)}")


def say_advice(advice: Advice, about: str = "") -> None:
    """Say what becomes of it, what can never be, and show what would help.

    Parameters
    ----------
    about
        The pod that this is about, where more are asked about.
    """
    for line in advice.summary:
        say(f"{about} {line}" if about else line)
    if advice.ahead:
        ahead = ", ".join(
            f"{one.pod} (priority {one.priority}) {_takes(one)} {one.node}" for one in advice.ahead[:_NODES]
        )
        more = f" and {len(advice.ahead) - _NODES} more theirs" if len(advice.ahead) > _NODES else ""
        say(f"fits now, but before it in the queue {ahead}{more}")
    for line in advice.never:
        say(f"never: {line}")
    say("")
    if not advice.remedies:
        return
    columns = (Column("HOW"), Column("WHAT", text=True))
    rows = [(str(one.kind), one.text) for one in advice.remedies]
    show_ranked(Table(title="What would help, each by itself", columns=columns, rows=rows))
    if advice.aside:
        tried = len(advice.attempts.refused)
        nearest = f"tried with the {tried} nearest" if tried else "tried with nobody"
        say(f"{nearest} before it in the queue; {advice.aside} more there get no node either")
    pastes = [one for one in advice.remedies if one.paste]
    for one in pastes:
        if "\n" in one.paste:
            say(f"to {one.kind}, in the pod's spec:")
            print("\n".join(f"  {line}" for line in one.paste.splitlines()))
        else:
            say(f"to {one.kind}: {one.paste}")
    if pastes:
        say("")


def members_table(result: ScheduleResult, members: Sequence[PodKey], most: int) -> Table:
    """Say of each member where it goes."""
    rows = []
    for key in members:
        decision = result.decision(key)
        gets = ", ".join(decision.notes) if isinstance(decision, Bound) else ""
        rows.append((str(key), decision.node if isinstance(decision, Bound) else "–", gets))
    columns = (
        Column("MEMBER", tone=Tone.NAME),
        Column("NODE", tone=Tone.GOOD),
        Column("GETS", text=True, rank=1),
    )
    return cut(Table(title="Members", columns=columns, rows=rows), most)


def _takes(one: Ahead) -> str:
    return "is nominated for" if one.nominated else "takes"


def explanation_tables(explanation: Explanation, most: int) -> list[Table]:
    """Give the nodes that fit, with their scores, those that do not, and those that were not looked at.

    Nodes that refuse alike are in one row.
    """
    if explanation.refusal or most <= 0:
        return []
    verdicts = tuple(explanation.verdicts)
    fitting = [one for one in verdicts if one.fits]
    refusing = [one for one in verdicts if one.looked_at and not one.fits]
    passed_over = [one.node for one in verdicts if not one.looked_at]
    tables = [_fitting_table(fitting, most)] if fitting else []
    tables += [_refusing_table(refusing, most)] if refusing else []
    return [*tables, _passed_over_table(passed_over)] if passed_over else tables


def _passed_over_table(nodes: list[str]) -> Table:
    number = f"{len(nodes)} node{'s' * (len(nodes) != 1)}"
    return Table(
        title=f"Not looked at: {number}, as enough others fit (percentageOfNodesToScore)",
        columns=(Column("NODES", text=True),),
        rows=[(counted(nodes, _NODES),)],
    )


def _fitting_table(fitting: list[NodeVerdict], most: int) -> Table:
    names = sorted({name for one in fitting for name in one.scores})
    columns = [Column("NODE", tone=Tone.GOOD), Column("TOTAL", number=True)]
    # Where there is no room for all, those stay that tell the nodes apart.
    telling = sorted(names, key=lambda name: (-_apart(fitting, name), name))
    columns += [Column(name, number=True, rank=telling.index(name) + 1) for name in names]
    rows = [
        (one.node, str(one.total), *(str(one.scores.get(name, 0)) for name in names))
        for one in fitting[:most]
    ]
    more = len(fitting) - len(rows)
    return Table(
        title=f"Fits on {len(fitting)} node{'s' * (len(fitting) != 1)} by itself; scores before weights",
        columns=tuple(columns),
        rows=rows,
        note=f"… and {more} more" if more else "",
    )


def _apart(fitting: list[NodeVerdict], plugin: str) -> int:
    scores = [one.scores.get(plugin, 0) for one in fitting]
    return max(scores) - min(scores)


def _refusing_table(refusing: list[NodeVerdict], most: int) -> Table:
    groups: dict[tuple[str, str], list[str]] = {}
    for one in refusing:
        groups.setdefault((_lacks(one), one.plugin), []).append(one.node)
    rows = [(counted(nodes, _NODES), str(len(nodes)), why, plugin) for (why, plugin), nodes in groups.items()]
    more = len(rows) - most
    return Table(
        title=f"Does not fit on {len(refusing)} node{'s' * (len(refusing) != 1)}",
        columns=(
            Column("NODES", tone=Tone.BAD, text=True),
            Column("NUMBER", number=True, rank=2),
            Column("BECAUSE", text=True),
            Column("REFUSED BY", rank=1),
        ),
        rows=rows[:most],
        note=f"… and {more} more rows; --nodes shows them" if more > 0 else "",
    )


def _lacks(verdict: NodeVerdict) -> str:
    lacks = once(verdict.shortfalls)
    reasons = [one.reason for one in lacks]
    short = any(one.lacking for one in lacks)
    return "; ".join(_lack(one, named=reasons.count(one.reason) > 1, short=short) for one in lacks)


def _lack(one: Shortfall, *, named: bool, short: bool) -> str:
    """Say what is short; by name where one reason is given for several things.

    What is there in full beside something that is short has no amounts: they would say that it fits.
    """
    reason = f"{one.reason}: {one.resource}" if one.resource and named else one.reason
    if not one.resource or not one.requested or (short and not one.lacking):
        return reason
    asked, free = amount(one.resource, one.requested), amount(one.resource, max(0, one.available))
    return f"{reason} ({asked} asked, {free} free)"


def once(shortfalls: Iterable[Shortfall]) -> list[Shortfall]:
    """Leave out a lack that an earlier one tells with the same amounts, as of cards and their devices."""
    kept: list[Shortfall] = []
    for one in shortfalls:
        same = (
            one.resource
            and one.requested == other.requested
            and one.available == other.available
            and one.resource.rpartition("/")[2] == other.resource.rpartition("/")[2]
            for other in kept
        )
        if one not in kept and not any(same):
            kept.append(one)
    return kept


def advice_record(advice: Advice) -> dict[str, Any]:
    """Give an answer for programs."""
    return {
        "members": list(map(str, advice.members)),
        "turn": advice.place,
        "queue": advice.queue,
        "settled": advice.settled,
        "summary": list(advice.summary),
        "ahead": [{"pod": str(one.pod), "node": one.node, "priority": one.priority} for one in advice.ahead],
        "never": list(advice.never),
        **({"leftAside": advice.aside} if advice.aside else {}),
        "remedies": [
            {
                "kind": str(one.kind),
                "text": one.text,
                "paste": one.paste,
                "pods": list(map(str, one.pods)),
                "until": one.until,
            }
            for one in advice.remedies
        ],
    }
