"""Which logical CPU sits on which core, NUMA node and socket; sets of CPUs as integers.

A :data:`CPUSet` is a plain ``int`` whose bit *i* says that logical CPU *i* is a member: immutable, hashable,
and every set operation is one machine-word loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

from koordcore._record import record
from koordcore.errors import ManifestError, ModelError

CPUSet: TypeAlias = int
"""Set of logical CPUs as a bit mask."""

NO_CPUS: Final[CPUSet] = 0

_MAX_RANGE_END: Final = 4096
"""Upstream's bound on the end of a range; a single number has none."""

_MAX_CPU: Final = 1 << 20
"""A set is as long as its highest member, so that one absurd number must not cost megabytes."""


def cpuset_of(ids: Iterable[int]) -> CPUSet:
    """Make a set of CPU ids.

    Examples
    --------
    >>> cpuset_of([0, 1, 3])
    11
    """
    mask = 0
    for cpu in ids:
        mask |= 1 << cpu
    return mask


def lowest_cpus(cpus: CPUSet, count: int) -> CPUSet:
    """Keep the ``count`` members with the smallest ids, or all where there are fewer."""
    surplus = cpus.bit_count() - count
    if surplus <= 0:
        return cpus
    if count < surplus:
        left = cpus
        for _ in range(count):
            left &= left - 1
        return cpus ^ left
    for _ in range(surplus):
        cpus ^= 1 << (cpus.bit_length() - 1)
    return cpus


def parse_cpulist(text: str) -> CPUSet:
    """Read a CPU list such as ``0-3,8``.

    The empty text is the empty set; a reversed range such as ``5-2`` holds nothing, as upstream reads it.

    Raises
    ------
    ManifestError
        For blanks, empty items, anything that is no decimal number, a second dash, a range that ends above
        4096, or a CPU beyond 2**20.
    """
    mask = 0
    if not text:
        return mask
    for item in text.split(","):
        first, dash, last = item.partition("-")
        low = _cpu_id(first, text)
        high = _cpu_id(last, text) if dash else low
        if dash and high > _MAX_RANGE_END:
            raise ManifestError.at(
                "", f'CPU list "{_short(text)}": a range may end at {_MAX_RANGE_END} at most'
            )
        if low <= high:
            mask |= (1 << (high + 1)) - (1 << low)
    return mask


def _cpu_id(digits: str, text: str) -> int:
    if not (digits.isascii() and digits.isdigit()):
        raise ManifestError.at("", f'CPU list "{_short(text)}": expected a number, got "{_short(digits)}"')
    if len(digits) > 18 or int(digits) > _MAX_CPU:
        raise ManifestError.at("", f'CPU list "{_short(text)}": CPU {_short(digits)} is out of range')
    return int(digits)


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:40] + "…"


def format_cpulist(cpus: CPUSet) -> str:
    """Write a set in canonical form: ascending, runs merged.

    Raises
    ------
    ModelError
        For a set without an end, such as the complement of one.

    Examples
    --------
    >>> format_cpulist(parse_cpulist("8,2,0-1,3"))
    '0-3,8'
    """
    if cpus < 0:
        raise ModelError("a set of CPUs without an end cannot be written")
    parts = []
    while cpus:
        start = (cpus & -cpus).bit_length() - 1
        run = cpus >> start
        length = (~run & (run + 1)).bit_length() - 1
        parts.append(str(start) if length == 1 else f"{start}-{start + length - 1}")
        cpus &= -1 << (start + length)
    return ",".join(parts)


class CPUInfo(NamedTuple):
    """Where one logical CPU sits.

    ``core`` is the core's identity on the whole node, ``socket << 16 | reported core id``.
    """

    cpu: int
    core: int
    numa: int
    socket: int


class CPUGroup(NamedTuple):
    """A core, NUMA node or socket: its id, its CPUs, and the socket of its first CPU."""

    id: int
    cpus: CPUSet
    socket: int


