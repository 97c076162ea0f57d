"""Attribution: scores, their sum and their faithfulness on the page are the trace's."""

import re
from functools import partial

import pytest

from regard.explore.questions import answer
from regard.explore.session import Session

SENTENCE = "The old farmer helps the child."


def test_the_question_gives_scores_and_their_faithfulness(trained):
    session = Session([trained], {"text": SENTENCE})
    content = answer(session, 0, session.first, "attribution", {"method": "occlusion", "answer": 1})
    attribution = trained.trace(SENTENCE).attribute("occlusion", answer=1)
    assert set(content["stacks"]) == {"encoder", "decoder"}
    for name, scores in attribution.stacks.items():
        assert content["stacks"][name]["values"] == pytest.approx(scores.values, abs=1e-5)
    measured = attribution.faithful()
    assert content["faithful"]["sufficiency"] == pytest.approx(measured.sufficiency, abs=1e-5)
    random = measured.insertion_curve.values[1:].mean(0)
    assert content["faithful"]["insertion_curve"]["random"] == pytest.approx(random, abs=1e-5)


def test_answer_and_method_are_chosen_and_numbers_are_the_models(trained, opened, page_on_disk, from_disk):
    trace = trained.trace(SENTENCE)
    for give in (partial(opened, trained, text=SENTENCE), partial(from_disk, page_on_disk)):
        with give() as at:
            panel = at.view("Attribution")
            panel.get_by_role("group", name=re.compile("^answers")).get_by_role("button").nth(1).click()
            at.ready()
            attribution = trace.attribute(answer=1)
            assert f"Sum over all positions {attribution.notes['sum']:.3f}".replace("-", "−") in panel.inner_text()
            panel.locator("summary", has_text="Numbers: Attribution, encoder").click()
            rows = (
                panel.get_by_role("table", name=re.compile("^Numbers: Attribution, encoder")).locator("tbody tr").all()
            )
            shown = [float(row.locator("td").last.inner_text().replace("−", "-")) for row in rows]
            assert shown == pytest.approx(attribution["encoder"].values, abs=1e-3)
            row = panel.get_by_role("row", name=re.compile("^comprehensiveness")).inner_text().split()
            assert float(row[1].replace("−", "-")) == pytest.approx(attribution.faithful().comprehensiveness, abs=1e-3)
    with opened(trained, text=SENTENCE, fragment="#view=attribution&answer=1") as at:
        panel = at.ready("Attribution")
        word = next(name for name in ("Hund", "Kind", "Mann") if name != trace.subject.answers[1].label.strip())
        panel.get_by_label("Another token instead").fill(word)
        panel.get_by_label("Another token instead").press("Enter")
        panel.get_by_role("group", name="Matches").get_by_role("button", name=word, exact=True).first.click()
        panel.get_by_role("heading", name=f"For “{word}”").or_(panel.locator("h2 q", has_text=word)).first.wait_for()
        at.ready()
        attribution = trace.attribute(answer=1, token=word)
        assert f"Sum over all positions {attribution.notes['sum']:.3f}".replace("-", "−") in panel.inner_text()
    with opened(trained, text=SENTENCE, fragment="#view=attribution&method=rollout") as at:
        assert at.page.locator("#panel").get_by_text("Is it faithful?").is_visible()


def test_a_model_without_attention_is_recomputed_too_and_has_no_rollout(hyena, opened):
    with opened(hyena, text="The old farmer") as at:
        shown = at.page.locator("#head .exact").inner_text().rpartition(" ")[2].rstrip(".").replace("−", "-")
        assert float(shown) == pytest.approx(hyena.trace("The old farmer").difference, rel=0.05)
        options = at.view("Attribution").get_by_label("method").locator("option").all_inner_texts()
        assert "occlusion" in options and "attention rollout" not in options
    with opened(hyena, text="The old farmer", fragment="#view=attribution&method=rollout") as at:
        assert at.page.get_by_label("method").input_value() == "integrated-gradients"


def test_scores_are_better_than_chance_only_if_they_beat_every_random_order(trained, opened):
    """The sentence gives the rank of the scores among the random orders."""
    trace = trained.trace(SENTENCE)
    with opened(trained, text=SENTENCE, fragment="#view=attribution") as at:
        for method in ("integrated-gradients", "gradient-input", "occlusion", "rollout"):
            at.page.get_by_label("method").select_option(method)
            at.ready("Attribution")
            measured = trace.attribute(method).faithful()
            beaten = measured.deletion_beats, measured.insertion_beats
            note = at.page.locator(".faithful .note").inner_text()
            ranks = f"better than {beaten[0]} of 10 random orders by deletion, {beaten[1]} of 10 by insertion"
            assert ranks in note, method
            assert ("not clearly better than chance" in note) == (10 not in beaten), method
            assert ("one measure only" in note) == (beaten.count(10) == 1), method
