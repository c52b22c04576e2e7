"""The bilevel program: differentiable inner dynamics and hypergradients with respect to edges."""
