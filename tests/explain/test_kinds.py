"""Every kind of every model in every format: the numbers are those of the trace, and pages are self-contained."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import fields, replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from regard.errors import UsageError
from regard.explain import lens, page
from regard.explain.attention import attention
from regard.explain.candidates import percent
from regard.explain.kinds import EXTENSIONS, KINDS, find, input_of
from regard.explain.pieces import tokens
from regard.explain.sheet import label
from regard.explain.view import Choice, View, default_kind
from regard.explain.writing import content
from regard.inside.faithfulness import faithfulness
from regard.inside.trace import Trace

MODELS = ["language", "language-gru", "translator", "translator-bahdanau", "masked", "text-classifier", "vit"]
MODELS += ["captioner", "language-hyena", "language-local", "translator-additive"]
DRAWN = ("translator", "vit", "language-hyena")  # also as an SVG, which takes longer
OF_A_RUN = ("beams", "positions")  # those that ask the run itself; tested with whole ones
# What a model does not have.
NO_ATTENTION = {"language-gru", "language-hyena"}
WITHOUT = {
    "attention": NO_ATTENTION,
    "heads": NO_ATTENTION,
    "alignment": set(MODELS),  # whole runs have words
    "rollout": NO_ATTENTION | {"translator-bahdanau", "translator-additive"},
    "toeplitz": set(MODELS) - {"language-hyena"},
}
CASES = [(kind, model) for kind in KINDS if kind not in OF_A_RUN for model in MODELS]
CASES += [("attention", "swin"), ("lens", "swin")]
CASES += [(kind, "segmenter") for kind in ("attention", "rollout", "lens", "contributions", "ablation", "candidates")]


@pytest.mark.parametrize(("kind", "model"), CASES)
def test_every_kind_of_every_model_is_written_in_full_or_refused_in_three_lines(run, kind, model):
    small = run(model)
    if model in WITHOUT.get(kind, ()):
        with pytest.raises(UsageError) as refused:
            small.explain(kind)
        assert len(str(refused.value).splitlines()) == 3
        return
    explanation = small.explain(kind)
    content_json = json.loads(content(explanation, ".json"))
    assert (content_json["what"], content_json["run"], content_json["difference"]) == (
        kind,
        "runs/small",
        small.traced.difference,
    )
    assert content_json["difference"] < 1e-4
    for array in explanation.arrays:  # in full precision
        values = np.array(content_json["arrays"][array.name]["values"], dtype=float)
        np.testing.assert_array_equal(values, array.values.astype(float))
    rows = list(csv.reader(io.StringIO(content(explanation, ".csv").decode())))
    written = np.concatenate(
        [a.values.astype(float).ravel() for a in explanation.arrays if a.axes == explanation.arrays[0].axes]
    )
    assert len(rows) == 1 + written.size and len(set(rows[0])) == len(rows[0]) == len(rows[1])
    assert len({tuple(row[:-1]) for row in rows}) == len(rows)  # each says what it is about
    np.testing.assert_array_equal([float(row[-1] or "nan") for row in rows[1:]], written)
    figure = explanation.figure()
    drawn = "\n".join(text.get_text() for text in figure.texts)
    assert explanation.title.split()[0] in drawn
    assert "recomputed from the formulas: logits differ by at most" in drawn
    if model in DRAWN:
        assert explanation.title.split()[0] in "".join(ElementTree.fromstring(content(explanation, ".svg")).itertext())


def test_a_csv_tells_recurring_tokens_apart_and_has_the_words(run):
    def first_rows(kind: str, model: str = "language") -> list[str]:
        return content(run(model).explain(kind), ".csv").decode().splitlines()[:3]

    assert first_rows("tokens") == ["position number,position,id", "1,5,5", "2,9,9"]
    assert first_rows("tokens", "vit")[0] == "position number,position,number"
    assert (
        first_rows("attention")[0]
        == "layer,head,position number,position,looked at number,looked at,attention (weight)"
    )
    for kind, columns in (("candidates", "array,answer,rank,word,value"), ("lens", "array,layer,answer,word,value")):
        array = run("language").explain(kind).arrays[0]
        header, first, _ = first_rows(kind)
        assert header == columns and first.split(",")[3] == array.notes["words"][0][0]


@pytest.mark.parametrize(
    ("kind", "columns", "names"),
    [
        ("attribution", "position number,position", ["attribution, encoder (logit)", "attribution, decoder (logit)"]),
        ("heads", "part,head", ["importance (nats)", "entropy", "previous", "copying", "first", "self"]),
    ],
)
def test_a_csv_has_every_array_with_the_axes_of_the_first_by_name(run, kind, columns, names):
    head, *rows = csv.reader(io.StringIO(content(run("translator").explain(kind), ".csv").decode()))
    assert head == ["array", *columns.split(","), "value"]
    assert list(dict.fromkeys(row[0] for row in rows)) == names


def names_drawn(svg: bytes) -> set[str]:
    return {text.strip() for text in ElementTree.fromstring(svg).itertext() if text.strip()}


@pytest.mark.parametrize("model", ["translator", "language", "text-classifier"])
def test_tokens_can_be_read_and_searched_in_an_svg(run, model):
    explanation = run(model).explain("attention")
    assert {label(piece) for piece in explanation.arrays[0].labels[-1]} <= names_drawn(content(explanation, ".svg"))


class Page(HTMLParser):
    """What matters of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.mark.parametrize(("kind", "model"), [("attention", "translator"), ("lens", "language"), ("attribution", "vit")])
