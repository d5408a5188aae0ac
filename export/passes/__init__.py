"""Graph passes: each a function from a model to a model, one a file."""
