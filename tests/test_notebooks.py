"""The notebooks run from top to bottom in a real Jupyter kernel, and show what they promise."""

import os
import sys
from pathlib import Path

import duckdb
import pytest

from lostflops.store.run import _draw_no_progress

NOTEBOOKS = sorted((Path(__file__).parent.parent / "examples" / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("pandas")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in shown if output.output_type == "error"]
    text = "\n".join(str(output.get("data", output.get("text", ""))) for output in shown)
    assert "% of the step" in text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_stored_without_outputs(path: Path) -> None:
    import json

    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert all(not cell.get("outputs") for cell in cells)


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["find_a_straggler", "first_look", "price_a_fix"]


def test_a_run_opens_in_jupyter_without_ipywidgets() -> None:
    """DuckDB then refuses any setting of its progress bar."""

    class Refuses:
        def execute(self, query: str) -> None:
            assert query == "SET enable_progress_bar = false"
            raise duckdb.InvalidInputException("required package 'ipywidgets' is missing")

    _draw_no_progress(Refuses())  # type: ignore[arg-type]
