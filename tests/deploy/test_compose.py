"""docker-compose.yml: closed ports, pinned images, limits, health checks, and no reference to a missing file."""

import re
from pathlib import Path
from xml.etree import ElementTree

import yaml

from telemetry.version import __version__
from tests.deploy.compose_file import COMPOSE, DEPLOY, OPEN, ROOT, blanks, mounts, services
from tests.docs.blocks import blocks
from tests.each_case import each_case

SERVICES = services()
STANDING = {name: one for name, one in SERVICES.items() if "profiles" not in one}
EXAMPLE = dict(
    line.split("=", 1) for line in (DEPLOY / ".env.example").read_text().splitlines() if re.match(r"[A-Z]", line)
)
SECRET = re.compile(r"PASSWORD|TOKEN|SECRET|KEY$")
each_service = each_case("name", SERVICES)


def test_compose_file_has_five_standing_services_and_a_demo_profile() -> None:
    assert set(STANDING) == {"clickhouse", "collector", "alerts", "alertmanager", "grafana"}
    assert SERVICES["demo"]["profiles"] == ["demo"]


@each_service
def test_service_publishes_ports_on_loopback_only(name: str) -> None:
    service = SERVICES[name]
    for port in service.get("ports", ()):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)
    assert "network_mode" not in service


@each_service
def test_secret_variable_is_required_and_has_no_default(name: str) -> None:
    service = SERVICES[name]
    secrets = (
        {variable: text for variable, text in service["environment"].items() if SECRET.search(variable)}
        if ("environment" in service)
        else {}
    )
    for text in secrets.values():
        (blank,) = blanks(text)
        assert blank.required
        assert text.startswith("${")


@each_service
def test_commands_and_build_of_a_service_contain_no_variable_that_could_be_a_secret(name: str) -> None:
    service = SERVICES[name]
    said = [service.get("command", []), service.get("healthcheck", {}).get("test", []), service.get("build", {})]
    assert not blanks(yaml.safe_dump(said))


def test_store_address_contains_no_password() -> None:
    assert not re.search(r"clickhouses?://\w+:", COMPOSE.read_text())


@each_case("name", STANDING)
def test_standing_service_has_a_health_check_and_restarts(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
    assert {"interval", "timeout", "retries"} <= service["healthcheck"].keys()


@each_service
def test_service_has_limits_for_memory_cores_and_logs(name: str) -> None:
    service = SERVICES[name]
    assert {"mem_limit", "cpus"} <= service.keys()
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}


@each_service
def test_images_are_pinned_to_a_version(name: str) -> None:
    service = SERVICES[name]
    assert re.search(r":v?\d+\.\d+\.\d+(\.\d+)?$", service["image"])


def test_built_images_have_the_version_of_the_package() -> None:
    ours = [one["image"] for one in SERVICES.values() if "build" in one]
    assert {image.rpartition(":")[2] for image in ours} == {__version__}


@each_service
def test_service_gains_no_privileges_and_built_image_is_read_only(name: str) -> None:
    service = SERVICES[name]
    assert "no-new-privileges:true" in service["security_opt"]
    assert "privileged" not in service
    if "build" in service:
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]


@each_service
def test_mount_is_an_existing_read_only_path_or_a_declared_volume(name: str) -> None:
    service = SERVICES[name]
    declared = yaml.safe_load(COMPOSE.read_text())["volumes"]
    for volume, (source, _) in zip(service.get("volumes", ()), mounts(service), strict=True):
        if source.startswith("."):
            assert (ROOT / source).exists()
            assert volume.endswith(":ro")
        else:
            assert source in declared


def test_every_declared_volume_is_used() -> None:
    used = {source for one in SERVICES.values() for source, _ in mounts(one)}
    assert yaml.safe_load(COMPOSE.read_text())["volumes"].keys() <= used


@each_service
def test_service_waits_until_its_dependencies_are_healthy(name: str) -> None:
    service = SERVICES[name]
    for needed, how in service.get("depends_on", {}).items():
        assert how == {"condition": "service_healthy"}
        assert "healthcheck" in SERVICES[needed]


def test_env_example_lists_exactly_the_variables_of_the_compose_files() -> None:
    asked = {one.name for path in (COMPOSE, OPEN) for one in blanks(path.read_text())}
    assert asked == EXAMPLE.keys()


def test_env_example_has_empty_secrets_and_the_defaults_of_other_variables() -> None:
    defaults = {one.name: one.default for one in blanks(COMPOSE.read_text()) if one.default is not None}
    for name, value in EXAMPLE.items():
        assert value == defaults.get(name, "")


def test_env_file_is_ignored_by_git() -> None:
    assert ".env" in (ROOT / ".gitignore").read_text().splitlines()


def test_paths_copied_into_the_image_exist_and_are_not_ignored_by_docker() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    copied = {name for line in re.findall(r"^COPY (?!--)(.+)$", dockerfile, re.M) for name in line.split()[:-1]}
    let_in = set(re.findall(r"^!(.+)$", (DEPLOY / "Dockerfile.dockerignore").read_text(), re.M))
    assert copied == let_in
    assert all((ROOT / name).exists() for name in copied)


def test_dockerfile_has_every_target_and_the_torch_version_of_the_constraints() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    targets = {one["build"]["target"] for one in SERVICES.values() if "build" in one}
    assert targets <= set(re.findall(r"^FROM .+ AS (\S+)$", dockerfile, re.M))
    (torch,) = re.findall(r"torch==\S+", dockerfile)
    assert torch in (ROOT / "constraints.txt").read_text().splitlines()


def test_open_yml_requires_an_address_and_tls_for_the_collector() -> None:
    collector = services(OPEN)["collector"]
    assert [blank.name for blank in blanks(collector["ports"][0])] == ["RANKSCOPE_ADDRESS"]
    assert blanks(collector["ports"][0])[0].required
    assert {"RANKSCOPE_TLS_CERT", "RANKSCOPE_TLS_KEY"} <= collector["environment"].keys()
    assert "https://" in " ".join(collector["healthcheck"]["test"])


def test_deployment_files_contain_no_private_address_and_no_private_key() -> None:
    for path in [COMPOSE, *(one for one in DEPLOY.rglob("*") if one.is_file())]:
        text = _text(path)
        assert "PRIVATE KEY" not in text, path
        assert not re.search(r"\b(?:10|172\.(?:1[6-9]|2\d|3[01])|192\.168)\.\d+\.\d+", text), path


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_server_allows_backups_in_the_folder_of_the_guide_on_its_volume() -> None:
    (of_guide,) = blocks("backup.md", "A ClickHouse server", "xml")
    config = (DEPLOY / "clickhouse/config.d/rankscope.xml").read_text()
    allowed = [ElementTree.fromstring(text).findtext("backups/allowed_path") for text in (of_guide, config)]
    assert allowed[0] == allowed[1]
    volumes = [volume.split(":")[1] for volume in SERVICES["clickhouse"]["volumes"]]
    assert any(str(allowed[0]).startswith(f"{volume}/") for volume in volumes)