@record(repr=False, cache_hash=True)
class CPUTopology:
    """The CPUs of one node.

    Parameters
    ----------
    cpus
        One entry per logical CPU, by ascending id.
    num_cores, num_nodes, num_sockets
        Counted as upstream counts them while building: sockets, pairs of socket and NUMA node, triples of
        socket, NUMA node and reported core id. A core id that is reported on two NUMA nodes of one socket is
        therefore two cores in number and one by identity, and never looks complete.

    Notes
    -----
    Build one with :meth:`of`. Upstream: ``nodenumaresource/cpu_topology.go``.
    """

    cpus: tuple[CPUInfo, ...]
    num_cores: int
    num_nodes: int
    num_sockets: int

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, int, int]]) -> CPUTopology:
        """Build from ``(cpu, reported core, NUMA node, socket)`` rows; the last row of a CPU wins."""
        found: dict[int, CPUInfo] = {}
        cores, nodes, sockets = set(), set(), set()
        for cpu, core, numa, socket in rows:
            found[cpu] = CPUInfo(cpu, socket << 16 | core, numa, socket)
            sockets.add(socket)
            nodes.add((socket, numa))
            cores.add((socket, numa, core))
        return cls(tuple(found[cpu] for cpu in sorted(found)), len(cores), len(nodes), len(sockets))

    def __repr__(self) -> str:
        shape = f"{len(self.cpus)} cpus, {self.num_cores} cores"
        return f"CPUTopology({shape}, {self.num_nodes} NUMA nodes, {self.num_sockets} sockets)"

    @property
    def num_cpus(self) -> int:
        """Logical CPUs of the node."""
        return len(self.cpus)

    @property
    def valid(self) -> bool:
        """Tell whether CPUs can be handed out at all: every count is positive, and no core lacks CPUs.

        CPUs that share an id, in a topology that is broken, may leave more cores than CPUs.
        """
        return bool(self.cpus_per_core and self.num_nodes and self.num_sockets)

    @cached_property
    def cpus_per_core(self) -> int:
        """Average CPUs of a core, rounded down; 0 without cores."""
        return len(self.cpus) // self.num_cores if self.num_cores else 0

    @cached_property
    def cpus_per_node(self) -> int:
        """Average CPUs of a NUMA node, rounded down; 0 without NUMA nodes."""
        return len(self.cpus) // self.num_nodes if self.num_nodes else 0

    @cached_property
    def cpus_per_socket(self) -> int:
        """Average CPUs of a socket, rounded down; 0 without sockets."""
        return len(self.cpus) // self.num_sockets if self.num_sockets else 0

    @cached_property
    def all_cpus(self) -> CPUSet:
        """Every CPU of the node."""
        return cpuset_of(info.cpu for info in self.cpus)

    @cached_property
    def cores(self) -> tuple[CPUGroup, ...]:
        """Cores by ascending id."""
        return self._groups(lambda info: info.core)

    @cached_property
    def nodes(self) -> tuple[CPUGroup, ...]:
        """NUMA nodes by ascending id."""
        return self._groups(lambda info: info.numa)

    @cached_property
    def sockets(self) -> tuple[CPUGroup, ...]:
        """Sockets by ascending id."""
        return self._groups(lambda info: info.socket)

    @cached_property
    def core_masks(self) -> tuple[CPUSet, ...]:
        """The CPUs of each core, in the order of :attr:`cores`."""
        return tuple(core.cpus for core in self.cores)

    @cached_property
    def cores_of_node(self) -> dict[int, tuple[CPUGroup, ...]]:
        """NUMA node id to the cores that touch it, by ascending core id."""
        return {node.id: tuple(core for core in self.cores if core.cpus & node.cpus) for node in self.nodes}

    @cached_property
    def home_cores(self) -> dict[int, tuple[CPUGroup, ...]]:
        """NUMA node id to the cores whose first CPU is there, by ascending core id: each core once."""
        first = {info.core: info.numa for info in reversed(self.cpus)}
        return {
            node.id: tuple(core for core in self.cores if first[core.id] == node.id) for node in self.nodes
        }

    @cached_property
    def cores_of_socket(self) -> dict[int, tuple[CPUGroup, ...]]:
        """Socket id to its cores, by ascending core id."""
        return {
            socket.id: tuple(core for core in self.cores if core.cpus & socket.cpus)
            for socket in self.sockets
        }

    @cached_property
    def node_masks(self) -> dict[int, CPUSet]:
        """NUMA node id to its CPUs."""
        return {node.id: node.cpus for node in self.nodes}

    def on_node(self, numa: int) -> CPUSet:
        """CPUs of one NUMA node; none for an unknown id."""
        return self.node_masks.get(numa, NO_CPUS)

    def complete_cores(self, available: CPUSet) -> CPUSet:
        """CPUs of the cores that offer exactly ``cpus_per_core`` of the available ones."""
        wanted = self.cpus_per_core
        found = 0
        for mask in self.core_masks:
            offered = mask & available
            if offered.bit_count() == wanted:
                found |= offered
        return found

    def first_of_each_core(self, available: CPUSet) -> CPUSet:
        """Lowest available CPU of each core."""
        found = 0
        for mask in self.core_masks:
            offered = mask & available
            found |= offered & -offered
        return found

    def count_cores(self, cpus: CPUSet) -> int:
        """How many cores a set touches."""
        return sum(1 for mask in self.core_masks if mask & cpus)

    def cores_around(self, cpus: CPUSet) -> CPUSet:
        """All CPUs of the cores that some CPUs lie on."""
        found = NO_CPUS
        for core in self.core_masks:
            if core & cpus:
                found |= core
        return found

    def _groups(self, key: Callable[[CPUInfo], int]) -> tuple[CPUGroup, ...]:
        masks: dict[int, int] = {}
        sockets: dict[int, int] = {}
        for info in self.cpus:
            group = key(info)
            masks[group] = masks.get(group, 0) | 1 << info.cpu
            sockets.setdefault(group, info.socket)
        return tuple(CPUGroup(group, masks[group], sockets[group]) for group in sorted(masks))

    def __iter__(self) -> Iterator[CPUInfo]:
        return iter(self.cpus)


NO_TOPOLOGY: Final = CPUTopology((), 0, 0, 0)
"""What a node without a readable ``cpu-topology`` annotation has."""
