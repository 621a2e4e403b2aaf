"""Who should move: hot nodes cooled, fragments closed, limits kept."""
