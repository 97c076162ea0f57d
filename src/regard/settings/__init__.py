"""The sections that tasks are set by: typed, frozen and closed.

A task's own settings are a class in its file (`regard.tasks`), made of these sections. What a recipe leaves out takes
the value given here. No file in this package imports torch.
"""

from regard.settings.base import Auto, FileList, Problem, Settings
from regard.settings.data import DataSettings, ImageData, LabelledData, PairData, TextData
from regard.settings.decoding import BeamSettings, GenerationSettings, SamplingSettings
from regard.settings.images import AugmentationSettings, CropSettings, ImageSettings
from regard.settings.model import (
    CausalModel,
    ImageModel,
    ModelSettings,
    SequenceModel,
    TextClassifierModel,
    TokenModel,
    TranslationModel,
)
from regard.settings.objectives import EmbeddingSettings, MaskingSettings, PixelSettings, SyntheticSettings
from regard.settings.parts import PartSettings
from regard.settings.system import ReproducibleSystem, SystemSettings
from regard.settings.task import (
    ImageTaskSettings,
    NetworkSettings,
    RunningTextSettings,
    SentenceSettings,
    TaskSettings,
    TextModelSettings,
)
from regard.settings.tokenizer import PairTokenizerSettings, TokenizerSettings
from regard.settings.training import (
    ImageClassifierTraining,
    ImageTraining,
    NetworkTraining,
    PackedTraining,
    PixelTraining,
    RunningTextTraining,
    TextClassifierTraining,
    TextTraining,
    TokenTraining,
    TrainingSettings,
    TranslationTraining,
)

__all__ = [
    "AugmentationSettings",
    "Auto",
    "BeamSettings",
    "CausalModel",
    "CropSettings",
    "DataSettings",
    "EmbeddingSettings",
    "FileList",
    "GenerationSettings",
    "ImageClassifierTraining",
    "ImageData",
    "ImageModel",
    "ImageSettings",
    "ImageTaskSettings",
    "ImageTraining",
    "LabelledData",
    "MaskingSettings",
    "ModelSettings",
    "NetworkSettings",
    "NetworkTraining",
    "PackedTraining",
    "PairData",
    "PairTokenizerSettings",
    "PartSettings",
    "PixelSettings",
    "PixelTraining",
    "Problem",
    "ReproducibleSystem",
    "RunningTextSettings",
    "RunningTextTraining",
    "SamplingSettings",
    "SentenceSettings",
    "SequenceModel",
    "Settings",
    "SyntheticSettings",
    "SystemSettings",
    "TaskSettings",
    "TextClassifierModel",
    "TextClassifierTraining",
    "TextData",
    "TextModelSettings",
    "TextTraining",
    "TokenModel",
    "TokenTraining",
    "TokenizerSettings",
    "TrainingSettings",
    "TranslationModel",
    "TranslationTraining",
]
