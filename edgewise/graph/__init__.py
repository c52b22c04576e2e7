"""Graphs: pairs, their construction, their distribution, and sampled graphs to multiply by."""
