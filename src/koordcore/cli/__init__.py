"""The command line: one thin embedder of the library, and the only room that prints."""

from koordcore.cli.main import main

__all__ = ["main"]
