"""deploy/compose.yaml and deploy/kubernetes.yaml, by their published schemas."""

import json
import re
import shutil
import subprocess
from pathlib import PurePosixPath
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
    """compose.yaml follows the Compose Specification, and needs a password in the environment."""
    command = [str(NPX), "--yes", "dclint@3.1.0", "--formatter", "json", str(COMPOSE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    (report,) = json.loads(done.stdout[done.stdout.index("[") :])
    assert "invalid-schema" not in {finding["rule"] for finding in report["messages"]}
    assert "${PASSWORD:?}" in compose_service()["environment"]["PLANTSTORE_STORE"]


def test_compose_file_mounts_the_folder_of_the_tokens() -> None:
    """With compose.yaml, the service sees a file of tokens that replaces the earlier one.

    If the file itself was mounted, the service would keep the earlier one.
    """
    service = compose_service()
    (volume,) = service["volumes"]
    source, target, mode = volume.split(":")
    file = PurePosixPath(service["environment"]["PLANTSTORE_TOKENS_FILE"])
    assert (source, target, mode) == ("./tokens", str(file.parent), "ro")
    assert "secrets" not in service


def compose_service() -> dict[str, Any]:
    """Return the service in compose.yaml that is plantstore."""
    import yaml

    service: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]["plantstore"]
    return service


@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_kubernetes_objects_are_valid(version: str) -> None:
    """Each object of kubernetes.yaml follows the schema of Kubernetes, without unknown members."""
    import kubernetes_validate

    for object in objects():
        kubernetes_validate.validate(object, version, strict=True)


def test_kubernetes_secret_has_valid_settings() -> None:
    """The image has this version, and the secret's tokens and store are what the service reads."""
    secret, _, deployment = objects()
    (token,) = read_tokens(secret["stringData"]["tokens"])
    assert token.client == "nursery"
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert re.search(":(.*)$", container["image"])[1] == __version__  # type: ignore[index]
    names = {variable["name"] for variable in container["env"]}
    assert names == {"PLANTSTORE_STORE", "PLANTSTORE_TOKENS_FILE", "PLANTSTORE_PROXIES"}


def objects() -> list[dict[str, Any]]:
    """Return the objects of kubernetes.yaml."""
    import yaml

    return [*yaml.safe_load_all(KUBERNETES.read_text())]
