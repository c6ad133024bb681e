"""Baselines: servers that do the same work as the node, but store and promise nothing."""
