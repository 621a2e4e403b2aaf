"""Who must leave so that a whole job fits."""
