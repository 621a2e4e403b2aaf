"""The kit for plugins of one's own."""
