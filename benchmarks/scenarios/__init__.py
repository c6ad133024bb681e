"""Scenarios: each measures the node, and baselines beside it, and emits tables."""
