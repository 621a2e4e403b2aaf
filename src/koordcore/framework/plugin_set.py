"""The plugins of a policy, and the classes of pods that want the same of all of them."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final, cast

from koordcore.errors import ManifestError
from koordcore.framework.class_sources import source_of
from koordcore.framework.evaluator import Refusal
from koordcore.framework.extended_resources import served_by_classes
from koordcore.framework.left_parts import LeftParts
from koordcore.framework.node_moves import NodeMoves
from koordcore.framework.node_states import StateTables
from koordcore.framework.nominated import NominatedPods
from koordcore.framework.plugin import JointPlugin, Plugin
from koordcore.framework.readable import Readable
from koordcore.framework.registry import Made, make_plugins, plugin_kinds
from koordcore.framework.requests import Marks, RequestKey, RequestReader, marks_in, sleeps
from koordcore.framework.sampling import NodeSample, nodes_to_find
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.framework.state_scores import StateGroups
from koordcore.framework.static_result import Part, StaticResults
from koordcore.framework.unmodelled import refuse_unmodelled
from koordcore.framework.workspace import Workspace
from koordcore.model.claims import DeviceClass
from koordcore.model.decisions import Unschedulable
from koordcore.model.mappings import EMPTY
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import PluginSetting, Policy
from koordcore.snapshot.following import ClusterChanges

_NOTES: Final = ("placed", "removed", "promised", "withdrawn")
_MOST_KINDS: Final = 4096
"""Kinds of a class that are kept; then all of them are forgotten."""


def _takes_note(kind: type[Plugin]) -> bool:
    """Tell whether plugins of a class look who comes and leaves."""
    return any(getattr(kind, name) is not getattr(Plugin, name) for name in _NOTES)


def _decisive(refusals: Iterable[Refusal]) -> Refusal | None:
    """Pick the refusal that counts: the first that no eviction can mend, else the last."""
    found = None
    for found in refusals:
        if not found.resolvable:
            return found
    return found


class PluginSet:
    """The plugins of a policy over one workspace, and the pod classes seen so far.

    Of a policy with several profiles it is the first one; each of the others has a set of its own, which
    answers about the pods of its schedulers. All of them are told of every pod that comes and leaves.

    Attributes
    ----------
    name, percentage
        Those of the profile: what it is called, and the share of the nodes after which a search may stop.
    everyone
        The plugins of all profiles with their settings, each once.
    ranking
        Those of them that may say that a pod counts for more than its priority.

    Raises
    ------
    ModelError
        When the policy names a plugin that does not exist.
    """

    def __init__(self, workspace: Workspace, policy: Policy, known: Made | None = None) -> None:
        self.workspace = workspace
        self._policy, self.name, self.percentage = policy, policy.name, policy.percentage_of_nodes
        self._known: Made = {} if known is None else known
        # Classes of earlier calls hold this list, and plugins may be made anew between calls.
        self._remarking: list[Plugin] = []
        # Who could not go on where nodes joined or left.
        self._left: list[Hashable] = []
        self._sleeping: list[Plugin] = []
        made = self._make_own()
        self._others = {profile: PluginSet(workspace, profile, self._known) for profile in policy.others}
        self._assemble(made)
        self._forget()
        self._begin()

    def _make_own(self) -> list[tuple[Plugin, PluginSetting]]:
        before = len(self._known)  # who is new comes last
        made = list(make_plugins(self.workspace, self._policy, self._known))
        snapshot = self.workspace.snapshot
        kinds: list[type[Plugin]] = [Readable, *plugin_kinds(self._policy)]
        marks = frozenset(one for kind in kinds for one in kind.needs or () if isinstance(one, str))
        carried = marks_in(snapshot, marks)
        for plugin in islice(self._known.values(), before, None):
            plugin.asleep = sleeps(plugin, snapshot, carried)
        return made

    def wake(self, pod: Pod) -> None:
        """Wake the plugins that a pod concerns by its marks."""
        if self._sleeping and (marks := self._marks.on(pod)):
            self._wake(marks)

    def _wake(self, found: Collection[object]) -> None:
        needed = cast("list[frozenset[object]]", [one.needs for one in self._sleeping])
        woken = [
            one for one, needs in zip(self._sleeping, needed, strict=True) if not needs.isdisjoint(found)
        ]
        for plugin in woken:
            plugin.asleep = False
        if woken:
            self._let_sleep(one for one in self._sleeping if one.asleep)

    def _let_sleep(self, plugins: Iterable[Plugin]) -> None:
        """Leave some plugins asleep, and look for no marks but those that would wake one of them."""
        self._sleeping = list(plugins)
        self._marks = Marks(
            frozenset(mark for one in self._sleeping for mark in one.needs or () if isinstance(mark, str))
        )

    def _assemble(self, made: list[tuple[Plugin, PluginSetting]]) -> None:
        """Sort the plugins by what they are asked for."""
        workspace = self.workspace
        self._let_sleep(one for one in self._known.values() if one.asleep)
        self.plugins = [plugin for plugin, _ in made]
        self.settings = [setting for _, setting in made]
        # An entry wants what the joint plugin behind it was asked already.
        self._asking = [one for one in self.plugins if one.joint is None]
        self._requests = RequestReader(self._asking, self.wake)
        self._claims = any(one.serves_claims and setting.filters for one, setting in made)
        if self._claims:
            served = frozenset(served_by_classes(workspace.snapshot))
            for one in self.plugins:
                one.served = served
        own = {id(plugin): (plugin, setting) for plugin, setting in made}
        for other in self._others.values():
            own = {id(plugin): (plugin, setting) for plugin, setting in other.everyone} | own
        self.everyone: list[tuple[Plugin, PluginSetting]] = list(own.values())
        self._placing = [one for one, _ in self.everyone if type(one).placed is not Plugin.placed]
        # Who takes note of pods that only count as if they ran.
        self.promising = [one for one, _ in self.everyone if _takes_note(type(one))]
        self._preferring = [one for one in self.plugins if one.prefers]
        self._remarking[:] = [one for one in self.plugins if type(one).remarks is not Plugin.remarks]
        # Who matches the pods of a call all together.
        overriding = (one for one, _ in self.everyone if type(one).matches is not Plugin.matches)
        self.matching = [one for one in overriding if one.matches]
        self.ranking = [one for one, _ in self.everyone if type(one).outranks is not Plugin.outranks]
        # Who knows pods that have to be on one node.
        self.tying = [one for one in self.plugins if type(one).tied is not Plugin.tied]
        self._removing = [one for one, _ in self.everyone if type(one).removed is not Plugin.removed]
        # The plugin whose requests are the amounts that a pod asks for.
        numbers = [number for number, one in enumerate(self._asking) if one.amounts]
        self._fit = numbers[0] if numbers else None
        self._refusing = frozenset(number for number, one in enumerate(self._asking) if one.only_refuses)

    def _begin(self) -> None:
        """Begin a call: who waits is new."""
        self.refused: dict[tuple[SchedulingClass, int | PodKey | None], tuple[int, Unschedulable]] = {}
        """How each class was last refused in this call, by who counted, and how long the journal was then."""
        workspace = self.workspace
        self.sample: NodeSample | None = None
        """Which nodes are looked at; all of them, where there is none."""
        number = len(workspace.layout.names)
        shares = [one.percentage_of_nodes for one in self._policy.profiles]
        if any(share < 100 and nodes_to_find(number, share) < number for share in shares):
            self.sample = NodeSample(number)
        self.nominated = NominatedPods(workspace, self, workspace.snapshot.pending)

    def move(self, moves: NodeMoves) -> None:
        """Let nodes join and leave, before :meth:`follow`; who cannot go on is told no more."""
        self._left = [key for key, plugin in self._known.items() if not plugin.moved(moves)]
        gone = [self._known[key] for key in self._left]
        for one in (*self._others.values(), self):
            one._forget_rows(gone)  # noqa: SLF001  # a set of the same policy

    def follow(self, changes: ClusterChanges, *, moved: bool = False) -> None:
        """Go on in another call, on the workspace as it is now; who cannot follow is made anew.

        The plugins have been told who came and who left. Classes go on as well, but for those in which a
        plugin has a part that was made anew, or whose evaluators read what nodes say otherwise now.
        """
        left, self._left = self._left, []
        self._wake(changes.records)
        changed = bool(changes.nodes or changes.records or moved)
        asked = (
            (key, plugin)
            for key, plugin in self._known.items()
            if not plugin.asleep
            and (changed or (plugin.follows_pods and type(plugin).follow is not Plugin.follow))
            and key not in left
        )
        stale = [key for key, plugin in asked if not plugin.follow(changes)]
        gone = [self._known.pop(key) for key in (*left, *stale)]
        void = gone
        if changes.nodes and not moved:  # else evaluators are made anew in any case
            void = [*gone, *(plugin for plugin in self._known.values() if plugin.rereads(changes))]
        # What nodes are alike in hangs on what static plugins say of them.
        whole = DeviceClass in changes.records
        if whole:
            self.workspace.drop(StateTables)
        # Each profile before the first one, which is told of what all of them have.
        sets = (*self._others.values(), self)
        for one in sets:
            if whole:
                one._forget()  # noqa: SLF001  # a set of the same policy
            elif void:
                one._forget_parts(void)  # noqa: SLF001
            if whole or gone:
                one._assemble(one._make_own())  # noqa: SLF001
            one._begin()  # noqa: SLF001
        if void and self.workspace.made(StateTables):
            self.workspace.once(StateTables).keep(chain.from_iterable(one._groups.tables() for one in sets))  # noqa: SLF001

    def _forget(self) -> None:
        """Forget every class."""
        self._classes: dict[RequestKey, SchedulingClass] = {}
        self._last: tuple[RequestKey, SchedulingClass] | None = None
        self._sought: set[RequestKey] = set()
        self._static = StaticResults(self.workspace)
        self._groups = StateGroups(self.workspace)
        # A class keeps some 40 bytes a node and plugin; the oldest go when that becomes too much.
        self._most = max(16, 2**28 // (512 * max(1, len(self.workspace.layout.names))))
        self._left_parts = LeftParts(self._most)

    def _forget_rows(self, gone: Sequence[Plugin]) -> None:
        """Forget what is kept by row, and the classes in which some plugins have a part."""
        if gone:
            self._forget_parts(gone)
            self._placing = [one for one in self._placing if one not in gone]
            self._removing = [one for one in self._removing if one not in gone]
        self._last = None
        self._left_parts = LeftParts(self._most)
        self._static = StaticResults(self.workspace)
        self._groups = StateGroups(self.workspace)

    def _forget_parts(self, plugins: Sequence[Plugin]) -> None:
        """Forget the classes in which some plugins have a part."""
        self._last = None
        apart = any(plugin.only_refuses for plugin in plugins)
        self._left_parts.void(plugins)
        for key, one in list(self._classes.items()):
            if apart:
                one.kinds.clear()
            if any(part.owner in plugins for part in one.parts):
                self._classes.pop(key).retire()
                if one.era == self.workspace.era:  # else its rows are those of before nodes joined or left
                    self._left_parts.leave(key, one.parts)
        self._groups.keep(self._static.forget(plugins))

    def of(self, pod: Pod) -> PluginSet:
        """Give the set of the profile that decides a pod: that of its scheduler, else the first one."""
        if not self._others:
            return self
        profile = self._policy.profile_of(pod.scheduler_name)
        return self if profile is None else self._others.get(profile, self)

    def sets_of(self, pods: Iterable[Pod]) -> list[PluginSet]:
        """Give the sets of all profiles that decide some pods, each once."""
        if not self._others:
            return [self]
        return list({id(own): own for own in map(self.of, pods)}.values()) or [self]

    def deciding(self, pods: Iterable[Pod]) -> list[Plugin]:
        """Give the plugins that every one of some pods is decided by: those that all their profiles have."""
        first, *others = self.sets_of(pods)
        if not others:
            return first.plugins
        return [one for one in first.plugins if all(one in other.plugins for other in others)]

    def key_of(self, pod: Pod) -> RequestKey | Refusal:
        """Give what tells the classes of pods apart: what the pod wants of each plugin of its profile."""
        own = self.of(pod)
        if own is not self:
            key = own.key_of(pod)
            return key if isinstance(key, Refusal) else (own.name, *key)
        asks = pod.resource_claims or pod.scheduling_group is not None or pod.deleted is not None
        if asks and (unmodelled := refuse_unmodelled(pod, claims=self._claims)) is not None:
            return unmodelled
        try:
            return self._requests.read(pod)
        except ManifestError as error:
            # What one pod says wrongly hurts that pod alone.
            return Refusal(str(error))

    def refusals(self, pod: Pod) -> Iterator[tuple[str, Refusal]]:
        """Give every refusal that needs no node, with the plugin's name, in the order of PreFilter.

        What no plugin models comes first, without a name.
        """
        own = self.of(pod)
        if own is not self:
            yield from own.refusals(pod)
            return
        if (unmodelled := refuse_unmodelled(pod, claims=self._claims)) is not None:
            yield "", unmodelled
        pairs = zip(self.plugins, self.settings, strict=True)
        for plugin, setting in sorted(pairs, key=lambda pair: pair[0].refuses_at):
            if isinstance(plugin, JointPlugin):
                continue
            try:
                request = plugin.request_of(pod)
            except ManifestError as error:
                request = Refusal(str(error))
            if isinstance(request, Refusal):
                yield plugin.name, request
            elif request is not None and setting.filters:
                refusal = plugin.evaluator(pod, request).refuse()
                if refusal is not None:
                    yield plugin.name, refusal

    def class_of(self, pod: Pod) -> SchedulingClass | Refusal:
        """Give the class of a pod, or why no node needs to be asked."""
        own = self.of(pod)
        if own is not self:
            return own.class_of(pod)
        key = self.key_of(pod)
        if isinstance(key, Refusal):
            return _decisive(refusal for _, refusal in self.refusals(pod)) or key
        last = self._last
        if last is not None and key is last[0]:  # to hash what equal pods want costs more than a refusal
            return last[1]
        common = key
        if self._refusing and any(key[number] is not None for number in self._refusing):
            common = tuple(None if number in self._refusing else one for number, one in enumerate(key))
        found = self._class_at(common, pod)
        if common is not key:
            found = self._kind_of(found, pod, key)
        self._last = key, found
        return found

    def _class_at(self, key: RequestKey, pod: Pod) -> SchedulingClass:
        """Give the class of a key, made for a pod where there is none."""
        found = self._classes.get(key)
        if found is not None and found.era != self.workspace.era:
            self._classes[key] = found = self._make(pod, key, found)
        if found is None:
            made = self._make(pod, key, going_on=self._left_parts.take(key))
            if len(self._classes) >= self._most:
                self._classes.pop(next(iter(self._classes))).retire()
            found = self._classes[key] = made
        return found

    def _plain_of(self, pod: Pod, key: RequestKey, opening: Plugin) -> SchedulingClass | None:
        """Give the class of pods without a source who want the same else; ``None`` for the first to ask."""
        place = self._asking.index(opening)
        plain = (*key[:place], None, *key[place + 1 :])
        if plain in self._classes:
            self._classes[plain] = self._classes.pop(plain)  # as if it had just been made: many go by it
        elif plain not in self._sought:
            if len(self._sought) >= _MOST_KINDS:
                self._sought.clear()
            self._sought.add(plain)
            return None
        return self._class_at(plain, pod)

    def _kind_of(self, common: SchedulingClass, pod: Pod, key: RequestKey) -> SchedulingClass:
        """Give the kind of a class whose pods some plugins may refuse before any node is looked at."""
        found = common.kinds.get(key)
        if found is None:
            parts = {id(part.plugin): part for part in common.parts}
            for number in self._refusing:
                if key[number] is not None:
                    plugin, request = self._asking[number], key[number]
                    place, evaluator = self.plugins.index(plugin), plugin.evaluator(pod, request)
                    parts[id(plugin)] = Part(plugin, self.settings[place], evaluator, (place, request))
            if len(common.kinds) >= _MOST_KINDS:
                common.kinds.clear()
            ordered = [parts[id(one)] for one in self.plugins if id(one) in parts]
            found = common.kinds[key] = common.kind(pod, ordered)
        return found

    def _make(
        self,
        pod: Pod,
        key: RequestKey,
        older: SchedulingClass | None = None,
        going_on: Mapping[Plugin, Part] = EMPTY,
    ) -> SchedulingClass:
        """Make the class of a key, of one from before nodes joined or left, or of parts of another."""
        if older is not None and older.resources == len(self.workspace.layout.resources):
            going_on = {part.plugin: part for part in older.parts if part.moved()}
            on = older.gone_on(going_on, self._static, self._groups)
            if on is not None:
                return on
        made_of: list[Part] = []
        asked = iter(key)
        for number, plugin in enumerate(self.plugins):
            if plugin.joint is None:
                request = next(asked)
            else:
                request = plugin.joint.part(plugin.name, key[self._asking.index(plugin.joint)])
            if request is None:
                continue
            # What does not depend on the pods that are bound is shared by all classes that ask the same.
            part = (going_on and going_on.get(plugin)) or self._static.part((number, request))
            if part is None:
                evaluator = plugin.evaluator(pod, request)
                part = Part(plugin, self.settings[number], evaluator, (number, request))
            made_of.append(part)
        source, opening = source_of(made_of)
        found = self._static.of(made_of, None if older is None else older.static)
        amounts: Any = None if self._fit is None else key[self._fit]
        change = None if amounts is None else self.workspace.change_of(*amounts)
        made = SchedulingClass(
            self.workspace, pod, made_of, found, change, self._groups, self._remarking, source
        )
        if opening is not None:
            plain = self._plain_of(pod, key, opening)
            if plain is not None:
                made.go_by(plain)
        if older is not None:
            made.take_over(older)
        return made

    @property
    def prefers(self) -> bool:
        """Some plugin of this very profile may know of nodes to try first."""
        return bool(self._preferring)

    def preferred(self, pod: Pod) -> Sequence[int]:
        """Give rows of nodes that some plugin wants tried first."""
        own = self.of(pod)
        if own is not self:
            return own.preferred(pod)
        if not self._preferring:
            return ()
        row_of = self.workspace.layout.row_of
        names = [name for plugin in self._preferring if not plugin.asleep for name in plugin.preferred(pod)]
        return [row_of[name] for name in names if name in row_of]

    def ask_first(self, plugin: Plugin) -> None:
        """Ask a plugin for nodes to try first that did not know of any when it was made."""
        for one in (self, *self._others.values()):
            if any(own is plugin for own in one.plugins):
                one._preferring.append(plugin)  # noqa: SLF001  # a set of the same policy

    def placed(self, pod: Pod, row: int, *, read: bool = False) -> None:
        """Tell every plugin that keeps a ledger of a bound pod; one that was ``read`` wakes nobody now."""
        if not read:
            self.wake(pod)
        for plugin in self._placing:
            if not plugin.asleep:
                plugin.placed(pod, row)

    def removed(self, pod: Pod, row: int) -> None:
        """Tell every plugin that keeps a ledger of a pod taken off its node."""
        for plugin in self._removing:
            if not plugin.asleep:
                plugin.removed(pod, row)
