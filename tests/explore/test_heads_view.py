"""Heads: what is on the page is what the model computed."""

import re

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
        for key in ("ArrowDown", "ArrowDown", "ArrowRight"):  # the first only says where one is
            field.press(key)
        shown = at.page.locator("#live").inner_text()
        row, column = 1, 1
        assert re.search(r"→ .*: [\d.]+$", shown)
        assert abs(float(shown.rpartition(": ")[2]) - float(weights[1, row, column])) < 1e-3


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
