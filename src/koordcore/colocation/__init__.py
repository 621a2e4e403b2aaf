"""How much of the cluster can be lent to batch and mid pods, predicted from usage and explained."""
