"""Compositions of operations: attention (the six steps) and the feed-forward network."""
