"""Runs docs/looking-inside.ipynb again, and writes what its cells give now.

    regard train demo
    python benchmarks/notebook.py                       # in the folder that has runs/demo

The outputs in the notebook are of that run. Whatever changes a number of it has to be followed by this script.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parent.parent / "docs" / "looking-inside.ipynb"


def value_of(source: str, names: dict[str, Any]) -> Any:
    """Runs a cell; the value of its last line."""
    *statements, last = ast.parse(source).body
    assert isinstance(last, ast.Expr), "a cell ends in a value"
    exec(compile(ast.Module(statements, []), "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def shown(value: Any) -> dict[str, list[str]]:
    """As a notebook shows it: as HTML where the value can, and as text."""
    forms = {"text/html": value._repr_html_()} if hasattr(value, "_repr_html_") else {}
    return {kind: text.splitlines(keepends=True) for kind, text in {**forms, "text/plain": repr(value)}.items()}


def main() -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, start=1):
        data = shown(value_of("".join(cell["source"]), names))
        cell["execution_count"] = number
        cell["outputs"] = [{"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data}]
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps({"notebook": NOTEBOOK.name, "cells": len(cells)}))


if __name__ == "__main__":
    main()
