"""Benchmarks for asv: time, and beside it the quality of what was computed."""

import sys
from pathlib import Path

# asv imports this package from anywhere; the references that quality is measured against stand in tests/.
sys.path.append(str(Path(__file__).resolve().parents[1]))
