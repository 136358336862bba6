"""Where runs are kept."""

from typing import Annotated, Literal

from pydantic import Field

from configs.base import LocalPath, Section
from configs.form import Buttons


class LocalStoreConfig(Section):
    """A folder of this machine, or one that all machines mount."""

    kind: Literal["local"] = "local"
    path: LocalPath | None = None
    """Folder of the run store; `runs` under the state folder when absent."""


class S3StoreConfig(Section):
    """A bucket of AWS S3, or of another server that honours If-None-Match.

    Credentials are no settings: boto3 takes them from the environment, a profile or the machine's role.
    """

    kind: Literal["s3"]
    bucket: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")
    """Name of the bucket, which must be there."""
    prefix: str = Field(default="overnight", pattern=r"^[A-Za-z0-9_-][\w.-]*(/[A-Za-z0-9_-][\w.-]*)*$")
    """Folder in the bucket, such as `team/overnight`: everything is kept below it."""
    endpoint_url: str | None = Field(default=None, pattern=r"^https?://[^/\s]+")
    """URL of the server, such as `http://10.0.0.5:9000`; AWS when absent."""
    region: str | None = None
    """Region of the bucket; what boto3 finds in environment or profile when absent."""


StoreConfig = Annotated[LocalStoreConfig | S3StoreConfig, Field(discriminator="kind"), Buttons()]
