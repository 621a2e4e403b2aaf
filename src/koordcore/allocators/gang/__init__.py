"""Whole jobs: the gang cycle as pure functions, and the placement of gangs onto the network topology."""
