"""Output: candidates, sampling in the page, words that are forced, and the beam tree."""

import pytest
import torch

from regard.decoding.sampling import truncate
from regard.errors import UsageError
from regard.explore.questions import answer
from regard.explore.session import Session

SENTENCE = "The old farmer helps the child."
GIVEN = {"text": SENTENCE}
SETTINGS = [(1.0, 0, 1.0), (0.5, 0, 1.0), (2.0, 0, 0.6), (1.3, 5, 1.0), (0.8, 7, 0.35), (1.0, 0, 0.05), (0.05, 0, 0.95)]


@pytest.fixture(scope="module")
def session(trained):
    session = Session([trained], GIVEN)
    yield session
    session.close()


def test_candidates_are_the_likeliest_tokens(session, trained):
    trace = trained.trace(SENTENCE)
    candidates = answer(session, 0, GIVEN, "candidates", {"answer": 2})
    log_p_W = trace.logits_AW[2].clone()
    log_p_W[list(trace.subject.never)] = -torch.inf
    best = log_p_W.softmax(-1).topk(20)
    assert candidates["tokens"] == best.indices.tolist()
    assert candidates["probabilities"] == pytest.approx(best.values.tolist(), abs=1e-6)
    assert candidates["words"][0] == trained.tokenizers.both[1].piece(candidates["tokens"][0])
    assert candidates["rank"] == 1 and candidates["never"] == [0, 1]
    with pytest.raises(UsageError, match="no answer"):
        answer(session, 0, GIVEN, "candidates", {"answer": 99})


def test_a_forced_word_is_an_input_of_its_own(session, trained):
    other = answer(session, 0, GIVEN, "candidates", {"answer": 1})["tokens"][1]
    forced = answer(session, 0, GIVEN, "force", {"answer": 1, "token": other})
    expected = trained.trace(SENTENCE).force(1, other)
    overview = answer(session, 0, forced["input"], "overview", {})
    assert overview["output_text"] == forced["output_text"] == expected.subject.output_text
    assert [each["token"] for each in overview["answers"]] == [each.token for each in expected.subject.answers]
    p_A = expected.p_AW.gather(1, torch.tensor([[each.token] for each in expected.subject.answers]))[:, 0]
    assert [each["probability"] for each in overview["answers"]] == pytest.approx(p_A.tolist(), abs=1e-5)
    with pytest.raises(UsageError, match="cannot be read"):
        answer(session, 0, GIVEN | {"forced": [10**6]}, "overview", {})


def test_a_language_model_continues(language):
    session = Session([language], {"text": "The old"})
    continuation = answer(session, 0, {"text": "The old"}, "continuation", {"more": 6})
    ids = language.subject("The old", more=6).tokens[0]
    assert continuation["tokens"] == ids[-6:] and continuation["input"]["tokens"] == [ids]
    forced = answer(session, 0, {"text": "The old"}, "force", {"answer": 3, "token": ids[1]})
    assert forced["input"]["tokens"][0][:5] == [*ids[:4], ids[1]]


def test_given_tokens_are_not_called_output(language, opened):
    with opened(language, text="The old", fragment="#view=output&answer=1") as at:
        panel = at.ready("Output")
        assert panel.locator(".note").first.inner_text().startswith("The tokens of the input")
        assert "the given token is ranked" in panel.locator(".candidates-section .summary").inner_text()
        panel.get_by_role("group", name="Positions of the output").get_by_role("button").last.click()
        panel.get_by_text("the output is ranked 1").wait_for()


@pytest.mark.parametrize(("kind", "expected"), [("pixels", True), ("trained", False), ("image_classifier", False)])
def test_where_no_candidate_can_be_forced_the_page_says_so(kind, expected, request, opened):
    with opened(request.getfixturevalue(kind), fragment="#view=output") as at:
        note = at.ready("Output").get_by_text("Candidates cannot be forced in this kind of run.")
        assert note.count() == expected


@pytest.mark.parametrize("beam", [None, 1, 3])
def test_the_beam_tree_ends_in_the_translation(session, trained, beam):
    tree = answer(session, 0, GIVEN, "beams", {} if beam is None else {"beam": beam})
    [translation] = trained.translate([SENTENCE], **({} if beam is None else {"beam": beam}))
    assert tree["text"] == translation
    tokens, node = [], tree["nodes"][tree["winner"]]
    while node["parent"] is not None:
        tokens.insert(0, node["token"])
        node = tree["nodes"][node["parent"]]
    assert trained.tokenizers.both[1].decode([tokens[:-1]]) == [translation]


