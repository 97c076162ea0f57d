"""What if: the answers of a changed model on the page are those of a model that is changed in that way."""

import json
import urllib.request

import pytest
import torch

from browser import serving
from regard.data.tokenizers import END, START
from regard.errors import UsageError
from regard.explore.questions import answer
from regard.explore.session import Session

SENTENCE = "The old farmer helps the child."
GIVEN = {"text": SENTENCE}


@pytest.fixture(scope="module")
def session(trained):
    session = Session([trained], GIVEN)
    yield session
    session.close()


@pytest.fixture
def without_head(trained):
    """The logits of the same model with a head's columns of W_out zeroed: [A, W]."""

    def give(layer, head):
        subject, module = trained.subject(SENTENCE), trained.model.decoder[layer].cross
        width = module.to_out.in_features // module.heads
        before = module.to_out.weight.detach().clone()
        try:
            with torch.no_grad():
                module.to_out.weight[:, head * width : (head + 1) * width] = 0
            return subject.logits()[0], [each.token for each in subject.answers]
        finally:
            with torch.no_grad():
                module.to_out.weight.copy_(before)

    return give


def test_enter_submits_the_second_input(trained, opened):
    with opened(trained, text=SENTENCE, fragment="#view=what-if") as at:
        at.page.get_by_role("button", name="Patch", exact=True).first.click()
        field = at.page.locator("#second-input-text")
        field.fill("The old farmer helps the woman.")
        field.press("Enter")
        at.page.locator("#panel .heatmap, #panel .problem").first.wait_for()
        assert at.page.locator("#panel .problem").count() == 0
        assert at.page.locator("#panel .heatmap").count() > 0


def test_switching_a_head_off_equals_zeroing_its_weights(session, trained, without_head):
    with serving(session) as address:
        request = {"input": GIVEN, "what": "ablate", "options": {"heads": ["decoder.0.cross.1"]}}
        with urllib.request.urlopen(f"{address}api/ask", json.dumps(request).encode()) as response:
            result = json.loads(response.read())
    logits_AW, output = without_head(0, 1)
    before_A = trained.trace(SENTENCE).logits_AW.log_softmax(-1)[range(len(output)), output]
    after_A = logits_AW.log_softmax(-1)[range(len(output)), output]
    assert result["change"]["values"] == pytest.approx((after_A - before_A).tolist(), abs=1e-5)
    assert result["p_output"] == pytest.approx(after_A.exp().tolist(), abs=1e-5)
    assert result["after"]["tokens"] == logits_AW.argmax(-1).tolist()
    assert result["after"]["probabilities"] == pytest.approx(logits_AW.softmax(-1).amax(-1).tolist(), abs=1e-5)


def test_other_tokens_are_another_input(session, trained):
    subject = trained.subject(SENTENCE)
    source, target = subject.tokens
    swapped = [[source[1], source[0], *source[2:]], target]
    result = answer(session, 0, GIVEN, "change", {"tokens": swapped})
    logits_AW = subject.with_tokens(swapped).logits()[0]
    output = [each.token for each in subject.answers]
    expected = logits_AW.softmax(-1)[range(len(output)), output].tolist()
    assert result["p_output"] == pytest.approx(expected, abs=1e-5)
    overview = answer(session, 0, result["input"], "overview", {})
    assert overview["stacks"][0]["pieces"] == result["pieces"][0] != subject.stacks[0].pieces
    with pytest.raises(UsageError, match="as many"):
        answer(session, 0, GIVEN, "change", {"tokens": [source[:-1], target]})


def test_the_vocabulary_is_searched_by_prefix(session, trained):
    tokenizer = trained.tokenizers.both[0]
    matches = answer(session, 0, GIVEN, "vocabulary", {"prefix": "th", "stack": "encoder"})
    words = [tokenizer.piece(token) for token in range(tokenizer.size)]
    all_matches = [token for token, word in enumerate(words) if word.strip().lower().startswith("th")]
    assert matches["tokens"] == sorted(matches["tokens"], key=all_matches.index)
    assert len(matches["tokens"]) == min(20, len(all_matches))
    assert matches["words"] == [words[token] for token in matches["tokens"]]
    exact = answer(session, 0, GIVEN, "vocabulary", {"prefix": "the", "stack": "encoder"})
    assert exact["words"][0].strip().lower() == "the"


def test_patching_all_of_the_source_restores_the_other_output(session, trained):
    other = "The old farmer sees the child."
    effect = answer(session, 0, GIVEN, "patch", {"other": {"text": other}})
    here, there = trained.subject(SENTENCE), trained.subject(other)
    logits_AW = there.with_tokens([there.tokens[0], here.tokens[1]]).logits()[0]
    best = logits_AW.argmax(-1)
    own = here.logits()[0].argmax(-1)
    position = effect["answer"]
    assert position == (best != own).nonzero()[0, 0]
    assert effect["tokens"] == [here.name_of(int(best[position])), here.name_of(int(own[position]))]
    assert effect["clean"] == pytest.approx(
        float(logits_AW[position, best[position]] - logits_AW[position, own[position]]), abs=1e-4
    )
    effects = dict(zip(effect["labels"][0], effect["values"], strict=True))
    last = f"decoder.{len(trained.model.decoder) - 1}"
    assert effects[last][position] == pytest.approx(1, abs=1e-4)  # where the answer is read
    with pytest.raises(UsageError, match="differ in length"):
        answer(session, 0, GIVEN, "patch", {"other": {"text": "The child sleeps."}})


