"""Unions of kinds, and kinds of the user's own."""

from typing import Literal

import jsonschema
import pytest
from pydantic import ValidationError

from configs.base import Kind, Section, one_of


class Drink(Kind):
    """What is drunk."""


class Tea(Drink):
    """Tea."""

    kind: Literal["tea"] = "tea"
    owner = "fractions:Fraction"
    minutes: int = 3


class Water(Drink):
    """Water."""

    kind: Literal["water"] = "water"
    owner = "no.such.module:Glass"


class Menu(Section):
    """A field of kinds."""

    drink: one_of(Drink, Tea, Water) = Tea()  # type: ignore[valid-type]


class OwnDrink(Drink):
    """A kind that no other file knows."""

    kind: str
    strength: int

    def build(self) -> int:
        return self.strength


OWN = f"{__name__}:OwnDrink"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or __import__(__name__))


def test_a_kind_is_chosen_by_name_and_survives_a_round_trip() -> None:
    menu = Menu.model_validate({"drink": {"kind": "tea", "minutes": 5}})
    assert menu.drink == Tea(minutes=5)
    assert Menu.model_validate_json(menu.model_dump_json()) == menu


def test_a_kind_of_ones_own_keeps_its_fields_in_a_round_trip() -> None:
    menu = Menu.model_validate({"drink": {"kind": OWN, "strength": 7}})
    assert isinstance(menu.drink, OwnDrink) and menu.drink.build() == 7
    assert menu.model_dump()["drink"] == {"kind": OWN, "strength": 7}
    assert Menu.model_validate_json(menu.model_dump_json()) == menu


@pytest.mark.parametrize("drink", [{"kind": "tea", "minutes": 5}, {"kind": OWN, "strength": 7}])
def test_a_typed_form_takes_every_kind(drink: dict[str, object]) -> None:
    jsonschema.validate({"drink": drink}, Menu.model_json_schema())


@pytest.mark.parametrize("drink", [{"kind": "beer"}, {"kind": "tea", "milk": True}])
def test_a_typed_form_takes_nothing_else(drink: dict[str, object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"drink": drink}, Menu.model_json_schema())


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("beer", 'kind must be one of "tea", "water", or "package.module:Class" of your own'),
        ("no.such:Thing", "cannot be imported"),
        ("fractions:Fraction", "is no Drink: derive it from that class"),
    ],
)
def test_a_kind_that_is_none_is_told(kind: str, line: str) -> None:
    with pytest.raises(ValidationError, match=line):
        Menu.model_validate({"drink": {"kind": kind}})


def test_an_owner_is_imported_when_it_is_built() -> None:
    with pytest.raises(ValueError, match="cannot be imported"):
        Water().build()
