"""Experiments, a claim or a few related ones a file: each has a tuple `CLAIMS`, and the folder is the list of them."""