def test_a_page_needs_nothing_else_and_has_its_numbers_as_tables(run, kind, model):
    explanation = run(model).explain(kind)
    text = content(explanation, ".html").decode()
    read = Page(text)
    assert not read.open and read.all("html") == [{"lang": "en"}] and len(read.all("title")) == 1
    assert not re.search(r"https?://", text) and not read.all("script") and not read.all("link")
    [svg] = read.all("svg")
    assert svg["role"] == "img" and explanation.title.split(":")[0] in str(svg["aria-label"])
    assert len(read.all("caption")) == len(read.all("table")) >= len(explanation.arrays)
    assert {attributes["scope"] for attributes in read.all("th")} == {"row", "col"}
    assert f"{float(explanation.arrays[0].values.flat[0]):.4g}" in text
    assert f"{explanation.difference:.1e}" in text


def test_a_page_with_too_many_numbers_says_where_they_are(run, monkeypatch):
    monkeypatch.setattr(page, "MOST_NUMBERS", 10)
    assert "too many for a page" in content(run("language").explain("attention"), ".html").decode()


def test_the_extension_sets_the_format_and_no_other_file_is_written(run, tmp_path):
    explanation = run("language").explain("rollout")
    for ending in EXTENSIONS:
        explanation.save(tmp_path / f"new/rollout{ending.upper()}")
    assert len(list((tmp_path / "new").iterdir())) == len(EXTENSIONS)
    with Image.open(tmp_path / "new/rollout.PNG") as picture:
        assert picture.format == "PNG" and min(picture.size) > 300
    with pytest.raises(UsageError, match=r"(?s)unknown extension.*\.png, \.svg, \.html, \.json or \.csv"):
        explanation.save(tmp_path / "rollout.jpg")
    assert content(explanation, ".svg") == content(explanation, ".svg")  # the same picture is the same file


STRANGE = ["\0", "\udcff", "$x_{", "<b>&", "مرحبا", "日本語", "\u0301", "\u202e", "🙂", " ", "\n", "", '"quoted"']


@pytest.mark.parametrize(("make", "start"), [(attention, 0), (tokens, 7)])
def test_any_token_can_be_drawn(run, make, start):
    small = run("language")
    pieces = STRANGE[start : start + 6]
    stack = replace(small.traced.stacks[0].stack, pieces=pieces)
    odd = replace(small.looked_at, stacks=[stack], name_of=STRANGE.__getitem__)
    view = View(small, ("given",))
    view.trace = Trace(odd, [replace(small.traced.stacks[0], stack=stack)], small.traced.logits_AW)
    explanation = replace(make(view), input_text="".join(STRANGE), output_text="".join(STRANGE))
    ElementTree.fromstring(content(explanation, ".svg"))
    assert not Page(content(explanation, ".html").decode()).open
    assert content(explanation, ".png").startswith(b"\x89PNG")
    assert json.loads(content(explanation, ".json")) and content(explanation, ".csv")


# ---------------------------------------------------------------- what is asked for


def test_the_default_kind_depends_on_the_model(run):
    assert default_kind(View(run("translator"), ("given",))) == "attention"
    assert run("language-gru").explain().what == "influence"


