"""Eight kinds of runs in a real browser: every view is opened, and the output is the model's."""

import re
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

import regard
from regard.explore.recording import write_page

INPUTS = {
    "trained": {"text": "The old farmer helps the child."},
    "language": {"text": "The old farmer"},
    "masked": {"text": "The [MASK] sleeps."},
    "classifier": {"text": "She helps the old farmer."},
    "image_classifier": {},
    "swin": {},
    "pixels": {},
    "hyena": {"text": "The old farmer"},
}


# Widths other than 1000. On the small screen axe-core looks at every view, too; on the large one, at those of the file.
WIDTHS = {"trained": 1400, "image_classifier": 400}
SMALL_SCREEN = 400


@pytest.mark.parametrize("kind", INPUTS)
def test_every_view_is_drawn_and_the_output_is_the_models(kind, request, opened):
    """axe-core, which finds what screen readers and keyboards cannot use, finds nothing in any view."""
    run, width = request.getfixturevalue(kind), WIDTHS.get(kind, 1000)
    with opened(run, width=width, **INPUTS[kind]) as at:
        titles = at.page.get_by_role("tab").all_inner_texts()
        assert {"Steps", "Output", "Layers", "What if", "Training"} <= set(titles)
        for title in titles:
            panel = at.view(title)
            assert panel.locator(".problem").count() == 0, title
            assert len(panel.inner_text()) > 40, title
            assert at.page.evaluate("document.documentElement.scrollWidth") <= width, title
            if width == SMALL_SCREEN:
                report = Axe().run(at.page)
                assert report.violations_count == 0, f"{title}: {report.generate_report()}"
        panel = at.view("Output")
        traced = at.session.traced(0, at.session.first)
        shown = panel.locator(".bars .bar-value").first.inner_text()
        position = re.search(r"Candidates at position (\d+)", panel.inner_text())
        probabilities = traced.trace.candidates(1).probabilities.values[:, 0]
        expected = probabilities[int(position[1]) - 1] if position else probabilities[0]
        assert abs(float(shown.replace("%", "").strip()) / 100 - expected) < 1e-3


def test_the_file_shows_every_view_with_the_network_off(page_on_disk, from_disk):
    with from_disk(page_on_disk) as at:
        titles = at.page.get_by_role("tab").all_inner_texts()
        assert {"Steps", "Heads", "Output", "Layers", "Attribution", "What if", "Words", "Training"} <= set(titles)
        for title in titles:
            panel = at.view(title)
            assert panel.locator(".problem").count() == 0, title
            assert len(panel.inner_text()) > 40, title
            report = Axe().run(at.page)
            assert report.violations_count == 0, f"{title}: {report.generate_report()}"


def test_arrow_keys_home_and_end_move_along_the_tabs(image_classifier, opened):
    with opened(image_classifier) as at:
        tabs = at.page.get_by_role("tab")
        titles = tabs.all_inner_texts()
        tabs.first.focus()
        for key, number in [("End", -1), ("ArrowRight", 0), ("ArrowLeft", -1), ("Home", 0), ("ArrowRight", 1)]:
            at.page.keyboard.press(key)
            at.ready(titles[number])
            assert at.page.locator(":focus").inner_text() == titles[number], key


def assert_views_are_drawn(at: Any, width: int) -> None:
    """No view shows an error or cuts numbers off."""
    for title in at.page.get_by_role("tab").all_inner_texts():
        panel = at.view(title)
        assert panel.locator(".problem").count() == 0, title
        assert "␣" not in panel.inner_text(), title
        assert at.page.evaluate("document.documentElement.scrollWidth") <= width, title
        for chart in panel.locator("svg.chart").all():  # no name or number of an axis is cut off
            assert chart.evaluate(
                "it => [...it.querySelectorAll('text')].every((text) => {"
                " const [a, b] = [it.getBoundingClientRect(), text.getBoundingClientRect()];"
                " return b.left >= a.left - 1 && b.right <= a.right + 1; })"
            ), title
        for table in panel.locator(".arithmetic .scroll").all():
            assert table.evaluate("element => element.scrollWidth <= element.clientWidth"), title


@pytest.mark.parametrize("kind", ["caption", "detect", "segment"])
def test_views_of_what_reads_images_are_drawn(kind, tiny_run, opened, from_disk, tmp_path):
    """Of a captioner, a detector and a segmenter, live on a wide screen and as a file on a small one."""
    run = regard.load(tiny_run(kind))
    with opened(run) as at:
        assert_views_are_drawn(at, 1400)
        write_page(at.session, tmp_path / "page.html")
    with from_disk(tmp_path / "page.html", width=400) as at:
        assert_views_are_drawn(at, 400)
