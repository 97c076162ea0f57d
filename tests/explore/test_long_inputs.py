"""Inputs of more tokens than a page can draw: reduced to block maxima, exact when zoomed."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe

from regard.explore.recording import write_page
from regard.explore.session import Session

LONG = "the old farmer helps a child and sleeps " * 18  # 720 characters


@pytest.fixture(scope="module")
def long(train_once, texts):
    settings = ["data.text=text.txt", "training.steps=1", "training.tokens_per_batch=1024", "training.row_length=1024"]
    settings += ["model.layers=1", "model.width=16", "model.heads=2", "model.feedforward=16"]
    return train_once("language-long", "shakespeare-cpu", *settings, "training.validate_every=1", data=texts)


def announced(at):
    return at.page.locator("#live").inner_text()


def test_attention_is_reduced_by_the_largest_and_exact_on_zoom(long, opened):
    weights = long.trace(LONG).last.layers[0].part("mixer").attention().weights_BHTS[0, 0]
    with opened(long, text=LONG, fragment="#view=heads") as at:
        field = at.page.get_by_role("application")
        assert "360 rows, 360 columns" in field.get_attribute("aria-label")
        field.press("ArrowDown")
        field.press("ArrowDown")
        expected = float(weights[2:4, 0:2].max())
        assert announced(at).startswith("3–4 → 1–2: ") and "the maximum of this block" in announced(at)
        assert float(re.search(r": ([\d.]+)", announced(at))[1]) == pytest.approx(expected, abs=1e-3)
        field.press("Enter")
        at.ready("Heads")
        assert "128 rows, 128 columns" in field.get_attribute("aria-label")
        field.press("ArrowDown")
        field.press("ArrowDown")
        assert float(announced(at).rpartition(": ")[2]) == pytest.approx(float(weights[1, 0]), abs=1e-3)


def test_only_the_first_tokens_are_shown_until_all_are_requested(long, opened):
    with opened(long, text=LONG) as at:
        tokens = at.page.locator("#tokens .token")
        assert tokens.count() == 400
        at.page.get_by_role("button", name="show 320 more").click()
        assert tokens.count() == 720


def test_the_file_of_a_long_input_is_never_blank(long, from_disk, tmp_path):
    omissions = write_page(Session([long], {"text": LONG}), tmp_path / "page.html")
    assert any("reduced" in line for line in omissions)
    assert (tmp_path / "page.html").stat().st_size < 16_000_000
    with from_disk(tmp_path / "page.html", fragment="#view=heads") as at:
        field = at.page.get_by_role("application")
        field.press("ArrowDown")
        field.press("Enter")  # closer than the file has it
        at.page.get_by_text("This is not in the file.").wait_for()
        at.page.get_by_role("button", name="Show the full map").click()
        at.ready("Heads")
        assert field.is_visible()


def test_overflowing_tokens_can_be_scrolled_by_keyboard(trained, opened):
    with opened(trained, text="The old farmer helps the child. " * 12, width=400, fragment="#view=words") as at:
        tokens = at.page.locator("#tokens")
        assert tokens.evaluate("region => region.scrollHeight > region.clientHeight")
        assert Axe().run(at.page).violations_count == 0
        tokens.focus()
        at.page.keyboard.press("End")
        moved = "region => new Promise(done => { const look = () => "
        moved += "region.scrollTop > 0 ? done(true) : requestAnimationFrame(look); look(); })"
        assert tokens.evaluate(moved)
