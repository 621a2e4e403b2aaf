"""A scheduler for a Kubernetes cluster, as a control plane around koordcore."""
