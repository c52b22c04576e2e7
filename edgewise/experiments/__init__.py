"""Experiments: runs and their records, the store that keeps them, the runner, the statistics."""
