"""The page itself: one HTML file with its data, its style and its script, that asks nobody for anything."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from importlib.resources import files
from typing import Any, Final

from koordcore.descheduling.plans import Moving
from koordcore.errors import MissingExtraError
from koordcore.model.mappings import EMPTY
from koordcore.model.pods import PodKey, keyed
from koordcore.reporting.data import PageData
from koordcore.reporting.steps import moves_story, preemption_stories
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

_PARTS: Final = ("page.css", "draw.js", "views.js", "page.js")
_ESCAPED: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def report(
    source: ScheduleResult | ClusterSnapshot,
    *,
    plans: Mapping[str, Moving[Any]] = EMPTY,
    starts: Mapping[PodKey, datetime | None] | Mapping[str, datetime | None] = EMPTY,
    title: str = "koordcore",
    progress: Callable[[int, int], None] = lambda _, __: None,
) -> str:
    """Write a cluster and what was decided about it as one HTML page.

    It shows every card and who holds it, the queue with why each pod waits, gangs with their certificates,
    the quota trees with how each runtime came about, and preemptions and plans of moves step by step. The
    page is one file, and opening it sends no request anywhere. The same arguments give the same text.

    Parameters
    ----------
    source
        A result, drawn as the cluster stands after it; or a cluster by itself.
    plans
        Title to a plan of moves to be shown with it, such as :func:`koordcore.plan_room` gives.
    starts
        When pods of the queue are expected to start, by key or ``namespace/name``; ``None`` for one that has
        no start in sight. Others say nothing about it.
    title
        Of the page.
    progress
        Called after each node with how many are drawn, and of how many.

    Returns
    -------
    str
        HTML, to be written to a file as UTF-8.

    Raises
    ------
    MissingExtraError
        When jinja2 is not installed.

    Examples
    --------
    >>> from koordcore import ClusterSnapshot, Node, Pod, report, schedule
    >>> room = {"cpu": 64_000, "pods": 110, "nvidia.com/gpu": 8}
    >>> pods = [Pod(name=f"job-{number}", requests={"nvidia.com/gpu": 3}) for number in range(3)]
    >>> result = schedule(ClusterSnapshot(nodes=[Node(name="n0", allocatable=room)], pending=pods))
    >>> page = report(result)
    >>> page.startswith("<!doctype html>"), "http://" in page
    (True, False)
    """
    if not isinstance(source, ScheduleResult | ClusterSnapshot):
        raise TypeError(f"source: expected ScheduleResult or ClusterSnapshot, got {source!r:.60}")
    result = source if isinstance(source, ScheduleResult) else None
    snapshot = source.snapshot if isinstance(source, ScheduleResult) else source
    template = _template()
    stories = [
        *(preemption_stories(result) if result else ()),
        *(moves_story(name, one) for name, one in plans.items()),
    ]
    values = PageData(snapshot).values(result, stories, keyed(starts), progress)
    values["title"] = title
    values["policy"] = result.policy.name if result else ""
    from koordcore import __version__  # the package's own file: its names are read late

    page: str = template.render(
        title=title,
        version=__version__,
        facts=_facts(snapshot, result),
        data=_escaped(values),
        **{name.replace(".", "_"): _part(name) for name in _PARTS},
    )
    return page


def _template() -> Any:
    try:
        from jinja2 import Environment, StrictUndefined  # optional: only this page needs it
    except ImportError:
        raise MissingExtraError.for_extra("jinja2", "report", "a page to look at") from None
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string(_part("page.html"))


def _part(name: str) -> str:
    return (files("koordcore.reporting") / "parts" / name).read_text(encoding="utf-8")


def _escaped(values: Mapping[str, Any]) -> str:
    """Write JSON so that no text of a cluster can end the element that it stands in."""
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return "".join(_ESCAPED.get(one, one) for one in text) if any(one in text for one in _ESCAPED) else text


def _facts(snapshot: ClusterSnapshot, result: ScheduleResult | None) -> list[str]:
    """Say the most important counts, for readers without scripts."""
    facts = [
        f"{len(snapshot.nodes)} nodes",
        f"{sum(len(state.pods) for state in snapshot.nodes)} pods on them",
    ]
    if result is None:
        return [*facts, f"{len(snapshot.pending)} pods wait"]
    kinds = Counter(type(one).__name__ for one in result.decisions)
    return [*facts, *(f"{count} {kind}" for kind, count in sorted(kinds.items()))]
