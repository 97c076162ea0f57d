"""Small models with random weights, of every kind: what one looks into."""

from collections.abc import Callable

import numpy as np
import torch

from regard.inside import subjects
from regard.inside.subject import Subject
from regard.models.captioner import Captioner
from regard.models.causal import Causal
from regard.models.classifier import Classifier
from regard.models.detector import DenseDetector, SetDetector
from regard.models.masked import Masked
from regard.models.seq2seq import Seq2Seq
from regard.models.swin import Swin
from regard.models.vision import VisionTransformer
from regard.settings import (
    CaptionModel,
    CausalModel,
    DetectorModel,
    ImageModel,
    PairModel,
    TextClassifierModel,
    TokenModel,
    TranslationModel,
)

SMALL = {"layers": 2, "width": 32, "heads": 4, "feedforward": 64, "dropout": 0.1}
VOCABULARY = 40


def spoilt(model: torch.nn.Module) -> torch.nn.Module:
    """With every weight drawn at random: none is zero or one, as many are at first."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.15 * torch.randn(parameter.shape, generator=generator)
    return model


def language(**options) -> Subject:
    model = spoilt(Causal(CausalModel(**{**SMALL, "norm": "pre", **options}), VOCABULARY))
    return subjects.causal(model, [5, 9, 30, 9, 12, 7], str)


def translator(**options) -> Subject:
    settings = PairModel if "copy" in options else TranslationModel
    model = spoilt(Seq2Seq(settings(**{**SMALL, **options}), VOCABULARY, VOCABULARY))
    return subjects.pair(model, [5, 9, 30, 12, 2], [9, 8, 7, 31], (str, str))


def masked(**options) -> Subject:
    model = spoilt(Masked(TokenModel(**{**SMALL, "embedding_norm": True, **options}), VOCABULARY))
    return subjects.masked(model, [1, 9, VOCABULARY - 1, 9, 12, 2], [2, 4], str, [0, 1, 2, VOCABULARY - 1])


def text_classifier(**options) -> Subject:
    model = spoilt(Classifier(TextClassifierModel(**{**SMALL, **options}), VOCABULARY, 5))
    return subjects.classifier(model, [1, 9, 30, 9, 12, 2], 0, list("abcde"), str)


def pixels(height: int, width: int) -> torch.Tensor:
    return torch.randn(1, height, width, generator=torch.Generator().manual_seed(3))


def vit(**options) -> Subject:
    settings = ImageModel(**{**SMALL, "patch": 4, "positions": "learned", **options})
    model = spoilt(VisionTransformer(settings, 8, 12, 1, 5))
    return subjects.image(model, pixels(8, 12), list("abcde"), picture_HWC=np.zeros((8, 12, 1), np.uint8))


def swin(**options) -> Subject:
    shape = {"stages": [2, 2], "width": 16, "heads": 2, "feedforward": 16, "patch": 1, "window": 4, "dropout": 0.1}
    settings = ImageModel(**shape, **{"positions": "none", "norm": "pre", **options})
    return subjects.image(spoilt(Swin(settings, 16, 16, 1, 5)), pixels(16, 16), list("abcde"))


def detector(head: str = "dense", **options) -> Subject:
    settings = DetectorModel(**{**SMALL, "patch": 4, "positions": "learned", "queries": 3, "head": head, **options})
    model = spoilt((DenseDetector if head == "dense" else SetDetector)(settings, 8, 12, 1, 5))
    return subjects.image(model, pixels(8, 12), list("abcde"), picture_HWC=np.zeros((8, 12, 1), np.uint8))


def captioner(**options) -> Subject:
    settings = CaptionModel(**{**SMALL, "patch": 4, "positions": "sinusoidal", **options})
    model = spoilt(Captioner(settings, 8, 12, 1, VOCABULARY, scaled=None))
    return subjects.caption(model, pixels(8, 12), [9, 8, 7], str)


KINDS: dict[str, Callable[[], Subject]] = {
    "language": language,
    "language-post-norm": lambda: language(norm="post"),
    "language-capped": lambda: language(logit_cap=5.0, norm_kind="rms", layer_scale=0.5),
    "language-local": lambda: language(mixer="local", local={"window": 3}),
    "language-grouped": lambda: language(positions="rotary", key_value_heads=2, query_key_norm=True),
    "language-hyena": lambda: language(mixer="hyena"),
    "language-gru": lambda: language(mixer="gru"),
    "translator": translator,
    "translator-pre-norm": lambda: translator(norm="pre"),
    "translator-copying": lambda: translator(copy=True),
    "translator-additive": lambda: translator(mixer="lstm", cross="additive"),
    "translator-bahdanau": lambda: translator(mixer="gru", cross="bahdanau"),
    "masked": masked,
    "masked-pre-norm": lambda: masked(norm="pre"),
    "text-classifier": text_classifier,
    "text-classifier-mean": lambda: text_classifier(pooling="mean", norm="pre"),
    "vit": vit,
    "vit-mean": lambda: vit(pooling="mean", norm="pre"),
    "vit-both": lambda: vit(pooling="both", registers=2),
    "swin": swin,
    "swin-post-norm": lambda: swin(norm="post"),
    "captioner": captioner,
}


def sharing(subject: Subject, logits_AW: torch.Tensor) -> torch.Tensor:
    """The logits that share the softmax, written out: −∞ for words that are never written, but not in beam search."""
    if isinstance(subject.model, Seq2Seq | Captioner):
        return logits_AW
    logits_AW = logits_AW.clone()
    logits_AW[:, list(subject.never)] = -torch.inf
    for answer, never in enumerate(subject.never_at):
        logits_AW[answer, list(never)] = -torch.inf
    return logits_AW


MAKERS = (language, translator, masked, text_classifier, vit, swin, captioner, detector)


def make_subject(name: str, **options) -> Subject:
    """A subject with other settings: make_subject("language", norm="post"); or one of `KINDS`."""
    torch.manual_seed(1)
    makers = {maker.__name__: maker for maker in MAKERS}
    return makers[name](**options) if name in makers else KINDS[name]()
