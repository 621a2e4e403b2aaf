"""Calls whose pods a plugin matches all together, and whether that is better than going pod by pod."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from koordcore.framework.match_plan import MatchPlan
from koordcore.framework.plugin_set import PluginSet
from koordcore.model.certificates import Limits
from koordcore.model.decisions import Bound, Nominated, Waiting
from koordcore.model.pods import Pod
from koordcore.result import ScheduleResult


def match_queue(plugins: PluginSet, pods: Iterable[Pod], limits: Limits) -> MatchPlan:
    """Let the plugin that matches pods do so, for those whose profile has it.

    Parameters
    ----------
    plugins
        Of the call, with nobody placed yet.
    pods
        The queue.
    limits
        Budget and seed of the solver.
    """
    one = plugins.matching[0]
    own = [pod for pod in pods if any(known.matches for known in plugins.of(pod).plugins)]
    return one.match(own, plugins.class_of, limits)


def follow(plugins: PluginSet, plan: MatchPlan) -> None:
    """Let pods try first what is meant for them."""
    for plugin in plugins.matching:
        plugin.plan = plan.meant
        plugins.ask_first(plugin)


def better_of(sequential: ScheduleResult, joint: ScheduleResult, pods: Iterable[Pod]) -> ScheduleResult:
    """Take the joint result where it is better, and the other one where they are equal.

    Better has more pods placed, of the highest priority first, where they differ; then more that room is made
    for, by fewer evictions; then more on loans.
    """
    known = {pod.key: pod for pod in pods}
    priorities = sorted({pod.priority for pod in known.values()}, reverse=True)

    def rank(result: ScheduleResult) -> tuple[object, ...]:
        placed = [one for one in result.decisions if isinstance(one, Bound)]
        placed += [one.held for one in result.decisions if isinstance(one, Waiting) and one.held is not None]
        by_priority = Counter(known[one.pod].priority for one in placed)
        nominated = sum(isinstance(one, Nominated) for one in result.decisions)
        victims = sum(len(plan.victims) for plan in result.preemptions)
        using = sum(one.on_loan for one in placed)
        return ([by_priority[priority] for priority in priorities], nominated, -victims, using)

    return max(sequential, joint, key=rank)
