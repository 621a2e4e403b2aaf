"""Room held for pods: matching, filter, nomination, life cycle, pre-allocation, joint assignment."""
