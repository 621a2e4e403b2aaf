"""Control planes that embed koordcore."""
