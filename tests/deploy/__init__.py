"""Tests of the files in deploy/ with the programs that read them: `tox -e deploy` runs them."""
