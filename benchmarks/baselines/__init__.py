"""What the node is compared with: the same work, with nothing kept and nothing promised."""
