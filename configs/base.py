"""What all configuration sections share."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Union

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    SerializeAsAny,
    Tag,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from configs.form import Buttons, with_its_kind


class Section(BaseModel):
    """A frozen group of settings. Unknown keys are errors; field docstrings become descriptions."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, validate_default=True, allow_inf_nan=False
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The JSON schema, for a typed form."""
        form = handler(schema)
        whole = handler.resolve_ref_schema(form)
        whole["title"] = cls.__name__.removesuffix("Config")
        if "const" in whole["properties"].get("kind", {}):
            whole.update(with_its_kind(whole))
        return form


class Kind(Section):
    """One way of doing what people swap: `kind` names it, and `build` gives the object that does it."""

    kind: str
    owner: ClassVar[str]
    """The class that does the work, as `package.module:Class`; it is made of the settings and of what
    `build` is given. Named rather than imported, since settings are read where torch is not."""

    def build(self, *given: Any) -> Any:
        """The object that does the work."""
        return _load(self.owner)(self, *given)


_OWN_FORM = WithJsonSchema(
    {
        "title": "A kind of your own",
        "type": "object",
        "properties": {"kind": {"title": "Kind", "type": "string", "pattern": ":"}},
        "required": ["kind"],
    }
)
"""What a typed form knows of a kind that is imported later: no other kind matches it, whatever its fields."""


def one_of(base: type[Kind], *kinds: type[Kind]) -> Any:
    """The type of a field that holds one of `kinds`, or a kind of the user's own.

    `kind` is then the path of a class derived from `base`, such as `my_package.my_module:MyKind`.
    """
    known = {kind.model_fields["kind"].default: kind for kind in kinds}

    def tag_of(settings: Any) -> str | None:
        kind = settings.get("kind") if isinstance(settings, Mapping) else getattr(settings, "kind", None)
        return kind if kind in known else "own" if isinstance(kind, str) and ":" in kind else None

    def imported(settings: Any, info: ValidationInfo) -> Any:
        if not isinstance(settings, Mapping):
            return settings
        own = _load(settings["kind"])
        if not (isinstance(own, type) and issubclass(own, base)):
            raise ValueError(f'kind "{settings["kind"]}" is no {base.__name__}: derive it from that class')
        return own.model_validate(settings, context=info.context)

    tagged = [Annotated[kind, Tag(name)] for name, kind in known.items()]
    tagged.append(Annotated[SerializeAsAny[base], BeforeValidator(imported), _OWN_FORM, Tag("own")])  # type: ignore[valid-type, misc]
    names = ", ".join(f'"{name}"' for name in known)
    discriminator = Discriminator(
        tag_of,
        custom_error_type="kind_unknown",
        custom_error_message=f'kind must be one of {names}, or "package.module:Class" of your own',
    )
    return Annotated[Union[tuple(tagged)], Field(discriminator=discriminator), Buttons()]  # noqa: UP007


def _load(path: str) -> Any:
    """What `package.module:name` names; ValueError when it is not there."""
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f'"{path}" cannot be imported ({error}): write it as package.module:Class') from None


def _resolve(path: Path, info: ValidationInfo) -> Path:
    context: dict[str, Any] = info.context or {}
    return path if path.is_absolute() else Path(context.get("folder", Path.cwd())) / path


LocalPath = Annotated[Path, AfterValidator(_resolve)]
"""A path; a relative one is taken from the folder of the YAML file it stands in."""
