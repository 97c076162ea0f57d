"""The input of the page: warnings, uploads, invalid addresses, and impossible questions."""

import re
from contextlib import contextmanager

import pytest
import torch
from asking import ask

from browser import PATIENCE, Opened, serving
from regard.errors import RegardError, UsageError
from regard.explore.recording import write_page
from regard.explore.session import MOST_IMAGE, Session

SENTENCE = "The old farmer helps the child."
LONG = "The old farmer helps the child. " * 5


@pytest.fixture
def served(chromium):
    """As `opened`, but errors in the console are allowed, because the server may refuse."""

    @contextmanager
    def give(task, **first):
        session = Session([task], first)
        with serving(session) as address:
            context = chromium.new_context()
            context.set_default_timeout(PATIENCE)
            at = Opened(context.new_page(), session, address)
            at.page.goto(address)
            at.ready()
            yield at
            context.close()
        session.close()

    return give


@pytest.mark.parametrize(
    ("kind", "message"), [("trained", "longer than any sentence"), ("language", "only the last 63 are read")]
)
def test_a_cut_input_has_a_warning(kind, message, request):
    session = Session([request.getfixturevalue(kind)], {"text": LONG})
    [warning] = session.traced(0, session.first).warnings
    assert message in warning
    assert session.traced(0, {"text": "The child"}).warnings == [], "of another input"
    session.close()


def test_the_page_and_the_file_show_the_warning(language, opened, from_disk, tmp_path):
    with opened(language, text=LONG) as at:
        [warning] = at.session.traced(0, at.session.first).warnings
        assert warning in at.page.locator("#head .warning").inner_text()
        write_page(at.session, tmp_path / "page.html")
    with from_disk(tmp_path / "page.html") as at:
        assert warning in at.page.locator("#head .warning").inner_text()


# ---------------------------------------------------------------- uploads


def test_an_uploaded_image_has_a_short_name(image_classifier, pictures):
    picture = next((pictures / "test").rglob("*.png"))
    session = Session([image_classifier])
    image = session.upload(f"../of mine/{picture.name}", picture.read_bytes())
    assert re.fullmatch(f"sent/[0-9a-f]{{12}}-{picture.name}", image)
    expected = image_classifier.trace(picture).logits_AW
    assert torch.equal(session.traced(0, {"image": image}).trace.logits_AW, expected)
    session.close()
    later = Session([image_classifier])
    with pytest.raises(UsageError, match=f"'{picture.name}' is no longer here"):
        later.traced(0, {"image": image})
    for raw, message in ((b"", "empty"), (b"0" * (MOST_IMAGE + 1), "over")):
        with pytest.raises(UsageError, match=message):
            later.upload("x.png", raw)
    later.close()


def test_an_error_about_an_upload_names_the_users_file(image_classifier):
    session = Session([image_classifier])
    with pytest.raises(RegardError) as caught:
        session.traced(0, {"image": session.upload("holiday.png", b"not an image")})
    text = f"{caught.value.what} {caught.value.why}"
    assert "'holiday.png'" in text and "regard-explore" not in text
    session.close()


def test_an_uploaded_image_stays_chosen(image_classifier, pictures, served):
    picture = next((pictures / "test" / "down").glob("*.png"))
    with served(image_classifier) as at:
        first = at.session.first["image"]
        chooser = at.page.get_by_label("Open an image of your own")
        chooser.set_input_files(picture)
        at.page.wait_for_url(re.compile("sent"))
        at.ready()
        assert len(at.page.url) < 200 and picture.name in at.page.locator("#head select").inner_text()
        shown = at.page.locator("#head .model-output strong").inner_text()
        assert shown == image_classifier.trace(picture).subject.output_text
        address = at.page.url
        at.page.get_by_role("button", name="Inspect").click()
        at.ready()
        assert at.page.url == address

        chooser.set_input_files({"name": "holiday.png", "mimeType": "image/png", "buffer": b"not an image"})
        problem = at.page.locator("#panel .problem")
        for _ in range(2):
            problem.wait_for()
            assert (
                "'holiday.png'" in problem.inner_text() and at.page.locator("#head .model-output, #tabs *").count() == 0
            )
            at.page.get_by_role("button", name="Inspect").click()
            at.ready()
        at.page.get_by_label("Image", exact=True).select_option(first)
        problem.wait_for(state="detached")
        at.ready()


def test_submitting_waits_for_an_upload_in_progress(image_classifier, pictures, served):
    picture = next((pictures / "test").rglob("*.png"))
    with served(image_classifier) as at:
        waiting = []
        at.page.route("**/api/upload*", lambda route: waiting.append(route))
        chooser = at.page.get_by_label("Open an image of your own")
        with at.page.expect_request("**/api/upload*"):
            chooser.set_input_files(picture)
        at.page.get_by_role("button", name="Inspect").click()
        assert "sent" not in at.page.url
        waiting.pop().continue_()
        at.page.wait_for_url(re.compile("sent"))
        at.ready()
        assert picture.name in at.page.locator("#head select").inner_text()

        # A later choice counts, even if the upload finishes after it.
        with at.page.expect_request("**/api/upload*"):
            chooser.set_input_files(picture)
        at.page.get_by_label("Image", exact=True).select_option(at.session.first["image"])
        at.page.wait_for_function("!location.hash.includes('sent')")
        with at.page.expect_response("**/api/upload*"):
            waiting.pop().continue_()
        at.view("Output")
        assert "sent" not in at.page.url


# ---------------------------------------------------------------- invalid addresses


