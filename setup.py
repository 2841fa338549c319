"""Build the package. Its configuration is in setup.cfg, except for what depends on REPOSITORY."""

import re
import sys
from pathlib import Path

from setuptools import setup

# pip checks python_requires later, after it has listed all old versions of a dependency.
if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit("plantstore needs Python 3.11 or later.")

# The address of the repository, such as "https://github.com/OWNER/plantstore". None is known yet.
REPOSITORY = ""

# A link to a file of the repository, or a picture in it.
LINK = re.compile(r"(!?)\[([^]]*)\]\((?!#|\w+:)([^)]*)\)")


def absolute(link: re.Match[str]) -> str:
    """Return a link that works outside the repository, or its text if there is none."""
    picture, text, target = link.groups()
    if not REPOSITORY:
        return text
    return f"{picture}[{text}]({REPOSITORY}/{'raw' if picture else 'blob'}/HEAD/{target})"


setup(
    long_description=LINK.sub(absolute, Path("README.md").read_text("utf-8")),
    project_urls={"Source": REPOSITORY} if REPOSITORY else {},
)
