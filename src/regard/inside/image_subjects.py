"""Subjects of images: classifiers, Swin, detectors and segmenters. Tasks call `image` with their image and classes.

Shapes: B rows · T positions · D model width · W words or classes · K classes · L proposals · C, H, W of images
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.inside.readout import Pool, Readout
from regard.inside.subject import Answer, Stack, Subject, blocks_of, patch_names, unfused_eval
from regard.layers.patches import PatchEmbedding
from regard.models.detector import DenseDetector, Detector
from regard.models.segmenter import LinearHead, SegmentingSwin, SegmentingViT
from regard.models.swin import Stage, Swin, SwinBody
from regard.models.vision import VisionTransformer

LAYERS = "layers"  # the name of a model's only stack


def image(model: Any, image_CHW: Tensor, classes: Sequence[str], **about: Any) -> Subject:
    """An image and its class; for a detector, the class of its surest box; for a segmenter, the class with the highest
    logit in the mean of all pixels."""

    def rows_of(rows: int) -> Tensor:
        return image_CHW.expand(rows, -1, -1, -1)

    if isinstance(model, Detector):
        return _detector(model, rows_of, classes, about)
    forward: Callable[[int], Tensor]
    if isinstance(model, SegmentingViT | SegmentingSwin):

        def forward(rows: int) -> Tensor:
            return model(rows_of(rows)).float().mean((1, 2))[:, None]

        readout = _of_mean_pixel(model)
    else:

        def forward(rows: int) -> Tensor:
            return model(rows_of(rows))[:, None]

        pool: Pool = "mean" if isinstance(model, Swin) else model.pooling
        norm = model.norm if isinstance(model, Swin) else model.trunk.norm
        before = 0 if isinstance(model, Swin) else model.patches.before
        readout = Readout(norm, model.to_classes, pool=pool, before=before)
    stacks = (
        _stages(model)
        if isinstance(model, SwinBody)
        else [patches(LAYERS, model.patches, blocks_of(model.trunk.blocks))]
    )
    reads_first = isinstance(model, VisionTransformer) and model.pooling == "first"
    answer = class_answer(model, forward, classes, 0 if reads_first else None)
    if isinstance(model, SegmentingViT | SegmentingSwin):
        answer = replace(answer, label=f"{answer.label}, mean of all pixels")
    return Subject(model, stacks, [answer], forward, readout, classes.__getitem__, output_text=answer.label, **about)


def _detector(
    model: Detector, rows_of: Callable[[int], Tensor], classes: Sequence[str], about: dict[str, Any]
) -> Subject:
    with torch.no_grad(), unfused_eval(model):
        logits_BLK, boxes_BL4 = model(rows_of(1))
        scores_LK = model.scores(logits_BLK)[0]
    proposal, kind = divmod(int(scores_LK.argmax()), scores_LK.shape[1])
    position = model.token_of(proposal)

    def forward(rows: int) -> Tensor:
        return model(rows_of(rows))[0][:, [proposal]]

    dense = isinstance(model, DenseDetector)
    head = _of_cell(model, proposal) if isinstance(model, DenseDetector) else model.to_classes
    names = [*classes, "nothing"]  # a class of its own in set prediction
    label = f"{classes[kind]}, the surest box"
    return Subject(
        model,
        [patches(LAYERS, model.patches, blocks_of(model.trunk.blocks), getattr(model, "queries", 0))],
        [Answer(position, kind, label)],
        forward,
        Readout(model.trunk.norm, head, positions=[position]),
        names.__getitem__,
        output_text=f"{label}, {float(scores_LK[proposal, kind]):.2f}",
        independent=dense,
        box=tuple(boxes_BL4[0, proposal].float().tolist()),
        **about,
    )


def _of_cell(model: DenseDetector, proposal: int) -> nn.Linear:
    """The classifier of one cell of a patch: some rows of the head."""
    columns = model.patches.grid[1] * model.cells
    row, column = divmod(proposal, columns)
    cell = row % model.cells * model.cells + column % model.cells
    first = cell * (model.classes + 4)
    return _linear(model.to_cells, lambda rows: rows[first : first + model.classes])


def _of_mean_pixel(model: SegmentingViT | SegmentingSwin) -> Readout | None:
    """Logits averaged over pixels are linear in the mean patch if each patch maps linearly to its own pixels."""
    if not isinstance(model, SegmentingViT) or not isinstance(model.to_classes, LinearHead):
        return None
    classes = model.to_classes.classes
    head = _linear(model.to_classes.project, lambda rows: rows.unflatten(0, (-1, classes)).mean(0))
    return Readout(model.trunk.norm, head, pool="mean", before=model.patches.before)


def _linear(layer: nn.Linear, of_rows: Callable[[Tensor], Tensor]) -> nn.Linear:
    """A linear layer built from the rows of another."""
    weight_WD, bias_W = (of_rows(rows.detach()) for rows in (layer.weight, layer.bias))
    linear = nn.Linear(weight_WD.shape[1], weight_WD.shape[0], device="meta")
    linear.weight, linear.bias = nn.Parameter(weight_WD), nn.Parameter(bias_W)
    return linear


def patches(name: str, embed: PatchEmbedding, blocks: list[Any], queries: int = 0) -> Stack:
    """`queries`: how many of the registers, at the end, are queries, from which boxes are read."""
    registers = 0 if embed.registers_ED is None else len(embed.registers_ED) - queries
    before = ["class"] * (embed.class_token_1D is not None)
    before += [f"register {n + 1}" for n in range(registers)] + [f"query {n + 1}" for n in range(queries)]
    fixed = frozenset(range(embed.before))
    return Stack(name, embed, blocks, patch_names(embed.grid, before), embed.grid, embed.before, fixed)


def _stages(model: SwinBody) -> list[Stack]:
    """Each stage is a stack; its patches are merged from those of the stage before."""
    stacks, grid = [], model.grid
    embed: nn.Module = model.patches_norm
    for number, stage in enumerate(model.stages):
        assert isinstance(stage, Stage)
        stacks.append(Stack(f"stage {number + 1}", embed, blocks_of(stage.blocks), patch_names(grid), grid))
        embed, grid = stage.merge, (grid[0] // 2, grid[1] // 2)
    return stacks


def class_answer(
    model: nn.Module, forward: Callable[[int], Tensor], classes: Sequence[str], position: int | None
) -> Answer:
    with torch.no_grad(), unfused_eval(model):
        kind = int(forward(1)[0, 0].argmax())
    return Answer(position, kind, classes[kind])
