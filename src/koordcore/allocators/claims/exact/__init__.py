"""The exact search: a legal allocation whenever one exists, or the proof that none does."""
