"""Who must leave so that a whole job fits.

A failing pod's job is identified
(:mod:`~koordcore.preemption.identify`), it may preempt or not (:mod:`~koordcore.preemption.eligible`),
candidates are collected (:mod:`~koordcore.preemption.victims`) and the question is set up
(:mod:`~koordcore.preemption.setup`), damage is counted (:mod:`~koordcore.preemption.cost`), and the cheapest
plan is found (:mod:`~koordcore.preemption.plan`).
"""
