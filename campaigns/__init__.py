"""Campaigns: random worlds and random misuse, by seed and for as long as one likes.

Tests say what must hold; campaigns look for what nobody thought of. They draw Kubernetes objects, ask the
library, and judge the answers by code of their own that reads the objects alone. What once failed is kept in
``failed.jsonl``, which the tests run.
"""
