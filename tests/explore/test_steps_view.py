"""Steps: what is on the page is what the model computed, step by step, and every number can be taken apart."""

import re

import numpy as np
import pytest

from regard.explore.arrays import Matrix, unpack
from regard.explore.matrices import tensor

SENTENCE = "The old farmer helps the child."


def number(text: str) -> float:
    return float(text.strip().replace("−", "-"))


def the_number(panel) -> float:
    return number(panel.locator(".the-number").inner_text())


def sum_of_terms(panel) -> float:
    """The sum of the terms in the last table of the arithmetic, as shown."""
    rows = panel.locator(".arithmetic table").last.locator("tbody tr:not(.total)")
    return sum(number(text) for text in rows.locator("td:last-child").all_inner_texts())


def test_a_walk_through_a_decoder_shows_the_models_numbers(trained, opened):
    trace = trained.trace(SENTENCE)
    layer = trace["decoder"].layers[0]
    own, cross = layer.part("mixer").attention(), layer.part("cross").attention()
    with opened(trained, text=SENTENCE, fragment="#view=steps&stack=decoder&position=2&head=1&step=mixer.scores") as at:
        panel = at.ready("Steps")
        best = int(own.scores_BHTS[0, 1, 2].argmax())
        assert the_number(panel) == pytest.approx(float(own.scores_BHTS[0, 1, 2, best]), abs=1e-3)
        width = own.queries_BHTK.shape[-1]
        assert sum_of_terms(panel) / width**0.5 == pytest.approx(the_number(panel), abs=1e-3)

        at.page.keyboard.press("ArrowRight")
        panel.get_by_role("heading", name=re.compile("^Softmax, layer 1, position 3")).wait_for()
        assert the_number(panel) == pytest.approx(float(own.weights_BHTS[0, 1, 2].max()), abs=1e-3)

        panel.get_by_role("navigation", name="All steps").get_by_role("button", name="Weighted values").nth(1).click()
        panel.get_by_role("heading", name=re.compile("^Weighted values")).wait_for()
        assert panel.get_by_role("heading", name=re.compile("^the encoder's values V")).count() == 1
        field = panel.get_by_role("application", name=re.compile("^z, head 2"))
        field.focus()
        for key in ("ArrowRight", "ArrowRight", "ArrowRight", "Enter"):  # the first key only shows the current cell
            field.press(key)
        panel.locator('.arithmetic[data-cell*=",2,2]"]').wait_for()
        value = float(cross.heads_BHTV[0, 1, 2, 2])
        assert number(panel.locator(".vector .reading").last.inner_text().partition(":")[2]) == pytest.approx(
            value, abs=1e-3
        )
        assert the_number(panel) == pytest.approx(value, abs=1e-3)
        assert sum_of_terms(panel) == pytest.approx(value, abs=1e-3)

        assert panel.locator(".arithmetic thead th").all_inner_texts() == ["j", "aj", "vj", "product"]
        # One of its terms: a value of the encoder, which is taken apart in turn.
        panel.locator(".arithmetic tbody tr").first.locator(".term").last.click()
        panel.locator('.arithmetic[data-cell*="cross.values"]').wait_for()
        assert sum_of_terms(panel) == pytest.approx(the_number(panel), abs=1e-3)
        assert "cross.values" in at.page.url


def test_the_walk_leads_into_the_next_layer_and_to_the_probabilities(trained, opened):
    trace = trained.trace(SENTENCE)
    with opened(trained, text=SENTENCE, fragment="#view=steps&stack=decoder&position=1&step=feedforward.wrote") as at:
        panel = at.ready("Steps")
        titles, places = [], []

        def walk(steps: int) -> None:
            for _ in range(steps):
                title = panel.locator("h2").inner_text()
                panel.get_by_role("button", name="Next →").click()
                panel.locator("h2", has_not_text=title).wait_for()
                titles.append(panel.locator("h2").inner_text())
                places.append(panel.locator(".moves span").inner_text())
                assert panel.locator(".problem").count() == 0, titles[-1]

        walk(3)
        panel.get_by_role("button", name="Contract").click()
        panel.get_by_role("heading", name="Contract, layer 2").wait_for()
        walk(4)
        assert [title.partition(", ")[0] for title in titles[:3]] == ["Residual", "To layer 2", "Norm"]
        assert "layer 2" in titles[2]
        layers = trace["decoder"].layers
        assert len(layers) == 2
        count = sum(7 if part.attends else 4 for part in layers[0].parts)  # a norm and a residual each
        assert places[:3] == [
            f"decoder, layer 1 of 2, step {count} of {count}",
            "decoder, after layer 1 of 2",
            f"decoder, layer 2 of 2, step 1 of {count}",
        ]
        assert places[-2:] == ["decoder, output, step 2 of 3", "decoder, output, step 3 of 3"]
        assert [title.partition(", ")[0] for title in titles[-2:]] == ["Logits", "Probabilities"]
        assert panel.get_by_role("button", name="Next →").is_disabled()
        best = float(trace.p_AW[1].max())
        assert the_number(panel) == pytest.approx(best, abs=1e-3)
        assert number(panel.locator(".bar-value").first.inner_text().rstrip(" %")) / 100 == pytest.approx(
            best, abs=1e-3
        )


