"""deploy/compose.yaml and deploy/kubernetes.yaml, by their schemas, and by what they must have."""

import json
from ipaddress import ip_address, ip_network
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from sqlalchemy import make_url

from plantstore import __version__
from plantstore.tokens.lines import read_tokens
from tests.support.databases import installed
from tests.support.fresh import attempt, run
from tests.support.serving import ROOT

pytestmark = pytest.mark.deploy

COMPOSE = ROOT / "deploy" / "compose.yaml"
KUBERNETES = ROOT / "deploy" / "kubernetes.yaml"
MONITOR = ROOT / "deploy" / "podmonitor.yaml"
NGINX_CONF = ROOT / "deploy" / "nginx.conf"


def test_compose_file_is_valid() -> None:
    """compose.yaml is valid."""
    options = ("--yes", "dclint@3.1.0", "--formatter", "json", COMPOSE)
    done = attempt([installed("npx", "npm"), *options], timeout=300)
    (report,) = json.loads(done.stdout[done.stdout.index("[") :])
    assert "invalid-schema" not in {finding["rule"] for finding in report["messages"]}


def test_containers_that_restart_find_each_other() -> None:
    """In compose.yaml, nginx shares only a network with the service, at an address that stays."""
    composed = objects(COMPOSE)[0]
    services = composed["services"]
    assert not any("network_mode" in service for service in services.values())
    members = {name: {*service["networks"]} for name, service in services.items()}
    assert members == {"nginx": {"front"}, "plantstore": {"front", "back"}, "postgres": {"back"}}
    assert [name for name, service in services.items() if "ports" in service] == ["nginx"]
    address = services["plantstore"]["networks"]["front"]["ipv4_address"]
    (*_, script) = services["nginx"]["command"]
    changed = script.partition(" > ")[0].replace("/plantstore.conf", str(NGINX_CONF))
    assert f"server {address}:8000 max_fails=0;" in run(changed, ROOT)
    (network,) = composed["networks"]["front"]["ipam"]["config"]
    assert ip_address(address) in ip_network(network["subnet"])


def test_secrets_of_the_containers_are_files() -> None:
    """In compose.yaml, no password is in the environment. The folder of the tokens is mounted."""
    composed = objects(COMPOSE)[0]
    service = composed["services"]["plantstore"]
    assert make_url(service["environment"]["PLANTSTORE_STORE"]).password is None
    assert service["environment"]["PGPASSFILE"] == "/run/secrets/pgpass"
    assert service["secrets"] == ["pgpass"]
    assert composed["secrets"]["pgpass"] == {"file": "./pgpass"}
    assert "${" not in COMPOSE.read_text()
    (volume,) = service["volumes"]
    file = PurePosixPath(service["environment"]["PLANTSTORE_TOKENS_FILE"])
    assert volume == f"./tokens:{file.parent}:ro"


def test_kubernetes_objects_are_valid() -> None:
    """kubernetes.yaml is valid for old and new versions, with settings and recommended labels."""
    import kubernetes_validate

    secret, _, deployment, *_ = kinds = objects(KUBERNETES)
    for kind, version in product(kinds, ("1.30", "1.37")):
        kubernetes_validate.validate(kind, version, strict=True)
        labels = kind["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "plantstore"
        assert labels["app.kubernetes.io/version"] == __version__
    (token,) = read_tokens(secret["stringData"]["tokens"])
    assert token.client == "nursery"
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"].partition(":")[2] == __version__
    names = {variable["name"] for variable in container["env"]}
    settings = {f"PLANTSTORE_{name}" for name in ("STORE", "TOKENS_FILE", "PROXIES", "METRICS")}
    assert names == {*settings, "PROMETHEUS_MULTIPROC_DIR"}


def test_kubernetes_objects_select_the_copies() -> None:
    """The service, the budget, the policy and the monitor find the copies by their label."""
    _, service, deployment, budget, policy, ingress = objects(KUBERNETES)
    (monitor,) = objects(MONITOR)
    template = deployment["spec"]["template"]
    (spread,) = template["spec"]["topologySpreadConstraints"]
    selectors = [it["spec"]["selector"]["matchLabels"] for it in (deployment, budget, monitor)]
    selectors += [policy["spec"]["podSelector"]["matchLabels"], service["spec"]["selector"]]
    selectors += [spread["labelSelector"]["matchLabels"]]
    assert all(it.items() <= template["metadata"]["labels"].items() for it in selectors)
    (container,) = template["spec"]["containers"]
    ports = [policy["spec"]["ingress"][0]["ports"][0], *monitor["spec"]["podMetricsEndpoints"]]
    assert {port["port"] for port in ports} == {container["ports"][0]["name"]}
    (rule,) = ingress["spec"]["rules"]
    paths = {path["path"] for path in rule["http"]["paths"]}
    assert paths == {"/plants", "/docs", "/openapi.json"}


def objects(file: Path) -> list[dict[str, Any]]:
    """Return the objects of a file."""
    import yaml

    return [*yaml.safe_load_all(file.read_text())]
