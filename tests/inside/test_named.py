"""Named arrays and results: their repr, their JSON and their tables in a notebook."""

import json
from html.parser import HTMLParser

import numpy as np
import pytest

from regard.errors import UsageError
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


def test_the_repr_is_one_line(measured):
    line = repr(measured)
    assert line.startswith(f"{type(measured).__name__}(") and len(line) < 700
    assert "\n" not in line and "array(" not in line and "tensor(" not in line and "Named(" not in line
    for name, array in measured._flat_arrays():
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
    arrays = list(measured._flat_arrays())
    assert len(tables) == len(arrays)
    for (_, array), (head, *rows) in zip(arrays, tables, strict=True):
        if array.values.ndim == 2:
            assert head == ["", *array.labels[1]] and [row[0] for row in rows] == array.labels[0]
        cells = [row[1:] if array.values.ndim == 2 else row[-1:] for row in rows]
        cells_shown = [[float(cell.rpartition(" ")[2]) for cell in row] for row in cells]
        np.testing.assert_allclose(np.array(cells_shown).ravel(), array.values.ravel(), atol=6e-4)


def test_the_repr_of_an_attribution_names_method_and_answer(traced):
    result = traced.attribute()
    assert f"method=integrated-gradients, answer={result.notes['answer']}" in repr(result)
    assert result.to_json()["error"] == result.notes["error"]
    assert f"encoder: {len(result['encoder'].values)} position" in repr(result)


def test_an_ablation_names_what_is_off(traced):
    off = traced.ablate(heads="decoder.0.cross.1", positions=[("encoder", 2)])
    assert "off=decoder.0.cross.1, encoder at 2" in repr(off)
    assert off.to_json()["words"] == off.words


def test_words_stand_beside_their_numbers(traced):
    result = traced.candidates(2)
    table = Tables(result.probabilities._repr_html_()).tables[0]
    assert table[1][1] == f"{result.logits.notes['words'][0][0]} {result.probabilities.values[0, 0]:.3f}"


def test_a_large_table_is_truncated_and_says_so():
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


def test_a_trace_is_shown_with_each_answer_and_its_probability(traced, make):
    facts, (_, *answers) = Tables(traced._repr_html_()).tables
    fact = dict(facts)
    assert fact["output"] == traced.output_text and fact["difference"] == f"{traced.difference:.1e}"
    assert fact["stacks"] == "; ".join(map(str, traced.stacks))
    expected = [
        [str(n), each.label, f"{float(traced.p_AW[n, each.token]):.3g}"]
        for n, each in enumerate(traced.subject.answers)
    ]
    assert answers == expected


def test_only_the_last_of_many_answers_are_shown(traced, monkeypatch):
    monkeypatch.setattr("regard.inside.notebook.MOST_ROWS", 2)
    count = len(traced.subject.answers)
    assert f"the last 2 of {count}" in traced._repr_html_()
    _, (_, *answers) = Tables(traced._repr_html_()).tables
    assert [row[0] for row in answers] == [str(count - 2), str(count - 1)]


def test_scores_of_heads_have_tables_and_a_repr_of_one_line(traced):
    scores = traced.heads(["entropy", "self"])
    assert len(Tables(scores._repr_html_()).tables) == 2
    assert repr(scores) == f"{{'entropy': {scores['entropy'].size}, 'self': {scores['self'].size}}}"


def test_indexing_by_label_or_number_removes_the_first_axis():
    words = [["a", "b"], ["c", "d"]]
    square = named("p", [[1, 2], [3, 4]], [("part", ["one", " two"]), ("rank", ["1", "2"])], "nats", words=words, of=7)
    for which in ("two", " two", 1, -1, np.int64(1)):
        row = square[which]
        assert (row.values.tolist(), row.axes, row.labels, row.unit) == ([3, 4], ("rank",), (["1", "2"],), "nats")
        assert row.notes == {"words": ["c", "d"], "of": 7}
    assert square["two"]["2"] == square[1][1] == 4.0 and isinstance(square[1][1], float)
    assert [list(row) for row in square] == [[1, 2], [3, 4]]
    assert len(square) == 2 and square.shape == (2, 2)


@pytest.mark.parametrize(
    ("which", "says"),
    [
        ("tow", "(?s)no part 'tow'.*Did you mean 'two'"),
        ("the", "(?s)not the only part.*0, 2, counted from 0"),
        (3, "(?s)no part 3.*Use one from 0 to 2"),
        (slice(2), "neither a label nor a number"),
        (True, "neither a label nor a number"),
    ],
)
def test_unknown_labels_are_refused_with_the_nearest_one(which, says):
    with pytest.raises(UsageError, match=says):
        named("p", [1, 2, 3], [("part", ["the", "two", "the"])])[which]