def test_the_page_switches_off_changes_and_patches(trained, opened, without_head):
    logits_AW, output = without_head(0, 1)
    with opened(trained, **GIVEN) as at:
        panel = at.view("What if")
        head = panel.get_by_role("button", name="decoder, layer 1, cross-attention, head 2 off")
        head.click()
        rows = panel.locator(".changes-table tbody tr")
        rows.first.wait_for()
        shown = [percent(each) for each in rows.locator("td:nth-child(4)").all_inner_texts()]
        expected = logits_AW.softmax(-1)[range(len(output)), output].tolist()
        assert shown == pytest.approx(expected, abs=1e-3)
        assert head.evaluate("element => element === document.activeElement")
        at.page.reload()  # what is off stands in the address
        panel = at.ready("What if")
        assert head.get_attribute("aria-pressed") == "true"
        assert panel.locator(".changes-table tbody td:nth-child(4)").first.inner_text() == f"{shown[0]:.1%}".replace(
            "%", " %"
        )
        assert at.page.locator("#head").get_by_text("cannot be read").count() == 0
        panel.get_by_label("also regenerate the output").check()
        panel.locator(".texts-beside").wait_for()

        panel.get_by_role("button", name="Change a token").click()
        at.ready("What if")
        panel.get_by_role("group", name="encoder: 8 tokens").get_by_role("button").nth(1).click()
        at.ready("What if")
        panel.get_by_label("in place of old").fill("young")
        panel.get_by_role("group", name="Tokens that start with this").get_by_role("button").first.click()
        at.ready("What if")
        assert panel.locator(".line .token.changed").first.inner_text().startswith("you")
        assert "The likeliest token changes at" in panel.locator(".summary").inner_text()

        panel.get_by_label("in place of").fill("farm")
        panel.get_by_label("in place of").press("Enter")
        first = panel.get_by_role("group", name="Tokens that start with this").get_by_role("button").first
        first.wait_for()
        at.page.wait_for_function("document.activeElement.closest('.suggestions')")
        assert first.inner_text().startswith("farm")
        panel.get_by_label("in place of").fill("child")
        panel.get_by_label("in place of").press("Enter")
        panel.get_by_label("in place of child").wait_for()
        assert panel.locator(".line .token.changed").first.inner_text() == "child"

        panel.get_by_role("button", name="Patch", exact=True).click()
        at.ready("What if")
        panel.get_by_label("Text").fill("The old farmer sees the child.")
        panel.get_by_role("group", name="Second input").or_(panel.locator("form")).get_by_role("button").click()
        at.ready("What if")
        field = panel.get_by_role("application").last
        field.press("End")
        field.press("Enter")
        assert "of the difference between" in panel.locator(".opened").inner_text()


def percent(text):
    return float(text.removesuffix("%").strip().replace("−", "-")) / 100


def test_the_file_has_each_ablation_by_itself(trained, page_on_disk, from_disk):
    change = trained.trace(SENTENCE).ablate(layers=["encoder.0"]).change.values
    with from_disk(page_on_disk) as at:
        panel = at.view("What if")
        panel.get_by_role("button", name="encoder, layer 1 off", exact=True).click()
        shown = panel.locator(".changes-table tbody td:nth-child(8)").all_inner_texts()
        assert [float(each.replace("−", "-")) for each in shown] == pytest.approx(change.tolist(), abs=1e-3)
        panel.get_by_role("button", name="encoder, layer 2 off", exact=True).click()
        assert "combination is not in the file" in panel.get_by_role("alert").inner_text()
        assert panel.locator(".changes-table").count() == 0


def test_changed_tokens_open_as_the_text_they_spell(session, trained, opened):
    """A changed source gets a new output; a changed output is given."""
    subject = trained.trace(SENTENCE).subject
    source, written = trained.tokenizers.both
    other = source.encode(["The young farmer helps the child."])[0]
    input_ = answer(session, 0, GIVEN, "input_for_tokens", {"tokens": [[*other, END], subject.tokens[1]]})["input"]
    assert input_ == {"text": "The young farmer helps the child."}
    target = written.encode(["Das Kind."])[0]
    tokens = [subject.tokens[0], [START, *target]]
    changed_output = answer(session, 0, GIVEN, "input_for_tokens", {"tokens": tokens})["input"]
    assert changed_output == {"text": SENTENCE, "target": written.decode([target])[0]}
    odd = [[*reversed(subject.tokens[0][:-1]), END], subject.tokens[1]]
    odd_input = answer(session, 0, GIVEN, "input_for_tokens", {"tokens": odd})["input"]
    assert session.traced(0, odd_input).trace.subject.tokens[0] == odd[0]
    with opened(trained, text=SENTENCE) as at:
        at.page.evaluate(
            "input => { location.hash = `#input=${encodeURIComponent(JSON.stringify(input))}` }",
            {
                "text": SENTENCE,
                "tokens": odd,
            },
        )
        note = at.page.locator("#head .warning")
        note.wait_for()
        assert "the tokens differ" in note.inner_text()
        assert at.page.locator("#head .model-output").inner_text().startswith("given output:")
        note.get_by_role("button", name="Undo").click()
        at.ready("Steps")
        assert at.page.locator("#head .model-output strong").inner_text() == subject.output_text


def test_the_ring_of_a_chosen_token_lies_over_the_next_row(trained, opened):
    fragment = "#view=what-if&change=token&stack=encoder&position=1"
    with opened(trained, text=SENTENCE * 3, width=500, fragment=fragment) as at:
        chosen = at.page.locator("#panel .token[aria-pressed=true]")
        below = "token => { const { left, bottom, width } = token.getBoundingClientRect();"
        below += " document.querySelectorAll('#panel .token').forEach((other) => { other.style.marginTop = '-4px'; });"
        below += " return document.elementFromPoint(left + width / 2, bottom - 5) === token; }"
        assert chosen.evaluate(below)
