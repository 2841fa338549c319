"""Install the lowest version that setup.cfg declares of each dependency."""

import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path


def lowest_versions() -> list[str]:
    """Return the lower bounds of all dependencies, as pins."""
    config = ConfigParser()
    config.read(Path(__file__).parent.parent / "setup.cfg")
    declared = config["options"]["install_requires"] + "".join(
        f"\n{extra}" for extra in config["options.extras_require"].values()
    )
    return sorted({line.strip().replace(">=", "==") for line in re.findall(".*>=.*", declared)})


if __name__ == "__main__":
    pip = [sys.executable, "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, *lowest_versions()], check=True)
