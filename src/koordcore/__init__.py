"""GPU-cluster scheduling as a pure library: snapshots in, proven decisions out."""

__version__ = "0.1.0"
