"""Kernels over nodes: masks of what fits and integer scores 0..100, arrays in and arrays out."""
