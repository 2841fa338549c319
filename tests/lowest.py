"""Install the lowest version that setup.cfg declares of each dependency, and that Flask accepts."""

import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

# The lowest versions that Flask 3.0.0 accepts.
BROUGHT_BY_FLASK = ["blinker==1.6.2", "click==8.1.3", "werkzeug==3.0.0"]


def lowest_versions() -> list[str]:
    """Return the lower bounds of all dependencies, as pins."""
    config = ConfigParser()
    config.read(Path(__file__).parent.parent / "setup.cfg")
    declared = config["options"]["install_requires"] + "".join(
        f"\n{extra}" for extra in config["options.extras_require"].values()
    )
    pins = {line.strip().replace(">=", "==") for line in re.findall(".*>=.*", declared)}
    return sorted(pins.union(BROUGHT_BY_FLASK))


if __name__ == "__main__":
    pip = [sys.executable, "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, *lowest_versions()], check=True)
