"""A batch queue for a GPU cluster, as a control plane without Kubernetes."""
