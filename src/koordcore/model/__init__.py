"""What is there: frozen records of the cluster, of what is asked of it, and of what was decided."""