def test_layers_and_heads_are_chosen_by_number(run):
    every = run("translator").explain("attention").arrays[0]
    single = run("translator").explain("attention", layer=2, head=3).arrays[0]
    assert single.labels[:2] == (["2"], ["3"])
    np.testing.assert_array_equal(single.values[0, 0], every.values[1, 2])
    with pytest.raises(UsageError, match=r"(?s)no layer 3.*There are 2 here"):
        run("translator").explain("attention", layer=3)
    maps = run("vit").explain("attention", layer=1, head=2)
    assert maps.arrays[0].values.shape[:2] == (1, 1)


def test_a_stack_is_chosen_by_name(run):
    encoder = run("translator").explain("attention", stack="encoder")
    assert encoder.arrays[0].values.shape == (2, 4, 5, 5) and "encoder" in encoder.title
    with pytest.raises(UsageError, match=r"(?s)no stack 'encodr'.*Did you mean 'encoder'"):
        run("translator").explain("attention", stack="encodr")


def test_cross_attention_is_refused_where_there_is_none(run):
    with pytest.raises(UsageError, match="no cross-attention"):
        run("language").explain("attention", stack="cross")


def test_a_decoder_with_cross_attention_only_has_no_self_attention(run):
    small = run("translator-bahdanau")
    with pytest.raises(UsageError, match=r"(?s)decoder of this model has no self-attention.*Use --stack cross"):
        small.explain("attention", stack="decoder")
    assert "source" in small.explain("attention", stack="cross").title
    with pytest.raises(UsageError, match=r"(?s)encoder of this model has no attention.*every model has\.$"):
        small.explain("attention", stack="encoder")


def test_the_lens_after_the_last_layer_is_the_model(run):
    [remark] = run("language").explain("lens").remarks
    assert remark == "after the last layer this is the model's own distribution: agreement 100 %, KL 0.00 nats"


def test_an_answer_and_another_token_are_chosen(run):
    small = run("language")
    explanation = small.explain("contributions", answer=2, token="17")
    expected = small.traced.contributions(1, 17)
    np.testing.assert_array_equal(explanation.arrays[0].values, expected.values)
    assert explanation.arrays[0].values.sum() == pytest.approx(float(small.traced.logits_AW[1, 17]), abs=1e-4)
    with pytest.raises(UsageError, match="no answer 99"):
        small.explain("contributions", answer=99)
    with pytest.raises(UsageError, match="no output 'king'"):
        small.explain("contributions", token="king")


def test_attributions_are_those_of_the_method_with_their_faithfulness(run):
    small = run("text-classifier")
    for method in ("integrated-gradients", "occlusion"):
        explanation = small.explain("attribution", method=method)
        expected = small.traced.attribute(method)
        np.testing.assert_allclose(explanation.arrays[0].values, expected["layers"].values, atol=1e-6)
        assert explanation.facts["faithfulness"]["deletion"] == pytest.approx(expected.faithful().deletion)
        assert "random order" in explanation.checks[0]
    pair = run("translator")
    explanation = pair.explain("rollout", stack="encoder")
    expected = faithfulness(
        pair.traced, {"encoder": pair.traced.rollout("encoder").values.mean(0)}, pair.traced.first_answer
    )
    assert explanation.facts["faithfulness"]["deletion"] == pytest.approx(expected.deletion)
    with pytest.raises(UsageError, match=r"(?s)attribution method 'oclusion'.*'occlusion'"):
        small.explain("attribution", method="oclusion")


@pytest.mark.parametrize(
    ("kind", "chosen"),
    [
        ("lens", {"stack": "encoder"}),
        ("attention", {"method": "occlusion"}),
        ("", {"method": "foo"}),
        ("rollout", {"token": "17"}),
        ("lens", {"count": 5}),
        ("contributions", {"temperature": 0.5}),
        ("attention", {"reading": "reads"}),
        ("heads", {"answer": 1}),
    ],
)
def test_options_without_effect_are_refused(run, kind, chosen):
    [name] = chosen
    with pytest.raises(UsageError) as refused:
        run("language").explain(kind, **chosen)
    what, why, _ = str(refused.value).splitlines()
    assert what == f"--{name} has no effect here." and (kind or "attention") in why


def test_every_option_has_an_effect_on_some_kind():
    assert {name for kind in KINDS.values() for name in kind.takes} == {each.name for each in fields(Choice)}


