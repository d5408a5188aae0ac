"""Validation: is an exported model what it should be? One check a file; `run.validate` puts them in order."""
