"""Run the command line: ``python -m koordcore``."""
