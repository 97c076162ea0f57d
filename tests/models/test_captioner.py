"""The encoder–decoder over images."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.data.scale import Scale
from regard.data.tokenizers import END, START, train_tokenizer
from regard.decoding.engines import Engines
from regard.decoding.hypothesis import Request
from regard.decoding.text_search import TextSearch
from regard.models.captioner import Captioner
from regard.models.vision import VisionTransformer
from regard.settings import CaptionDecoding, CaptionModel, ImageModel, TokenizerSettings

HEIGHT, WIDTH, CHANNELS, WORDS = 8, 12, 3, 20
SHAPE = {"layers": 2, "width": 16, "heads": 2, "feedforward": 32, "patch": 4, "dropout": 0.0}
FAMILIES = {
    "attention": {"norm": "pre"},
    "learned positions": {"positions": "learned", "registers": 2},
    "rotary": {"positions": "rotary", "norm": "pre"},
    "additive": {"mixer": "gru", "cross": "additive"},
    "bahdanau": {"mixer": "gru", "cross": "bahdanau"},
    "state alone": {"mixer": "lstm", "cross": "none"},
    "hyena": {"mixer": "hyena", "hyena": {"filter_length": 12}},
}
every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())


def make(**settings: object) -> Captioner:
    torch.manual_seed(3)
    scaled = Scale([0.4, 0.5, 0.6], [0.2, 0.3, 0.25]).on(torch.device("cpu"))
    return Captioner(CaptionModel(**SHAPE, **settings), HEIGHT, WIDTH, CHANNELS, WORDS, scaled).eval()


def some_pixels(count: int) -> torch.Tensor:
    return torch.randint(0, 256, (count, HEIGHT, WIDTH, CHANNELS), generator=torch.Generator().manual_seed(1)).byte()


@every_family
def test_steps_equal_the_whole_pass(family):
    model, pixels = make(**family, decoder_layers=3), some_pixels(3)
    caption = torch.randint(3, WORDS, (3, 5))
    whole = model(model.scaled.pixels(pixels), caption)
    reads = pixels.flatten(1).long()
    state = model.start(reads, torch.ones_like(reads), beams=2, max_length=5)
    steps = torch.stack([model.step(caption[:, t].repeat_interleave(2), state) for t in range(5)], dim=1)
    torch.testing.assert_close(steps[::2], whole, atol=1e-4, rtol=0)
    torch.testing.assert_close(steps[1::2], whole, atol=1e-4, rtol=0)


@every_family
def test_a_word_sees_every_patch_and_no_later_word(family):
    model, pixels = make(**family), some_pixels(1)
    caption = torch.randint(3, WORDS, (1, 6))
    before = model(model.scaled.pixels(pixels), caption)
    for y, x in ((0, 0), (HEIGHT - 1, WIDTH - 1)):  # in the first patch, and in the last
        changed = pixels.clone()
        changed[0, y, x] = 255 - changed[0, y, x]
        after = model(model.scaled.pixels(changed), caption)
        assert ((before - after).abs().amax(-1) > 1e-7).all()
    other = caption.clone()
    other[0, 3:] = (other[0, 3:] - 2) % (WORDS - 3) + 3
    torch.testing.assert_close(model(model.scaled.pixels(pixels), other)[:, :3], before[:, :3], atol=1e-5, rtol=0)


def test_its_encoder_is_that_of_a_vision_transformer():
    model = make(norm="pre", positions="learned")
    vision = VisionTransformer(ImageModel(**SHAPE, norm="pre", positions="learned"), HEIGHT, WIDTH, CHANNELS, 2).eval()
    names = {"source_embedding.": "trunk.embedding.", "encoder.": "trunk.blocks.", "encoder_norm.": "trunk.norm."}
    weights = {
        there + name.removeprefix(here): weight
        for name, weight in model.state_dict().items()
        for here, there in names.items()
        if name.startswith(here)
    }
    assert vision.load_state_dict(weights, strict=False).missing_keys == ["to_classes.weight", "to_classes.bias"]
    images = model.scaled.pixels(some_pixels(2))
    torch.testing.assert_close(model.encode(images), vision.tokens(images))


def greedy(model: Captioner, pixels: torch.Tensor, most: int) -> list[int]:
    """Word by word with whole passes."""
    written = [START]
    while len(written) <= most:
        logits = model(model.scaled.pixels(pixels[None]), torch.tensor([written]))[0, -1]
        logits[[0, START]] = -torch.inf
        if (token := int(logits.argmax())) == END:
            break
        written.append(token)
    return written[1:]


@pytest.mark.parametrize("family", ["attention", "rotary", "additive"])
def test_the_engine_writes_what_whole_passes_would(family):
    model, pixels = make(**FAMILIES[family]), some_pixels(7)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3)  # surer of itself
    asked = [Request(n, image.flatten().numpy(), START, 6) for n, image in enumerate(pixels)]
    tokenizer = train_tokenizer([], TokenizerSettings(kind="byte"))
    search = TextSearch(CaptionDecoding(beam=1), Engines(model), tokenizer, pixels[0].numel(), "captioning")
    found = dict(search.hypotheses(asked, 1, lambda done: None))
    with torch.no_grad():
        assert [found[n][0].tokens for n in range(7)] == [greedy(model, image, 6) for image in pixels]
    assert len({tuple(best[0].tokens) for best in found.values()}) > 1, "or else images would count for nothing"


def test_what_is_read_together_is_counted_in_patches():
    model = make()
    assert model.source_positions(HEIGHT * WIDTH * CHANNELS) == 6
    rows = Engines(model).rows(64, 1, 8, HEIGHT * WIDTH * CHANNELS, source_length=6)
    request = Request(0, np.zeros(HEIGHT * WIDTH * CHANNELS, np.uint8), START, 8)
    assert rows.together(request) == (HEIGHT * WIDTH * CHANNELS, 16)
