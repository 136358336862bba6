"""Which Prefect and MLflow are the user's own: what settings name, unless we started it."""

import os
import socket
from pathlib import Path

import pytest

from infra.home import Home
from infra.identity import ProcessRef
from infra.process import free_port
from infra.services import ServiceError, Services
from infra.services.foreign import foreign_prefect, mlflow_place, without_password
from infra.services.state import ServiceRecord, ServiceState

OWN = "http://127.0.0.1:{port}"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    for name in ("PREFECT_API_URL", "PREFECT_API_KEY", "MLFLOW_TRACKING_URI", "MLFLOW_DEFAULT_ARTIFACT_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREFECT_PROFILES_PATH", str(tmp_path / "profiles.toml"))
    monkeypatch.setenv("PREFECT_PROFILE", "ephemeral")
    return Home(tmp_path / "home")


def started(home: Home, port: int, stopped: bool = False) -> None:
    """Both servers have run there; this process stands for theirs."""
    home.root.mkdir()
    state, me = ServiceState(home.root), ProcessRef.of(os.getpid())
    for name in ("prefect", "mlflow"):
        state.put(name, ServiceRecord(process=me, url=OWN.format(port=port), stopped=stopped))


def test_nothing_is_foreign_where_nothing_is_set(home: Home) -> None:
    assert foreign_prefect(home) is None
    place = mlflow_place(home)
    assert (place.uri, place.is_server) == (home.mlflow_uri, False)
    assert place.artifacts == (home.mlflow / "artifacts").as_uri()


def test_the_environment_names_a_prefect_server(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "https://prefect.example/api")
    monkeypatch.setenv("PREFECT_API_KEY", "a-key")
    found = foreign_prefect(home)
    assert found is not None and found.url == "https://prefect.example"
    environment = Services(home).client_environment(found.url)
    assert environment["PREFECT_API_URL"] == "https://prefect.example/api"
    assert environment["PREFECT_API_KEY"] == "a-key"
    assert "PREFECT_HOME" not in environment


def test_the_active_profile_names_a_workspace_of_prefect_cloud(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = "https://api.prefect.cloud/api/accounts/a/workspaces/w"
    profile = f'active = "cloud"\n[profiles.cloud]\nPREFECT_API_URL = "{api}"\nPREFECT_API_KEY = "a-key"\n'
    (tmp_path / "profiles.toml").write_text(profile)
    monkeypatch.delenv("PREFECT_PROFILE")
    found = foreign_prefect(home)
    assert found is not None
    assert (found.url, found.api_url) == ("https://app.prefect.cloud/account/a/workspace/w", api)
    assert found.settings["PREFECT_API_KEY"] == "a-key"


@pytest.mark.parametrize("stopped", [False, True])
def test_our_own_servers_are_known_by_their_addresses(
    stopped: bool, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    started(home, port, stopped)
    monkeypatch.setenv("PREFECT_API_URL", f"http://localhost:{port}/api")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}/")
    assert foreign_prefect(home) is None
    assert mlflow_place(home).uri == home.mlflow_uri


def test_whoever_listens_where_ours_was_stopped_is_foreign(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        started(home, port, stopped=True)
        monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{port}/api")
        assert foreign_prefect(home) is not None


def test_mlflow_may_be_a_server_or_a_database(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example/")
    place = mlflow_place(home)
    assert (place.uri, place.artifacts, place.is_server) == ("https://mlflow.example", None, True)

    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql+psycopg://me:a-secret@db/mlflow")
    monkeypatch.setenv("MLFLOW_DEFAULT_ARTIFACT_ROOT", "s3://bucket/mlflow")
    place = mlflow_place(home)
    assert (place.artifacts, place.is_server) == ("s3://bucket/mlflow", False)
    assert place.shown == "postgresql+psycopg://me:***@db/mlflow"

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///own.db")
    assert mlflow_place(home).uri == f"sqlite:///{tmp_path}/own.db"

    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:///mlruns")
    with pytest.raises(ServiceError, match="set it to an http\\(s\\) server or the URL of a database"):
        mlflow_place(home)


def test_a_url_without_a_password_stays_as_it_is() -> None:
    assert without_password("sqlite:////a/b.db") == "sqlite:////a/b.db"
    assert without_password("https://me@host:1/x?y#z") == "https://me@host:1/x?y#z"
    assert without_password("https://me:pw@host:1/x") == "https://me:***@host:1/x"


def test_a_port_is_not_named_for_the_users_server(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "https://prefect.example/api")
    with pytest.raises(ServiceError, match="leave out --prefect-port"):
        Services(home).ensure_prefect(4311)
