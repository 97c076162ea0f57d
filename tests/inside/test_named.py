"""What was measured tells itself in a line, as JSON and as a table in a notebook."""

import json
from html.parser import HTMLParser

import numpy as np
import pytest

from regard.inside.named import MOST_ROWS, named
from regard.inside.trace import trace


class Tables(HTMLParser):
    """The cells of every table, row by row."""

    def __init__(self, page: str):
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data


@pytest.fixture(scope="module")
def traced(make):
    return trace(make("translator"))


@pytest.fixture(
    scope="module",
    params={
        "lens": lambda traced: traced.lens(),
        "candidates": lambda traced: traced.candidates(3),
        "attribution": lambda traced: traced.attribute("gradient-input"),
        "ablated": lambda traced: traced.ablate(heads="decoder.0.cross.1"),
        "faithfulness": lambda traced: traced.attribute("occlusion").faithful(orders=2),
    }.items(),
    ids=lambda item: item[0],
)
def measured(request, traced):
    return request.param[1](traced)


def test_it_is_told_in_a_line(measured):
    line = repr(measured)
    assert line.startswith(f"{type(measured).__name__}(") and len(line) < 700
    assert "\n" not in line and "array(" not in line and "tensor(" not in line and "Named(" not in line
    for name, array in measured._each():
        assert f"{name}: {array.size}" in line


def test_json_has_every_number(measured):
    content = json.loads(json.dumps(measured.to_json()))
    for name, array in measured.arrays.items():
        several = array if isinstance(array, dict) else {"": array}
        for stack, each in several.items():
            values = (content[name][stack] if stack else content[name])["values"]
            np.testing.assert_array_equal(np.array(values, dtype=np.float32), each.values.astype(np.float32))
    assert set(content) == {*measured.facts, *measured.arrays}


def test_a_notebook_shows_a_table_of_every_array(measured):
    facts, *tables = Tables(measured._repr_html_()).tables
    assert [row[0] for row in facts] == list(measured.facts)
    arrays = list(measured._each())
    assert len(tables) == len(arrays)
    for (_, array), (head, *rows) in zip(arrays, tables, strict=True):
        if array.values.ndim == 2:
            assert head == ["", *array.labels[1]] and [row[0] for row in rows] == array.labels[0]
        cells = [row[1:] if array.values.ndim == 2 else row[-1:] for row in rows]
        shown = [[float(cell.rpartition(" ")[2]) for cell in row] for row in cells]
        np.testing.assert_allclose(np.array(shown).ravel(), array.values.ravel(), atol=6e-4)


def test_attribution_says_of_what_and_how_well(traced):
    found = traced.attribute()
    assert f"method=integrated-gradients, answer={found.notes['answer']}" in repr(found)
    assert found.to_json()["error"] == found.notes["error"]
    assert f"encoder: {len(found['encoder'].values)} position" in repr(found)


def test_what_is_off_is_named(traced):
    off = traced.ablate(heads="decoder.0.cross.1", positions=[("encoder", 2)])
    assert "off=decoder.0.cross.1, encoder at 2" in repr(off)
    assert off.to_json()["words"] == off.words


def test_words_stand_beside_their_numbers(traced):
    found = traced.candidates(2)
    table = Tables(found.probabilities._repr_html_()).tables[0]
    assert table[1][1] == f"{found.logits.notes['words'][0][0]} {found.probabilities.values[0, 0]:.3f}"


def test_a_large_table_is_cut_and_says_so():
    many = MOST_ROWS + 5
    labels = [f"<{n}>" for n in range(many)]
    square = named("weights", np.zeros((many, many)), [("from", labels), ("to", labels)])
    page = square._repr_html_()
    [(head, *rows)] = Tables(page).tables
    assert len(head) == len(rows[0]) == 1 + MOST_ROWS and len(rows) == MOST_ROWS
    assert head[1] == "<0>" and f"the beginning of {many} from × {many} to" in page
    line = named("lengths", np.arange(many), [("from", labels)])
    assert len(Tables(line._repr_html_()).tables[0]) == 1 + MOST_ROWS
    assert f"the first {MOST_ROWS} of {many}" in line._repr_html_()
