"""Measurements of a running node, as ratios against baselines of the same run."""
