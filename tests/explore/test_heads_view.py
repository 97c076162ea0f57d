"""Heads: what is on the page is what the model computed."""

import re

import numpy as np
from axe_playwright_python.sync_playwright import Axe

SENTENCE = "The old farmer helps the child."


def test_the_number_of_a_cell_is_the_models(trained, opened):
    trace = trained.trace(SENTENCE)
    weights = trace["decoder"].layers[0].part("cross").attention().weights_BHTS[0]
    with opened(trained, text=SENTENCE) as at:
        panel = at.view("Heads")
        panel.get_by_role("button", name="layer 1, head 2").click()
        at.ready("Heads")
        field = panel.get_by_role("application")
        field.focus()
        for key in ("ArrowDown", "ArrowDown", "ArrowRight"):  # the first key only shows the current cell
            field.press(key)
        shown = at.page.locator("#live").inner_text()
        row, column = 1, 1
        assert re.search(r"→ .*: [\d.]+$", shown)
        assert abs(float(shown.rpartition(": ")[2]) - float(weights[1, row, column])) < 1e-3


def test_below_a_small_map_are_all_its_numbers_as_a_table(trained, opened):
    trace = trained.trace(SENTENCE)
    weights_TS = trace["decoder"].layers[0].part("cross").attention().weights_BHTS[0, 1]
    with opened(trained, text=SENTENCE, fragment="#view=heads&part=decoder.0.cross&head=1") as at:
        details = at.ready("Heads").locator(".large .heatmap details")
        assert details.locator("summary").inner_text().startswith("All values: ")
        details.locator("summary").click()
        details.locator("table").wait_for()
        pieces = [piece.strip() for piece in trace["encoder"].stack.pieces]
        assert details.locator("thead th").all_inner_texts()[1:] == pieces
        assert details.locator("tbody th").first.inner_text() == f"<start> → {trace.subject.answers[0].label.strip()}"
        shown = [float(cell) for cell in details.locator("td").all_inner_texts()]
        np.testing.assert_allclose(shown, weights_TS.ravel(), atol=1e-3)
        assert Axe().run(at.page).violations_count == 0


def test_below_a_large_map_are_its_largest_numbers(language, opened):
    with opened(language, text=SENTENCE, fragment="#view=heads") as at:
        details = at.ready("Heads").locator(".large .heatmap details")
        assert details.locator("summary").inner_text().startswith("The 20 largest values: ")
        details.locator("summary").click()
        details.locator("table").wait_for()
        assert details.locator("tbody tr").count() == 20


def test_a_row_of_cross_attention_says_what_its_step_reads_and_writes(trained, opened):
    trace = trained.trace(SENTENCE)
    pieces, answers = trace.subject.stacks[1].pieces, trace.subject.answers
    with opened(trained, text=SENTENCE, fragment="#view=heads") as at:
        labels = at.page.locator("#panel .large .labels-down span").all_inner_texts()
        assert labels[0] == f"<start> → {answers[0].label.strip()}"
        assert labels == [f"{p.strip()} → {a.label.strip()}" for p, a in zip(pieces, answers, strict=True)]
        at.page.get_by_role("combobox", name="attention").select_option("encoder")
        at.ready("Heads")
        labels = at.page.locator("#panel .large .labels-down span").all_inner_texts()
        assert labels == [piece.strip() for piece in trace.subject.stacks[0].pieces]


def test_a_map_fits_beside_its_labels_on_a_small_screen(trained, opened):
    with opened(trained, text=SENTENCE, width=400, fragment="#view=heads") as at:
        grid = at.page.locator("#panel .large .heatmap-grid")
        assert grid.evaluate("element => element.scrollWidth <= element.clientWidth")


def test_the_view_is_in_the_address(trained, opened):
    with opened(trained, text=SENTENCE, fragment="#view=heads&part=decoder.1.cross&head=3") as at:
        pressed = at.page.locator("#panel .head-button[aria-pressed=true]")
        assert pressed.get_attribute("aria-label") == "layer 2, head 4"


def test_the_file_has_the_same_view_without_a_network(page_on_disk, from_disk):
    with from_disk(page_on_disk) as at:
        panel = at.view("Heads")
        panel.get_by_role("button", name="layer 1, head 2").click()
        at.ready("Heads")
        assert panel.locator("h2").inner_text() == "decoder → encoder, layer 1, head 2"


def test_the_view_says_what_a_row_and_a_bright_cell_mean(trained, opened):
    with opened(trained, text=SENTENCE, fragment="#view=heads") as at:
        assert at.page.locator("#panel .note").first.inner_text().startswith("Each row is a query position")


def test_few_heads_are_large_and_sorting_leaves_the_large_one_where_it_is(trained, opened):
    with opened(trained, text=SENTENCE, fragment="#view=heads") as at:
        large = at.page.locator("#panel .large")
        assert at.page.locator("#panel .thumbnail").first.bounding_box()["width"] == 96
        before = large.bounding_box()
        at.page.get_by_label("sort by").select_option("entropy")
        sorted_heads = at.page.locator("#panel .sorted")
        sorted_heads.wait_for()
        assert re.fullmatch(r"L[12] H[1-4]\n[01]\.\d\d", sorted_heads.locator(".score").first.inner_text())
        box, after = sorted_heads.bounding_box(), large.bounding_box()
        assert after["x"] == before["x"] >= box["x"] + box["width"]
        assert after["y"] == box["y"]


def test_only_scores_that_are_defined_are_offered(trained, opened):
    with opened(trained, text=SENTENCE, fragment="#view=heads&sort=previous") as at:
        menu = at.page.get_by_label("sort by")
        assert menu.locator("option").all_inner_texts() == ["layer", "importance", "entropy", "first token"]
        assert menu.input_value() == "" and at.page.locator("#panel .sorted").count() == 0
        at.page.get_by_role("combobox", name="attention").select_option("encoder")
        at.ready("Heads")
        offered = menu.locator("option").all_inner_texts()
        assert "previous token" in offered and "copying" not in offered


def test_a_map_that_must_be_scrolled_fades_at_its_edge(language, opened):
    with opened(language, text=SENTENCE * 2, width=420, fragment="#view=heads") as at:
        grid = at.page.locator("#panel .large .heatmap-grid")
        assert grid.evaluate("element => element.scrollWidth > element.clientWidth")
        at.page.locator("#panel .large .heatmap-grid.more-right:not(.more-left)").wait_for()
        grid.evaluate("element => { element.scrollLeft = element.scrollWidth; }")
        at.page.locator("#panel .large .heatmap-grid.more-left:not(.more-right)").wait_for()
