"""`python -m eventq`: the command line."""

from eventq.cli import main

main()
