"""`python -m plantstore` is the `plantstore` command."""

from plantstore.cli import main  # gunicorn may start this file as a script.

main(prog_name="plantstore")
