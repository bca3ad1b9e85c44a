"""That installing Lostflops changes nobody's training."""

from __future__ import annotations

import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
GROUPS = ("lightning.pytorch.callbacks_factory", "pytorch_lightning.callbacks_factory")


@pytest.mark.parametrize("group", GROUPS)
def test_lightning_gets_no_callback_unless_something_records(group: str) -> None:
    module, function = PROJECT["entry-points"][group]["lostflops"].split(":")
    assert getattr(import_module(module), function)() == []


def test_lightning_asks_for_these_groups() -> None:
    found = find_spec("lightning")
    if found is None or found.origin is None:
        pytest.skip("lightning is not installed")
    connector = Path(found.origin).parent / "pytorch" / "trainer" / "connectors" / "callback_connector.py"
    assert f'_load_external_callbacks("{GROUPS[0]}")' in connector.read_text()
