"""Scripts for whoever keeps the house; nothing of the package needs them."""