def test_the_page_samples_with_the_probabilities_of_truncate(trained, opened):
    trace = trained.trace(SENTENCE)
    logits_AW = trace.logits_AW.clone()
    logits_AW[:, list(trace.subject.never)] = -torch.inf
    with opened(trained, **GIVEN) as at:
        panel = at.view("Output")
        panel.get_by_role("group", name="Positions of the output").get_by_role("button").nth(3).click()
        at.ready("Output")
        for name, value in (("temperature", 1.6), ("top-k", 12), ("top-p", 0.85)):
            panel.get_by_label(name).fill(str(value))
        p_NW, _ = truncate(logits_AW[3:4], 1.6, 12, 0.85)
        shown = panel.locator(".candidates tbody tr td:nth-child(4)").all_text_contents()
        assert [float(each) for each in shown[:12]] == pytest.approx(p_NW[0].tolist(), abs=1e-3)
        assert {float(each) for each in shown[12:]} == {0.0}
        assert f"{int((p_NW > 0).sum())} of " in panel.locator(".candidates-section .summary").inner_text()
        assert at.page.evaluate(BY_THE_PAGE, [logits_AW[3].tolist(), SETTINGS]) == [
            pytest.approx(_drawn(logits_AW[3], *each), abs=1e-6) for each in SETTINGS
        ]
        _force_and_go_back(at, panel, trace)
        _read_the_tree(panel, trained)


BY_THE_PAGE = """async ([logits, settings]) => {
  const { ordered, truncated } = await import("regard/sampling.js");
  const all = logits.map((each) => each ?? -Infinity);
  const order = ordered(all);
  return settings.map(([temperature, topK, topP]) => {
    const p = new Array(all.length).fill(0);
    truncated(all, order, { temperature, topK, topP }).forEach((each, i) => (p[order[i]] = each));
    return p;
  });
}"""


def _drawn(logits_W, temperature, top_k, top_p):
    """The probability of every word, in the order of the vocabulary."""
    p_1X, tokens_1X = truncate(logits_W[None], temperature, top_k, top_p)
    return torch.zeros_like(logits_W)[None].scatter(1, tokens_1X, p_1X)[0].tolist()


def _force_and_go_back(at, panel, trace):
    token = trace.candidates(2).logits.notes["tokens"][3][1]
    expected = [each.label for each in trace.force(3, token).subject.answers]
    panel.locator(".candidates button").nth(1).click()
    panel.get_by_role("heading", name="A token was forced").wait_for()
    at.ready("Output")
    now = panel.locator(".texts-beside .line").nth(1).locator(".token").all_inner_texts()
    assert now == [word.strip() or "␣" for word in expected]
    assert panel.locator("ins.changed").count() > 0
    forced = panel.locator(".texts-beside .forced-mark + .token")
    assert forced.count() == 1 and forced.inner_text() == now[3]
    assert panel.locator(".output-positions .forced-token").inner_text() == now[3]
    assert at.session.tasks[0].settings.decoding.beam == 1
    assert "the likeliest token at each step (beam = 1)" in panel.locator(".forced .note").inner_text()
    panel.get_by_role("button", name="Back to the original output").click()
    panel.locator(".search").wait_for()
    assert at.page.locator(".model-output strong").inner_text() == trace.subject.output_text


def _read_the_tree(panel, trained):
    panel.get_by_label("beams").select_option("2")
    panel.get_by_text("the 2 likeliest hypotheses are").wait_for()
    [translation] = trained.translate([SENTENCE], beam=2)
    assert panel.locator(".winner").inner_text() == translation
    best = trained.translator(beam=2).translate([SENTENCE])[0][0]
    row = panel.locator(".search table").first.locator("tbody tr").first
    assert row.locator("th").inner_text() == translation
    assert float(row.locator("td").nth(2).inner_text().replace("−", "-")) == pytest.approx(best.score, abs=1e-3)
    assert panel.locator(".beam-tree .hypothesis.won").count() == len(best.tokens) + 2  # <start> and <end>
    assert panel.locator(".beam-tree .branch.pruned").count() > 0


def test_the_file_has_candidates_and_the_tree(trained, page_on_disk, from_disk):
    trace = trained.trace(SENTENCE)
    with from_disk(page_on_disk, fragment="#view=output&answer=4") as at:
        panel = at.ready("Output")
        panel.get_by_label("temperature").fill("0.7")
        logits_AW = trace.logits_AW.clone()
        logits_AW[:, list(trace.subject.never)] = -torch.inf
        p_NW, _ = truncate(logits_AW[4:5], 0.7)
        shown = panel.locator(".candidates tbody tr td:nth-child(4)").all_text_contents()
        assert [float(each) for each in shown] == pytest.approx(p_NW[0, : len(shown)].tolist(), abs=1e-3)
        assert panel.locator(".winner").inner_text() == trace.subject.output_text
        assert panel.locator(".candidates button").count() == 0  # nothing can be forced without the model