NONSENSE = {
    "#view=output&temperature=abc&topk=-1&answer=x": ["temperature", "topk", "answer"],
    "#view=heads&head=1.5&layer=[]&run=7": ["head", "layer", "run"],
    "#input={broken": ["input"],
    "#input=3&position={}": ["input", "position"],
    "#run=null&input=null": ["run", "input"],
    '#view=what-if&off={"heads":5}&window={"rows":[5,1]}': ["off", "window"],
    "#__proto__=1&constructor=2&toString=3": [],
}


def test_invalid_values_in_the_address_are_reported_and_ignored(trained, opened):
    with opened(trained, text="The old farmer helps the child.", fragment=next(iter(NONSENSE))) as at:
        for fragment, names in NONSENSE.items():
            at.page.evaluate("fragment => { location.hash = fragment; }", fragment)
            warnings = at.page.locator("#head .warning")
            for number, name in enumerate(names):
                warnings.nth(number).filter(has_text=f"“{name}”").wait_for()
            if not names:
                warnings.first.wait_for(state="detached")
            at.ready()
            assert warnings.count() == len(names) and at.page.locator(".problem").count() == 0
            assert at.page.get_by_label("Text").input_value() == "The old farmer helps the child."


def test_a_refused_input_clears_what_was_shown_of_the_previous_one(trained, served):
    with served(trained, text="The old farmer helps the child.") as at:
        assert at.page.locator("#head .model-output").count() == 1
        at.page.get_by_label("Text").fill("")
        at.page.get_by_role("button", name="Inspect").click()
        at.page.locator("#panel .problem").wait_for()
        assert "text is missing" in at.page.locator("#panel").inner_text()
        assert at.page.locator("#head .model-output, #tokens *, #tabs *").count() == 0
        at.page.get_by_label("Text").fill("The dog sleeps.")
        at.page.get_by_role("button", name="Inspect").click()
        at.page.locator("#head .model-output").wait_for()
        at.ready()
        assert at.page.locator("#head .model-output strong").inner_text() == trained.translate(["The dog sleeps."])[0]


# ---------------------------------------------------------------- the file, and answers in words


def test_the_file_offers_no_other_image_and_names_the_command_for_the_live_page(image_classifier, from_disk, tmp_path):
    session = Session([image_classifier])
    write_page(session, tmp_path / "page.html")
    session.close()
    name = image_classifier.folder.path.name
    with from_disk(tmp_path / "page.html") as at:
        assert at.page.get_by_label("Image", exact=True).is_disabled()
        assert at.page.locator("input[type=file]").count() == 0
        at.page.evaluate("""location.hash = '#input={"image":"other.png"}'""")
        at.page.locator("#panel .problem").wait_for()
        assert f"regard explore PATH/OF/{name}" in at.page.locator("#panel .problem").inner_text()


@pytest.mark.parametrize(
    ("kind", "text", "begins"), [("language", "The old farm", "next"), ("masked", "The [MASK] sleeps.", "filled in")]
)
def test_the_headline_has_the_models_answer(kind, text, begins, request, opened):
    run = request.getfixturevalue(kind)
    with opened(run, text=text) as at:
        shown = at.page.locator("#head .model-output strong").inner_text()
    traced = run.trace(text)
    p_W = traced.p_AW[-1]
    word = traced.subject.name_of(int(p_W.argmax())).strip() or "␣"
    assert re.fullmatch(f"{begins}: ‘{re.escape(word)}’ \\((.*) %\\)", shown)
    assert abs(float(shown.split("(")[1].split()[0]) - 100 * float(p_W.max())) < 0.06


@pytest.mark.parametrize(
    ("question", "options"),
    [
        ("influence", {"stack": "nix"}),
        ("regenerate", {"positions": [["nix", 0]]}),
        ("force", {"answer": 0, "token": 10**9}),
        ("contributions", {"answer": 0, "token": 0}),
        ("attribution", {"answer": 0, "token": 1}),
    ],
)
def test_impossible_questions_get_three_lines(trained, masked, question, options):
    run, text = (masked, "The [MASK] sleeps.") if question in ("contributions", "attribution") else (trained, SENTENCE)
    if question == "attribution":
        options = options | {"method": "occlusion"}
    with pytest.raises(UsageError) as refused:
        ask(run, question, {"text": text}, **options)
    assert len(str(refused.value).splitlines()) == 3


def test_beams_are_refused_without_beam_search(language):
    with pytest.raises(UsageError, match="no beams"):
        ask(language, "beams", {"text": "The old"})


def test_other_tokens_may_be_more_or_fewer_than_a_model_can_read(masked, classifier):
    for run, tokens in ((masked, [[1]]), (classifier, [[5] * 5000])):
        with pytest.raises(UsageError, match=r"do not fit this model|has 5,000|positions"):
            ask(run, "overview", {"text": "The [MASK] sleeps.", "tokens": tokens})


def test_an_endless_text_is_refused_before_it_is_translated(trained):
    with pytest.raises(UsageError, match=r"(?s)The input has 6,00\d positions.*At most 5,000"):
        ask(trained, "overview", {"text": "child " * 6000})


def test_whitespace_around_a_text_is_stripped_unless_the_model_continues_it(trained, language):
    pieces = [
        ask(trained, "overview", {"text": text})["stacks"][0]["pieces"] for text in (SENTENCE, f" {SENTENCE} \r\n")
    ]
    assert pieces[0] == pieces[1]
    plain, spaced = (ask(language, "overview", {"text": text})["stacks"][0]["pieces"] for text in ("The", "The "))
    assert len(spaced) > len(plain)
