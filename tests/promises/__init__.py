"""What release notes and the book promise, entered by the door: manifests in, an answer out."""
