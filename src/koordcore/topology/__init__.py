"""What is near what: CPUs and NUMA nodes, device links, network trees. Integers and names only."""
