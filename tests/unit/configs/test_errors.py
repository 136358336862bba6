"""Every exception of the project's own is below one root, and nothing of the standard library besides."""

import importlib
import pkgutil
from collections.abc import Iterator

import pytest

from configs.errors import OvernightError, RunFailure, UserError, own_error

PACKAGES = ("configs", "infra", "tasks", "flows")


def own_exceptions() -> Iterator[type[BaseException]]:
    for package in PACKAGES:
        root = importlib.import_module(package)
        for found in pkgutil.walk_packages(root.__path__, f"{package}."):
            module = importlib.import_module(found.name)
            for value in vars(module).values():
                defined_here = isinstance(value, type) and value.__module__ == found.name
                if defined_here and issubclass(value, BaseException):
                    yield value


@pytest.mark.slow
def test_every_exception_is_below_the_root_and_of_no_other_kind() -> None:
    found = set(own_exceptions())
    assert len(found) > 30
    for each in found:
        assert issubclass(each, OvernightError), each
        foreign = {base for base in each.__mro__ if base.__module__.partition(".")[0] not in PACKAGES}
        assert foreign == {Exception, BaseException, object}, each


def test_who_can_mend_it_says_the_exit_code() -> None:
    assert (UserError.exit_code, RunFailure.exit_code) == (2, 1)
    assert not OvernightError.heals


def test_a_message_is_one_line() -> None:
    assert RunFailure("engine 0 ended:\n  no memory\n").line == "engine 0 ended: no memory"


def test_an_error_is_found_in_what_wraps_it() -> None:
    error, wrapper = UserError("set it higher"), RuntimeError("in an actor")
    wrapper.cause = error  # type: ignore[attr-defined]
    assert own_error(error) is error
    assert own_error(wrapper) is error
    assert own_error(RuntimeError("a bug")) is None
    assert own_error(None) is None
