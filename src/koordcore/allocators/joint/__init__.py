"""Devices for many pods on many nodes at once, with a proof of how good the answer is.

One pod on one node is decided by enumeration (:mod:`koordcore.allocators.device`). A batch is not: which pod
goes where decides what is left for the others. :mod:`~koordcore.allocators.joint.place` puts the parts
together: what each node can take of the batch is enumerated, and an integer program chooses one packing per
node. Where there is too much to enumerate, a program over single pods and cards takes its place.
"""

from __future__ import annotations

from koordcore.allocators.joint.place import DeviceBatch, place_devices_jointly

__all__ = ["DeviceBatch", "place_devices_jointly"]
