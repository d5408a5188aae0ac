"""`python -m isorun`: the same as the `isorun` command."""

from .cli import main

main()
