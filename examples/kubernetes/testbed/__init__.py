"""A real API server to try the scheduler on: nodes and kubelets are only objects."""
