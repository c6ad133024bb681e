"""Processes of the node: the supervision tree and what each of its actors owns."""
