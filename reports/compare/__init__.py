"""Runs held against each other: what changed for sure, what stayed the same, and what cannot be told."""
