"""Caption: images with captions in, a model that writes about images out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard import console
from regard.data.splits import SHOWN_AS
from regard.recipes import changed
from regard.settings import (
    CaptionData,
    CaptionDecoding,
    CaptionModel,
    CaptionTraining,
    FileList,
    MovingAugmentation,
    PictureTaskSettings,
    Problem,
    ReproducibleSystem,
    TokenizerSettings,
)
from regard.tasks.images import PictureTask
from regard.tasks.task import About

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from regard.data.caption_batches import CaptionBatch
    from regard.data.image_cache import Images, ImageSplits
    from regard.data.tokenizers import TextTokenizer
    from regard.decoding.caption import CaptionWriter
    from regard.decoding.hypothesis import SearchRecord
    from regard.decoding.text_search import Written
    from regard.evaluation.metrics import Evaluation
    from regard.inside.subject import Subject
    from regard.models.captioner import Captioner

TOKENIZER = "tokenizer.json"
MOST_VALIDATION_IMAGES = 500  # captioned at each validation; the loss is over all of them
SAMPLES = 10  # images whose captions are shown at each validation
ROWS = 64  # of a batch in validation


class CaptionSettings(PictureTaskSettings):
    SELECT: ClassVar[tuple[str, ...]] = ("loss", "bleu4", "exact")

    data: CaptionData = CaptionData()
    augmentation: MovingAugmentation = MovingAugmentation()
    tokenizer: TokenizerSettings = TokenizerSettings()
    model: CaptionModel = CaptionModel()
    training: CaptionTraining = CaptionTraining()
    decoding: CaptionDecoding = CaptionDecoding()
    system: ReproducibleSystem = ReproducibleSystem()

    @property
    def row(self) -> tuple[str, int]:
        """The longer of what is read and what is written."""
        patches = self.model.tokens(self.images.height, self.images.width)
        return max(("the number of patches", patches), self.longest, key=lambda named: named[1])

    @property
    def longest(self) -> tuple[str, int]:
        return "data.max_length", self.data.max_length

    def check(self) -> Iterator[Problem]:
        yield from super().check()
        yield from self.tokenizer.check()
        yield from self.check_tokens(", or a larger model.patch")
        yield from self.model.check_patches(self.images.height, self.images.width)
        if self.training.select != "loss" and not self.training.validate_bleu:
            yield Problem(f'training.select = "{self.training.select}" needs training.validate_bleu = true', "set that")


class Caption(PictureTask[CaptionSettings]):
    """`regard.load("runs/scenes-caption").caption(["photo.jpg"])`"""

    about = About(
        noun="a captioner",
        verb="caption",
        metrics=("bleu4", "exact"),
        starter="scenes-caption",
        advice="Edit data.sample or data.images, images.size, model.patch and tokenizer.",
    )
    Settings = CaptionSettings
    reads = "images"

    model: Captioner
    tokenizer: TextTokenizer

    # ------------------------------------------------------------ from data to a model

    @classmethod
    def check_files(cls, settings: CaptionSettings) -> None:
        from regard.data.captions import check_captions

        check_captions(settings.data)

    @classmethod
    def examine(cls, settings: CaptionSettings) -> tuple[dict[str, Any], list[str]]:
        from regard.data.survey import survey_captions

        return survey_captions(settings.data, settings.images)

    def splits(self) -> ImageSplits:
        from regard.data.captions import caption_sources
        from regard.data.image_cache import image_splits

        return image_splits(self.settings.data, self.settings.images, caption_sources)

    def prepare(self) -> None:
        from regard.data.augmentation import Augmentation
        from regard.data.caption_batches import Captions, CaptionStream

        super().prepare()
        self.measure_scale()
        if not self.folder.has(TOKENIZER):
            self.folder.write_text(TOKENIZER, self._learned_tokenizer().to_json())
        self.restore()
        settings = self.settings
        captions = {
            name: Captions.encoded(captions_of_each(getattr(self.images, name)), self.tokenizer) for name in SHOWN_AS
        }
        most = settings.data.max_length
        self.length = min(most, -(-captions["train"].longest // 8) * 8)
        for name, words in SHOWN_AS.items():
            if cut := int((captions[name].tokens.lengths >= self.length).sum()):
                console.warn(
                    f"{cut:,} of {len(captions[name].tokens):,} {words} captions are longer than {self.length} tokens "
                    f"(data.max_length = {most}) and are cut."
                )
        self.captions = {name: of_split.fitted(self.length) for name, of_split in captions.items()}
        self.augment = Augmentation(settings.augmentation, settings.images.height, settings.images.width)
        self.stream = CaptionStream(
            self.images.train, self.captions["train"], self.length, settings.training.images_per_batch, settings.seed
        )

    def _learned_tokenizer(self) -> TextTokenizer:
        from regard.data.tokenizers import train_tokenizer

        texts = [text for of_image in captions_of_each(self.images.train) for text in of_image]
        return train_tokenizer(texts[: self.settings.tokenizer.sample_lines], self.settings.tokenizer)

    def restore(self) -> None:
        from regard.data.tokenizers import TextTokenizer

        self.tokenizer = TextTokenizer.load(self.folder.checked(TOKENIZER))
        self.restore_scale()

    def build(self) -> Captioner:
        from regard.models.captioner import Captioner

        images = self.settings.images
        shape = images.height, images.width, images.channels
        return Captioner(self.settings.model, *shape, self.tokenizer.size, self.scaled)

    def architecture(self) -> dict[str, Any]:
        from regard.data.tokenizers import END, PAD, START

        return {
            "architecture": "captioner",
            "images": self.settings.images.model_dump(),
            "vocabulary": self.tokenizer.size,
            "mean": self.scale.mean,
            "deviation": self.scale.deviation,
            "pad_id": PAD,
            "start_id": START,
            "end_id": END,
        }

    def describe(self) -> str:
        images, count, captions = self.settings.images, len(self.images.train), len(self.captions["train"].tokens)
        return (
            f"{count:,} images of {images.height} x {images.width} with {captions:,} captions · "
            f"vocabulary {self.tokenizer.size:,}"
        )

    # ------------------------------------------------------------ training and scoring

    def hidden(self, batch: CaptionBatch) -> Tensor:
        """At every position of a caption, for the next token: [B, T, D]. In training, images are changed at random."""
        if self.model.training:
            images_BCHW = self.scaled(self.augment(batch.pixels_BHWC, batch.keys_B)[0])
        else:
            images_BCHW = self.scaled.pixels(batch.pixels_BHWC)
        return self.model.hidden(images_BCHW, batch.caption_BT)

    def validate(self, step: int) -> dict[str, float]:
        from regard.evaluation.captions import CaptionScorer

        scores = self.settings.training.validate_bleu
        images = self.images.valid.evenly(MOST_VALIDATION_IMAGES if scores else SAMPLES)
        written = _best(self.writer(beam=1).write(images.pixels_NHWC, best=1))
        references = captions_of_each(images)
        shown = list(zip(images.names, references, written, strict=True))[:SAMPLES]
        blocks = [f"image      {name}\nreference  {texts[0]}\ncaption    {caption}\n" for name, texts, caption in shown]
        self.folder.write_text(f"samples/step-{step}.txt", "\n".join(blocks))
        metrics = self._loss_on("valid")
        if scores:
            found = CaptionScorer(references).scores(written, bootstrap=False)
            metrics |= {score.name: score.value for score in found if score.name in ("bleu4", "exact")}
        return metrics

    def test(self) -> dict[str, float]:
        return self._loss_on("test") | self._captioned(self.images.test, self.writer()).metrics

    def _loss_on(self, split: str) -> dict[str, float]:
        """Mean loss (nats per token) and perplexity over all captions."""
        from regard.data.caption_batches import in_order
        from regard.training.measure import measure

        batches = in_order(getattr(self.images, split), self.captions[split], self.length, ROWS)
        measured = measure(self.model, batches, self.logits, self.hardware, self.processes)
        return {"loss": measured.loss, "perplexity": measured.perplexity}

    def evaluate(
        self, files: FileList | None = None, split: str = "test", baselines: bool = True, **options: Any
    ) -> Evaluation:
        """Caption held-out images and score that; beside it the captions of other images, and one for all of them.

        Options are of [decoding].
        """
        from regard.data.captions import open_captions
        from regard.data.image_cache import images_to_test

        splits = self.splits() if baselines or not files else None
        if files:
            sources = [open_captions(Path(str(name)).resolve(), self.settings.data) for name in files]
            images = images_to_test(sources, self.settings.data, self.settings.images, [])
        else:
            assert splits is not None
            self.notice_change(splits.fingerprints, split)
            images = getattr(splits, split)
        training = captions_of_each(splits.train) if baselines and splits is not None else []
        return self._captioned(images, self.writer(**options), [text for texts in training for text in texts])

    def _captioned(self, images: Images, writer: CaptionWriter, training: Sequence[str] = ()) -> Evaluation:
        """The best caption of every image, and their scores; with training captions, also those of one for all."""
        from regard.evaluation.captions import CaptionScorer, best_constant
        from regard.evaluation.metrics import Evaluation

        scorer = CaptionScorer(captions_of_each(images))
        with console.progress(len(images), "captioning") as show:
            captions = _best(writer.write(images.pixels_NHWC, best=1, progress=lambda done: show(done, "")))
        scores, shuffled = scorer.scores(captions), scorer.shuffled(captions, self.settings.seed)
        beside = [score for score in shuffled if score.name in ("bleu4_shuffled", "exact_shuffled")]
        details: dict[str, Any] = {"shuffled": {score.name: score.value for score in shuffled}}
        notes = ["", "_shuffled: the same captions, each scored with another image than the one it was written about"]
        if training:
            constant = best_constant(scorer, training)
            reached = {score.name: score.value for score in constant.scores}
            details["constant"] = {"caption": constant.caption} | reached
            listed = " · ".join(f"{name} {value:.2f}" for name, value in reached.items())
            notes.append(f'one caption for all images, "{constant.caption}": {listed}')
        outputs = [f"{name}\t{caption}" for name, caption in zip(images.names, captions, strict=True)]
        return Evaluation([*scores, *beside], len(images), "images", outputs, details, notes)

    def next_commands(self) -> list[str]:
        path = self.folder.path
        commands = [f"regard caption {path} {self.example}", f"regard evaluate {path}"]
        if self.settings.model.cross != "none":  # else there is nothing to see
            commands.append(f"regard explain {path} {self.example} -o words.png")
        return commands

    # ------------------------------------------------------------ a loaded run

    def caption(
        self, images: Sequence[NDArray[np.uint8] | Path | str] | Path | str, *, seed: int = 1, **decoding: Any
    ) -> list[str]:
        """The best caption of each image, a file or [H, W] or [H, W, C]. Keywords override [decoding]: beam=1 …"""
        import numpy as np

        images = [images] if isinstance(images, Path | str) else images
        if not len(images):
            return []
        pixels = [self.read_file(image) if isinstance(image, Path | str) else self.read(image) for image in images]
        return _best(self.writer(**decoding).write(np.stack(pixels), seed=seed, best=1))

    def writer(self, **decoding: Any) -> CaptionWriter:
        """What captions images with these settings of [decoding]; it gives all hypotheses with their scores."""
        from regard.decoding.caption import CaptionWriter

        settings, model = changed(self.settings.decoding, **decoding), self.settings.model
        most: int = model.part("positions").most_positions(model)
        return CaptionWriter(self.tokenizer, settings, most, self.engines(settings.int8))

    def subject(self, image: Path | str, target: str = "", forced: Sequence[int] = ()) -> Subject:
        """An image, and its caption or a given one, to trace. `forced`: ids that the caption starts with."""
        from regard.inside import subjects
        from regard.inside.forcing import completed

        pixels_HWC, image_CHW = self.looked_at(image)
        if target:
            ids = self.tokenizer.encode([target])[0]
        else:
            ids = completed(forced, lambda: self.writer().write(pixels_HWC[None], best=1, forced=forced)[0][0].tokens)
        return subjects.caption(
            self.model,
            image_CHW,
            ids,
            self.tokenizer.piece,
            generated=not target,
            input_text=Path(image).name,
            output_text=self.tokenizer.decode([ids])[0],
            picture_HWC=pixels_HWC,
            with_prefix=lambda tokens, _: self.subject(image, forced=tokens),
        )

    def record_search(self, image: Path | str, **decoding: Any) -> SearchRecord:
        """How the caption was searched for: every candidate of every step. Options are of [decoding]."""
        return self.writer(**decoding).record(self.read_file(image))


def captions_of_each(images: Images) -> list[list[str]]:
    """What people wrote about each of these images."""
    from regard.data.captions import captions_of

    assert images.attached is not None
    return [captions_of(attached) for attached in images.attached]


def _best(every: Sequence[Sequence[Written]]) -> list[str]:
    """A model that has run away may write nothing."""
    return [hypotheses[0].text if hypotheses else "" for hypotheses in every]