def test_the_file_computes_the_arithmetic_it_has_the_numbers_for(trained, page_on_disk, from_disk):
    traced = trained.trace(SENTENCE)["encoder"].layers[1].part("mixer").attention()
    with from_disk(page_on_disk, fragment="#view=steps&layer=1&head=3&position=2&step=mixer.weights") as at:
        panel = at.ready("Steps")
        assert the_number(panel) == pytest.approx(float(traced.weights_BHTS[0, 3, 2].max()), abs=1e-3)
        assert panel.locator(".arithmetic thead th").all_inner_texts() == ["j", "sj", "exp(sj − max)"]
        panel.get_by_role("button", name="Scores").click()
        panel.get_by_role("heading", name=re.compile("^Scores")).wait_for()
        assert panel.locator(".arithmetic thead th").all_inner_texts() == ["i", "qi", "ki", "product"]
        assert the_number(panel) == pytest.approx(float(traced.scores_BHTS[0, 3, 2].max()), abs=2e-3)
        panel.get_by_role("button", name="Expand").click()
        assert "regard explore" in panel.locator(".arithmetic .problem").inner_text(), "weights are not in the file"


def test_the_walk_through_an_image_fits_a_small_screen(image_classifier, opened):
    with opened(image_classifier, width=400, fragment="#view=steps&step=token") as at:
        panel = at.ready("Steps")
        stack = image_classifier.subject(at.session.images[at.session.first["image"]]).last
        rows, columns = stack.grid
        position = stack.before + rows // 2 * columns + columns // 2
        place = f"row {rows // 2 + 1}, column {columns // 2 + 1}"
        shown = panel.get_by_label("position", exact=True).locator("option:checked").inner_text()
        assert shown == place, "it begins at the central patch"
        assert panel.locator("h2").inner_text() == f"Patch → vector, {place}"
        assert panel.locator(".vector .reading").inner_text().startswith("component 1: ")
        assert panel.locator(".arithmetic h3").inner_text().endswith(f"{place}, component 1")
        token = float(tensor(at.session.traced(0, at.session.first), "layers.token")[position, 0])
        assert the_number(panel) == pytest.approx(token, abs=1e-3)
        assert sum_of_terms(panel) == pytest.approx(token, abs=1e-3), "pixels times weights"
        assert at.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_next_is_reached_by_keyboard_before_the_positions(trained, opened):
    with opened(trained, text=SENTENCE, fragment="#view=steps&stack=decoder&position=1&step=mixer.qkv") as at:
        at.ready("Steps")
        at.page.get_by_role("tab", name="Steps", exact=True).focus()
        stops = []
        while "Next →" not in stops and len(stops) < 10:
            at.page.keyboard.press("Tab")
            stops.append(at.page.locator(":focus").inner_text())
        assert stops == ["← Previous", "Next →"]


def test_the_formula_of_the_score_says_what_its_root_is(trained, opened):
    with opened(trained, text=SENTENCE, fragment="#view=steps&position=2&step=mixer.scores") as at:
        panel = at.ready("Steps")
        width = trained.trace(SENTENCE)["encoder"].layers[0].part("mixer").attention().queries_BHTK.shape[-1]
        root = f"√dk = √{width} = {width**0.5:.4g}"
        assert panel.locator(".large-formula").inner_text() == "sj = q · kj / √dk"
        assert panel.locator(".where").all_inner_texts() == [root, root], "of the step, and of the number"
        assert panel.locator(".arithmetic thead th").all_inner_texts() == ["i", "qi", "ki", "product"]


def test_pixels_are_shown_as_colours_at_a_row_and_a_column(pixels, opened):
    with opened(pixels, fragment="#view=steps&step=mixer.weights") as at:
        panel = at.ready("Steps")
        stack = pixels.subject(at.session.images[at.session.first["image"]]).last
        rows, columns = stack.grid
        position = stack.before + rows // 2 * columns + columns // 2
        colour, place = stack.pieces[position], f"row {rows // 2 + 1}, column {columns // 2 + 1}"
        chosen = panel.get_by_label("position", exact=True).locator("option:checked")
        assert chosen.inner_text() == f"{colour}, {place}"
        written = panel.locator(".writing")
        assert written.inner_text().startswith("so far:") and "→ next:" in written.inner_text()
        swatches = written.locator(".token .swatch")
        assert swatches.count() == written.locator(".token").count() == 13
        assert swatches.last.evaluate("element => element.style.background") == rgb(colour)
        terms = panel.locator(".arithmetic tbody th")
        assert re.fullmatch(r"#\w{6}, row \d, column \d|<start>", terms.first.inner_text())
        at.view("Heads")
        labels = at.page.locator("#panel .large .labels-down span").all_inner_texts()
        assert labels == [
            "<start>",
            *(f"{i // columns + 1},\u00a0{i % columns + 1}" for i in range(len(stack.pieces) - 1)),
        ]


def rgb(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))})"


def test_large_numbers_are_sent_with_more_digits():
    values = np.array([[0.0, -70.123, 3.999, 5e-5], [-np.inf, np.inf, 1e30, -1e-3]], np.float32)
    _, read = unpack(Matrix(values, "long", {}).message())
    np.testing.assert_allclose(read, values, rtol=1.6e-5)
