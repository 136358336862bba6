"""How settings become a typed form: the JSON schema that Prefect's UI draws fields from.

That UI draws an object as a card of its fields, and `anyOf` as a row of buttons with the fields of the
chosen one below. Of `oneOf`, which pydantic makes of a discriminated union, it knows nothing and shows a
box for JSON. Which button a value belongs to it tells by the names of the value's fields, never by `kind`:
the first of those that share most.
"""

from typing import Any

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

Form = dict[str, Any]


class Buttons:
    """Annotates a union of kinds: a button for each, but one for all that have no settings."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The union's JSON schema, as `anyOf`."""
        union = handler(schema)
        union.pop("discriminator", None)
        kinds = union.pop("oneOf")
        bare = [form for kind in kinds if _is_bare(form := handler.resolve_ref_schema(kind))]
        rest = [kind for kind in kinds if handler.resolve_ref_schema(kind) not in bare]
        return {**union, "anyOf": [*_by_name(bare), *rest]}


def with_its_kind(form: Form) -> Form:
    """The form of a kind with its name as the first field, the only choice there, and the button's label."""
    rest = dict(form["properties"])
    name = rest.pop("kind")["const"]
    return {**form, "title": name, "properties": {"kind": _choice([name]), **rest}}


def _is_bare(form: Form) -> bool:
    """Whether a kind of ours has nothing to set; of the user's own kinds that is not known."""
    return set(form["properties"]) == {"kind"} and "enum" in form["properties"]["kind"]


def _by_name(bare: list[Form]) -> list[Form]:
    """One form for several kinds without settings."""
    if not bare:
        return []
    names = [form["title"] for form in bare]
    told = "\n\n".join(f"{form['title']}: {form['description']}" for form in bare)
    kind = {**_choice(names), "description": told}
    return [
        {"title": " | ".join(names), "type": "object", "properties": {"kind": kind}, "required": ["kind"]}
    ]


def _choice(names: list[str]) -> Form:
    return {"title": "Kind", "type": "string", "enum": names, "default": names[0]}
