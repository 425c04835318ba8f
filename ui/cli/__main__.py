"""`python -m ui.cli`: the `rankscope` command."""

from ui.cli.main import main

main()
