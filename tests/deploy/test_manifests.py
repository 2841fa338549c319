"""deploy/compose.yaml and deploy/kubernetes.yaml, by their published schemas."""

import json
import shutil
import subprocess
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from plantstore import __version__
from plantstore.tokens.lines import read_tokens
from tests.support.serving import ROOT

pytestmark = pytest.mark.deploy

COMPOSE = ROOT / "deploy" / "compose.yaml"
KUBERNETES = ROOT / "deploy" / "kubernetes.yaml"
NPX = shutil.which("npx")


@pytest.mark.skipif(NPX is None, reason="apt-get install npm")
def test_compose_file_is_valid() -> None:
    """compose.yaml is valid, needs a password, and mounts the folder of the file of tokens."""
    command = [str(NPX), "--yes", "dclint@3.1.0", "--formatter", "json", str(COMPOSE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    (report,) = json.loads(done.stdout[done.stdout.index("[") :])
    assert "invalid-schema" not in {finding["rule"] for finding in report["messages"]}
    service = objects(COMPOSE)[0]["services"]["plantstore"]
    assert "${PASSWORD:?}" in service["environment"]["PLANTSTORE_STORE"]
    (volume,) = service["volumes"]
    file = PurePosixPath(service["environment"]["PLANTSTORE_TOKENS_FILE"])
    assert volume == f"./tokens:{file.parent}:ro"
    assert "secrets" not in service


def test_kubernetes_objects_are_valid() -> None:
    """kubernetes.yaml is valid for old and new versions, and has the settings of the service."""
    import kubernetes_validate

    secret, _, deployment = kinds = objects(KUBERNETES)
    for kind, version in product(kinds, ("1.30", "1.37")):
        kubernetes_validate.validate(kind, version, strict=True)
    (token,) = read_tokens(secret["stringData"]["tokens"])
    assert token.client == "nursery"
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"].partition(":")[2] == __version__
    names = {variable["name"] for variable in container["env"]}
    assert names == {"PLANTSTORE_STORE", "PLANTSTORE_TOKENS_FILE", "PLANTSTORE_PROXIES"}


def objects(file: Path) -> list[dict[str, Any]]:
    """Return the objects of a file."""
    import yaml

    return [*yaml.safe_load_all(file.read_text())]
