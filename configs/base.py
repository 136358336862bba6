"""What all configuration sections share."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationInfo


class Section(BaseModel):
    """A frozen group of settings. Unknown keys are errors; field docstrings become descriptions."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, validate_default=True, allow_inf_nan=False
    )


def _resolve(path: Path, info: ValidationInfo) -> Path:
    context: dict[str, Any] = info.context or {}
    return path if path.is_absolute() else Path(context.get("folder", Path.cwd())) / path


LocalPath = Annotated[Path, AfterValidator(_resolve)]
"""A path; a relative one is taken from the folder of the YAML file it stands in."""
