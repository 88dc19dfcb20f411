"""`python -m ottla.cli`: the same as the `ottla` command."""

from ottla.cli import main

main()
