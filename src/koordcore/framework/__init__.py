"""What plugins answer, and what is worked out once for classes of equal pods and nodes in equal states."""
