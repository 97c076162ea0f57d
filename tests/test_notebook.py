"""The notebook runs, cell by cell, and says about a run what the run says."""

import json
from pathlib import Path

import pytest

import regard

NOTEBOOK = Path(__file__).parent.parent / "docs" / "looking-inside.ipynb"


def test_the_notebook_runs_and_its_numbers_are_the_models(trained, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(regard, "load", lambda path: trained)
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    space: dict = {}
    for cell in code:
        exec(cell, space)
    assert "regard.load" in code[0] and space["trace"].difference < 1e-4
    assert abs(float(space["parts"].values.sum()) - space["parts"].notes["logit"]) < 1e-4
    assert space["attribution"].notes["error"] <= 0.01
    assert set(space["attribution"].stacks) == {"encoder", "decoder"}


def test_what_the_notebook_shows_are_values():
    """Every cell ends in a value that is kept with it; none is an error, and none names a folder of a machine."""
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            assert [output["output_type"] for output in cell["outputs"]] == ["execute_result"]
            assert "/home/" not in json.dumps(cell) and "Traceback" not in json.dumps(cell)
