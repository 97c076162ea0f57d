"""Small models with random weights, of every kind: what one looks into."""

from collections.abc import Callable

import numpy as np
import torch

from regard.inside import image_subjects, subjects
from regard.inside.subject import Subject
from regard.models.captioner import Captioner
from regard.models.causal import Causal
from regard.models.classifier import Classifier
from regard.models.detector import DenseDetector, SetDetector
from regard.models.masked import Masked
from regard.models.reader import Reader
from regard.models.segmenter import SegmentingSwin, SegmentingViT
from regard.models.seq2seq import Seq2Seq
from regard.models.swin import Swin
from regard.models.vision import VisionTransformer
from regard.settings import (
    CaptionModel,
    CausalModel,
    DetectorModel,
    ImageModel,
    PairModel,
    SegmentationModel,
    SequenceModel,
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


def pixel_model(**options) -> Subject:
    """Of 3 × 4 pixels in a few colours: after <start>, each is said from those before it."""
    model = spoilt(Causal(CausalModel(**{**SMALL, "norm": "pre", "positions": "learned", **options}), 16))
    return subjects.causal(model, [15, 1, 0, 3, 3, 2, 6, 5, 0, 1, 4, 2], str, [15], pixels=(3, 4))


def translator(**options) -> Subject:
    settings = PairModel if "copy" in options else TranslationModel
    model = spoilt(Seq2Seq(settings(**{**SMALL, **options}), VOCABULARY, VOCABULARY))
    return subjects.pair(model, [5, 9, 30, 12, 2], [9, 8, 7, 31], (str, str))


def masked(**options) -> Subject:
    model = spoilt(Masked(TokenModel(**{**SMALL, "embedding_norm": True, **options}), VOCABULARY))
    return subjects.masked(model, [1, 9, VOCABULARY - 1, 9, 12, 2], [2, 4], str, [0, 1, 2, VOCABULARY - 1])


def text_classifier(**options) -> Subject:
    model = spoilt(Classifier(TextClassifierModel(**{**SMALL, **options}), VOCABULARY, 5))
    read_at = 5 if options.get("pooling") == "last" else 0
    return subjects.classifier(model, [1, 9, 30, 9, 12, 2], read_at, list("abcde"), str)


def reader(**options) -> Subject:
    """A question of two words, and a context of three; the first position is where there is no answer."""
    model = spoilt(Reader(SequenceModel(**{**SMALL, **options}), VOCABULARY))
    readable = [True, False, False, False, True, True, True, False]
    return subjects.reader(model, [1, 9, 30, 2, 9, 12, 7, 2], readable, str)


def pixels(height: int, width: int) -> torch.Tensor:
    return torch.randn(1, height, width, generator=torch.Generator().manual_seed(3))


def vit(**options) -> Subject:
    settings = ImageModel(**{**SMALL, "patch": 4, "positions": "learned", **options})
    model = spoilt(VisionTransformer(settings, 8, 12, 1, 5))
    return image_subjects.image(model, pixels(8, 12), list("abcde"), picture_HWC=np.zeros((8, 12, 1), np.uint8))


SMALL_SWIN = {"stages": [2, 2], "width": 16, "heads": 2, "feedforward": 16, "patch": 1, "window": 4, "dropout": 0.1}


def swin(**options) -> Subject:
    settings = ImageModel(**SMALL_SWIN, **{"positions": "none", "norm": "pre", **options})
    return image_subjects.image(spoilt(Swin(settings, 16, 16, 1, 5)), pixels(16, 16), list("abcde"))


def segmenter(**options) -> Subject:
    settings = SegmentationModel(**{**SMALL, "patch": 4, "positions": "learned", **options})
    model = spoilt(SegmentingViT(settings, 8, 12, 1, 5))
    return image_subjects.image(model, pixels(8, 12), list("abcde"), picture_HWC=np.zeros((8, 12, 1), np.uint8))


def segmenting_swin(**options) -> Subject:
    settings = SegmentationModel(**SMALL_SWIN, **{"positions": "none", "norm": "pre", **options})
    return image_subjects.image(spoilt(SegmentingSwin(settings, 16, 16, 1, 5)), pixels(16, 16), list("abcde"))


def detector(head: str = "dense", **options) -> Subject:
    settings = DetectorModel(**{**SMALL, "patch": 4, "positions": "learned", "queries": 3, "head": head, **options})
    model = spoilt((DenseDetector if head == "dense" else SetDetector)(settings, 8, 12, 1, 5))
    return image_subjects.image(model, pixels(8, 12), list("abcde"), picture_HWC=np.zeros((8, 12, 1), np.uint8))


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
    "language-untied": lambda: language(tie_embeddings="none"),
    "pixels": pixel_model,
    "translator": translator,
    "translator-untied": lambda: translator(tie_embeddings="none"),
    "translator-tied-target": lambda: translator(tie_embeddings="target"),
    "translator-pre-norm": lambda: translator(norm="pre"),
    "translator-copying": lambda: translator(copy=True),
    "translator-additive": lambda: translator(mixer="lstm", cross="additive"),
    "translator-bahdanau": lambda: translator(mixer="gru", cross="bahdanau"),
    "masked": masked,
    "masked-pre-norm": lambda: masked(norm="pre"),
    "text-classifier": text_classifier,
    "text-classifier-mean": lambda: text_classifier(pooling="mean", norm="pre"),
    "text-classifier-causal": lambda: text_classifier(causal=True, pooling="last", norm="pre"),
    "reader": reader,
    "reader-pre-norm": lambda: reader(norm="pre", positions="rotary"),
    "vit": vit,
    "vit-mean": lambda: vit(pooling="mean", norm="pre"),
    "vit-both": lambda: vit(pooling="both", registers=2),
    "swin": swin,
    "swin-post-norm": lambda: swin(norm="post"),
    "segmenter": lambda: segmenter(norm="pre"),
    "segmenter-class-tokens": lambda: segmenter(head="class-tokens", registers=1),
    "segmenting-swin": segmenting_swin,
    "detector": detector,
    "detector-set": lambda: detector("set", norm="pre"),
    "captioner": captioner,
}


def log_p(subject: Subject, logits_AW: torch.Tensor) -> torch.Tensor:
    """ln p of every word or class, written out. Words that are never written have none, but in a beam search."""
    if subject.independent:
        return logits_AW.sigmoid().log()
    logits_AW = logits_AW.clone()
    if not isinstance(subject.model, Seq2Seq | Captioner):
        logits_AW[:, list(subject.never)] = -torch.inf
        for answer, never in enumerate(subject.never_at):
            logits_AW[answer, list(never)] = -torch.inf
    return logits_AW - logits_AW.logsumexp(-1, keepdim=True)


MAKERS = (language, translator, masked, text_classifier, vit, swin, captioner, detector)


def make_subject(name: str, **options) -> Subject:
    """A subject with other settings: make_subject("language", norm="post"); or one of `KINDS`."""
    torch.manual_seed(1)
    makers = {maker.__name__: maker for maker in MAKERS}
    return makers[name](**options) if name in makers else KINDS[name]()
