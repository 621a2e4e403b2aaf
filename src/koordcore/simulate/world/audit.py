"""The books of a scheduler beside the truth: what it would decide on, and what it keeps of the objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from koordcore.controlplane import RESOURCES, Mirror, complete
from koordcore.controlplane.requests import Object, key_of
from koordcore.manifests import snapshot_from_objects
from koordcore.simulate.world.seats import Seat
from koordcore.simulate.world.server import ApiServer
from koordcore.snapshot import ClusterSnapshot


def audit(server: ApiServer, seats: Sequence[Seat]) -> Iterator[str]:
    """Say whose books are not the truth, of those to whom all news has come."""
    truth: ClusterSnapshot | None = None
    objects: list[Object] = []
    for seat in seats:
        if not seat.caught_up() or seat.scheduler is None:
            continue
        books = seat.scheduler.books()
        if books is None:
            continue
        if truth is None:
            objects = [complete(kind, item) for kind, item in server.all_objects()]
            truth = snapshot_from_objects(objects, strict=True).snapshot
        wrong = "" if books.snapshot == truth else _difference(books.snapshot, truth)
        wrong = wrong or (_unlike(books.mirror, objects, server) if books.mirror else "")
        if wrong:
            yield f"the books of {seat.name} are not the truth: {wrong}"


def _difference(books: ClusterSnapshot, truth: ClusterSnapshot) -> str:
    """Name the first thing that differs."""
    for what, mine, other in (
        ("node", {one.name: one.node for one in books.nodes}, {one.name: one.node for one in truth.nodes}),
        ("bound", {one.key: one for one in books.bound_pods()}, {one.key: one for one in truth.bound_pods()}),
        ("waiting", {one.key: one for one in books.pending}, {one.key: one for one in truth.pending}),
    ):
        for name in sorted({*mine, *other}, key=str):
            if mine.get(name) != other.get(name):
                return f"{what} {name}: {mine.get(name)!r} where it is {other.get(name)!r}"[:400]
    return "some record"


def _unlike(mirror: Mirror, objects: list[Object], server: ApiServer) -> str:
    """Name the first object that a mirror has and the server has not, or as it is not; ``""`` for none."""
    mine = {(one["kind"], *key_of(one)): one for one in mirror.objects()}
    other = {(one["kind"], *key_of(one)): one for one in objects}
    if mine != other:
        name = min(key for key in {*mine, *other} if mine.get(key) != other.get(key))
        how = "not as it is" if name in mine and name in other else "gone" if name in mine else "missing"
        return f"its mirror: {' '.join(filter(None, name))} is {how}"
    for kind in RESOURCES:
        history = server.history[kind]
        if history and mirror.followed(kind) < history[-1].version:
            return f"{kind} counts as followed to {mirror.followed(kind)}, and is to {history[-1].version}"
    return ""
