"""Training: curves and checkpoints on the page are the run's."""

import numpy as np
import pytest
import torch
from asking import ask
from safetensors.torch import load_file

from regard.errors import UsageError
from regard.explore.recording import write_page
from regard.explore.session import Session

SENTENCE = "The dog sleeps."
FIRST = {"text": SENTENCE}


@pytest.fixture(scope="module")
def run(tiny_recipe, train_once):
    """A translator with several checkpoints."""
    return train_once("checkpoints", str(tiny_recipe), "training.keep_checkpoints=4", data=tiny_recipe.parent)


@pytest.fixture(scope="module")
def by_hand(run):
    """ln p of the final answers with the weights of a checkpoint, in a copy of the model."""

    def give(step: int) -> np.ndarray:
        subject = run.trace(SENTENCE).subject
        model = run.build()
        model.load_state_dict(weights_of(run, step), strict=False)
        source, target = (torch.tensor([ids]) for ids in subject.tokens)
        ones = [torch.ones_like(x) for x in (source, target)]
        places = [torch.arange(x.shape[1])[None] for x in (source, target)]
        with torch.no_grad():
            p_AW = model.eval()(source, ones[0], places[0], target, ones[1], places[1])[0].softmax(-1)
        return np.array([float(p_AW[n, answer.token]) for n, answer in enumerate(subject.answers)])

    return give


def weights_of(run, step):
    return load_file(run.folder.checkpoints / f"step-{step}" / "model.safetensors")


def _equal(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def test_checkpoints_give_the_probabilities_of_their_weights(run, by_hand):
    before = {name: weight.clone() for name, weight in run.model.named_parameters()}
    files = sorted((path, path.stat().st_mtime_ns) for path in run.folder.path.rglob("*"))
    checkpoints = ask(run, "checkpoints", FIRST)
    assert checkpoints["steps"] == run.folder.saved_steps() and len(checkpoints["steps"]) > 2
    assert checkpoints["shown"] == [step for step in checkpoints["steps"] if step != checkpoints["final"]]
    final = load_file(run.folder.path / "model.safetensors")
    same = [step for step in checkpoints["steps"] if _equal(weights_of(run, step), final)]
    assert same == ([] if checkpoints["final"] is None else [checkpoints["final"]])
    for step in checkpoints["steps"]:
        asked = ask(run, "at_checkpoint", FIRST, step=step)
        np.testing.assert_allclose(asked["values"], by_hand(step), atol=1e-5)
    assert all(torch.equal(weight, before[name]) for name, weight in run.model.named_parameters())
    assert files == sorted((path, path.stat().st_mtime_ns) for path in run.folder.path.rglob("*"))


def test_weights_and_lens_of_a_checkpoint(run):
    step = run.folder.saved_steps()[-1]
    last = ask(run, "at_checkpoint", FIRST, step=step, what="lens")
    assert last["agreement"]["values"][-1] == 100 and abs(last["kl"]["values"][-1]) < 1e-6
    cross = {"what": "weights", "part": "decoder.0.cross", "head": 1}
    weights = np.array(ask(run, "at_checkpoint", FIRST, step=step, **cross)["values"])
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-5)
    final = run.trace(SENTENCE).last.layers[0].part("cross").attention().weights_BHTS[0, 1]
    own = ask(run, "at_checkpoint", FIRST, **cross)["values"]
    np.testing.assert_allclose(own, final, atol=1e-6)


def test_a_damaged_checkpoint_is_left_out(run):
    step = run.folder.saved_steps()[0]
    file = run.folder.checkpoints / f"step-{step}" / "model.safetensors"
    content = file.read_bytes()
    try:
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        checkpoints = ask(run, "checkpoints", FIRST)
        assert step not in checkpoints["shown"] and "sha256" in checkpoints["problems"][str(step)]
        with pytest.raises(UsageError, match="damaged"):
            ask(run, "at_checkpoint", FIRST, step=step)
    finally:
        file.write_bytes(content)
    with pytest.raises(UsageError, match="no checkpoint of step 3"):
        ask(run, "at_checkpoint", FIRST, step=3)


def test_the_page_shows_the_curves_and_every_checkpoint(run, by_hand, opened):
    steps = ask(run, "checkpoints", FIRST)["shown"]
    valid = [record for record in run.folder.read_metrics() if "valid_loss" in record]
    with opened(run, text=SENTENCE) as at:
        panel = at.view("Training")
        panel.get_by_text("Numbers: loss over steps").first.click()
        row = panel.get_by_role("group", name="Numbers: loss over steps").locator("tbody tr").last
        assert abs(float(row.locator("td").last.inner_text()) - valid[-1]["valid_loss"]) < 1e-3
        cells = panel.locator(".answers-over-time tbody tr").nth(1).locator("td").all_inner_texts()
        shown = [float(text.split(" %")[0]) / 100 for text in cells]
        np.testing.assert_allclose(shown[:-1], [by_hand(step)[0] for step in steps], atol=1e-3)

        panel.get_by_label("head", exact=True).select_option("encoder.0.mixer.1")
        panel.get_by_role("button", name=f"encoder, layer 1, self-attention, head 2 at step {steps[0]}").click()
        field = panel.get_by_role("application", name=f"encoder, layer 1, self-attention, head 2 at step {steps[0]}")
        field.focus()
        field.press("ArrowDown")
        mixer = {"what": "weights", "part": "encoder.0.mixer", "head": 1}
        weights = ask(run, "at_checkpoint", FIRST, step=steps[0], **mixer)["values"]
        assert abs(float(at.page.locator("#live").inner_text().rpartition(": ")[2]) - weights[0][0]) < 1e-3


def test_the_file_has_the_checkpoints(run, from_disk, tmp_path):
    session = Session([run], FIRST)
    write_page(session, tmp_path / "page.html")
    session.close()
    with from_disk(tmp_path / "page.html", fragment="#view=training") as at:
        panel = at.ready("Training")
        assert panel.locator(".over-time button").count() == len(ask(run, "checkpoints", FIRST)["shown"]) + 1
        assert panel.locator(".problem").count() == 0
