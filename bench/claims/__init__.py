"""The guided tour that this project answers, statement by statement: each an experiment with a verdict and evidence."""
