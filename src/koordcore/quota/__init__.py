"""May it: the rules of the quota tree, runtime quota, admission and overuse."""