@pytest.mark.parametrize("kind", ["lens", "candidates"])
def test_a_given_text_is_not_called_the_output(run, kind):
    def drawn(model: str, **choice) -> str:
        explanation = run(model).explain(kind, **choice)
        return "\n".join(text.get_text() for each in explanation.figure().axes for text in each.texts)

    assert [answer.given for answer in run("language").looked_at.answers] == [True] * 5 + [False]
    assert "the input, then the output" in drawn("language")
    assert "the output" in drawn("translator") and "the input" not in drawn("translator")
    if kind == "lens":
        assert "the output" not in drawn(model="language", answer=2)


@pytest.mark.parametrize("kind", ["attention", "rollout", "attribution", "influence"])
def test_the_explained_patch_is_framed_and_named(run, kind):
    small = run("segmenter")
    explanation = small.explain(kind, answer=5)
    subject = small.looked_at
    p = float(small.traced.p_AW[4, subject.answers[4].token])
    named = f"of the patch in row 2, column 2: '{subject.answers[4].label}' ({p:.1%}), answer 5 of 6"
    assert explanation.remarks[0] == named
    pictures = [image.get_array() for axes in explanation.figure().axes for image in axes.images]
    first = np.asarray(pictures[0])
    assert first[4:8, 4:8][[0, 0, -1, -1], [0, -1, 0, -1]].tolist() == [[255, 60, 60]] * 4
    assert first[5, 5].tolist() != [255, 60, 60]
    default = small.explain(kind).remarks[0]
    assert f"answer {small.traced.first_answer + 1} of 6" in default


def test_of_many_patches_those_around_the_explained_one_are_drawn(run, monkeypatch):
    small = run("segmenter")
    monkeypatch.setattr(lens, "MOST_ANSWERS", 3)
    first = min(max(0, small.traced.first_answer - 1), 3)
    assert small.explain("lens").remarks[0] == f"drawn: answers {first + 1} to {first + 3} of 6"
    assert "drawn" not in small.explain("lens", answer=1).remarks[0]
    monkeypatch.setattr(lens, "MOST_ANSWERS", 4)
    assert run("language").explain("lens").remarks[0] == "drawn: the last 4 of 6 answers"


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (1, "100%"),
        (0.996, "100%"),
        (0.0149, "1%"),
        (0.00994, "0.99%"),
        (0.0002, "0.02%"),
        (0, "0%"),
        (1e-9, "<0.0001%"),
    ],
)
def test_small_probabilities_have_two_significant_digits(p, text):
    assert percent(p) == text


def test_a_remark_says_that_probabilities_do_not_sum_to_one(run):
    assert "each class has its own sigmoid" in " ".join(run("detector").explain("candidates").remarks)
    assert "sigmoid" not in " ".join(run("vit").explain("candidates").remarks)


def test_ablation_shows_the_effect_of_each_head_and_part(run):
    small = run("language")
    effects = small.explain("ablation").arrays[0]
    row = effects.labels[0].index("layer 2, self-attention")
    for column, off in ((2, {"heads": ["layers.1.mixer.2"]}), (-1, {"parts": ["layers.1.mixer"]})):
        change = small.traced.ablate(**off).change.values.mean()
        assert effects.values[row, column] == pytest.approx(change, abs=1e-5)
    assert np.isnan(effects.values[effects.labels[0].index("layer 2, feed-forward"), 0])


def test_unknown_kinds_get_a_suggestion():
    with pytest.raises(UsageError, match=r"(?s)'atention'.*Did you mean 'attention'"):
        find("atention")


def test_missing_and_superfluous_inputs_are_refused(run):
    small = run("language")
    cases = {
        ("attention", ""): "A text is missing",
        ("positions", "hello"): "An input has no effect",
        ("attention", "\udcff"): "not Unicode",
    }
    for (what, text), says in cases.items():
        with pytest.raises(UsageError, match=says):
            input_of(small, what, text)
    with pytest.raises(UsageError, match=r"(?s)An input has no effect.*'positions' takes no input"):
        small.explain("positions")  # in Python as well
    with pytest.raises(UsageError, match="A target has no effect here"):
        input_of(small, "", "hello", target="x")
    with pytest.raises(UsageError, match="A context has no effect here"):
        input_of(small, "", "hello", context="x")
    assert input_of(small, "", "hello") == ("hello",) and input_of(small, "toeplitz", "") == ()


def test_runs_without_layers_are_refused():
    words = SimpleNamespace(folder=SimpleNamespace(path=Path("w")), about=SimpleNamespace(noun="words", verb="use"))
    with pytest.raises(UsageError, match="no layers to explain"):
        input_of(words, "attention", "hello")
