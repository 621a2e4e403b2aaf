"""Devices for several pods on one node at once: what goes together there, and what each of them gets.

One pod on one node is decided by enumeration (:mod:`koordcore.allocators.device`). Of several pods the choice
for the first decides what is left for the next: what a node can take of them together is enumerated too.
"""
