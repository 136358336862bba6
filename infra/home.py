"""The state folder: where runs, prepared models, server databases and logs live."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Home:
    """Paths under the state folder (`.overnight` in the working directory, or $OVERNIGHT_HOME)."""

    root: Path

    @classmethod
    def find(cls) -> "Home":
        """The state folder of this process, made absolute; it need not exist yet."""
        return cls(Path(os.environ.get("OVERNIGHT_HOME", ".overnight")).resolve())

    @property
    def runs(self) -> Path:
        """Default run store."""
        return self.root / "runs"

    @property
    def s3(self) -> Path:
        """This machine's copies of folders that are kept on S3."""
        return self.root / "s3"

    @property
    def registry(self) -> Path:
        """One small file a run, saying which store holds it."""
        return self.root / "registry"

    @property
    def locks(self) -> Path:
        """Lock files: one process works on a run at a time."""
        return self.root / "locks"

    @property
    def models(self) -> Path:
        """Model folders converted from packages."""
        return self.root / "models"

    @property
    def mirror(self) -> Path:
        """Copies of weights that engines of this machine load."""
        return self.root / "mirror"

    @property
    def prefect(self) -> Path:
        """PREFECT_HOME of the project's own Prefect server."""
        return self.root / "prefect"

    @property
    def mlflow(self) -> Path:
        """Folder of the MLflow database and artifacts."""
        return self.root / "mlflow"

    @property
    def mlflow_uri(self) -> str:
        """MLflow tracking URI: sqlite, written without a server between."""
        return f"sqlite:///{self.mlflow / 'mlflow.db'}"

    @property
    def logs(self) -> Path:
        """Logs of servers and engines."""
        return self.root / "logs"
