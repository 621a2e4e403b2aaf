"""Speed and quality, measured by asv."""
