"""Subjects of images: classifiers, Swin, detectors and segmenters. Tasks call `image` with their image and classes.

Shapes: B rows · T positions · D model width · W words or classes · K classes · L proposals · C, H, W of images
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
MOST_SHARES, SMALLEST_SHARE = 5, 0.005  # of the classes of a mask that are named


def image(model: Any, image_CHW: Tensor, classes: Sequence[str], **about: Any) -> Subject:
    """An image and its class; for a segmenter, the class of each patch; for a detector, that of its surest box."""
    if isinstance(model, Detector):
        return detected(model, image_CHW, classes, **about)
    if isinstance(model, SegmentingViT | SegmentingSwin):
        return _segmented(model, image_CHW, classes, about)

    def forward(rows: int) -> Tensor:
        return model(image_CHW.expand(rows, -1, -1, -1))[:, None]

    pool: Pool = "mean" if isinstance(model, Swin) else model.pooling
    norm = model.norm if isinstance(model, Swin) else model.trunk.norm
    before = 0 if isinstance(model, Swin) else model.patches.before
    reads_first = isinstance(model, VisionTransformer) and model.pooling == "first"
    answer = class_answer(model, forward, classes, 0 if reads_first else None)
    readout = Readout(norm, model.to_classes, pool=pool, before=before)
    return Subject(
        model,
        _stacks(model),
        [answer],
        forward,
        readout,
        classes.__getitem__,
        output_text=answer.label,
        **about,
    )


# ---------------------------------------------------------------- segmenters


def _segmented(
    model: SegmentingViT | SegmentingSwin, image_CHW: Tensor, classes: Sequence[str], about: dict[str, Any]
) -> Subject:
    """The class of every patch: the one with the highest logit in the mean of its pixels."""
    stacks = _stacks(model)
    grid = stacks[0].grid
    assert grid is not None

    def forward(rows: int) -> Tensor:
        logits_BHWK = model(image_CHW.expand(rows, -1, -1, -1)).float()
        logits_BRpSqK = logits_BHWK.unflatten(2, (grid[1], -1)).unflatten(1, (grid[0], -1))
        return logits_BRpSqK.mean((2, 4)).flatten(1, 2)

    with torch.no_grad(), unfused_eval(model):
        p_AK = forward(1)[0].softmax(-1)
        kinds_HW = model(image_CHW[None])[0].argmax(-1)
    # In a Swin every stage is read, so that no position of the last one is that of a patch.
    before = None if isinstance(model, SwinBody) else model.patches.before
    kinds = p_AK.argmax(-1).tolist()
    answers = [
        Answer(None if before is None else before + number, kind, classes[kind]) for number, kind in enumerate(kinds)
    ]
    return Subject(
        model,
        stacks,
        answers,
        forward,
        _of_patches(model),
        classes.__getitem__,
        first=_first_patch(p_AK),
        output_text=_shares(kinds_HW, classes),
        cells=True,
        **about,
    )


def _first_patch(p_AK: Tensor) -> int:
    """The surest patch of the second most common class; if there is one class alone, the last patch."""
    p_A, kinds_A = p_AK.max(-1)
    counts_K = kinds_A.bincount(minlength=p_AK.shape[1])
    second = int(counts_K.argsort(descending=True, stable=True)[1]) if len(counts_K) > 1 else -1
    of_second_A = kinds_A == second
    return int(p_A.masked_fill(~of_second_A, -1.0).argmax()) if of_second_A.any() else len(p_A) - 1


def _shares(kinds: Tensor, classes: Sequence[str]) -> str:
    """Of how many pixels each class is, the most common first: "ground 91 %, 9 3 %"."""
    shares_K = kinds.flatten().bincount(minlength=len(classes)).double() / kinds.numel()
    order = [kind for kind in shares_K.argsort(descending=True, stable=True).tolist() if shares_K[kind] > 0]
    shown = [kind for number, kind in enumerate(order) if number == 0 or shares_K[kind] >= SMALLEST_SHARE]
    shown = shown[:MOST_SHARES]
    listed = ", ".join(f"{classes[kind]} {100 * float(shares_K[kind]):.0f} %" for kind in shown)
    return listed + (", …" if len(shown) < len(order) else "")


def _of_patches(model: SegmentingViT | SegmentingSwin) -> Readout | None:
    """The mean of a patch's pixels is linear in the patch if each patch maps linearly to its own pixels."""
    if not isinstance(model, SegmentingViT) or not isinstance(model.to_classes, LinearHead):
        return None
    classes, before = model.to_classes.classes, model.patches.before
    head = _linear(model.to_classes.project, lambda rows: rows.unflatten(0, (-1, classes)).mean(0))
    rows, columns = model.patches.grid
    return Readout(model.trunk.norm, head, positions=range(before, before + rows * columns))


# ---------------------------------------------------------------- detectors


def detected(
    model: Detector,
    image_CHW: Tensor,
    classes: Sequence[str],
    found: Sequence[tuple[int, int]] = (),
    box: int = 0,
    **about: Any,
) -> Subject:
    """An image and the class of a box. `found`: the proposal and the class of every box; by default, of the surest."""

    def outputs(rows: int) -> tuple[Tensor, Tensor]:
        logits_BLK, boxes_BL4 = model(image_CHW.expand(rows, -1, -1, -1))
        return logits_BLK, boxes_BL4

    with torch.no_grad(), unfused_eval(model):
        logits_BLK, boxes_BL4 = outputs(1)
        scores_LK = model.scores(logits_BLK)[0]
    found = found or [divmod(int(scores_LK.argmax()), scores_LK.shape[1])]
    proposal, kind = found[box]
    position = model.token_of(proposal)

    def forward(rows: int) -> Tensor:
        return outputs(rows)[0][:, [proposal]]

    dense = isinstance(model, DenseDetector)
    head = _of_cell(model, proposal) if isinstance(model, DenseDetector) else model.to_classes
    names = [*classes, "nothing"]  # a class of its own in set prediction
    which = f"box {box + 1} of {len(found)}" if len(found) > 1 else "the surest box"
    label = f"{classes[kind]}, {which}"
    return Subject(
        model,
        _stacks(model),
        [Answer(position, kind, label)],
        forward,
        Readout(model.trunk.norm, head, positions=[position]),
        names.__getitem__,
        output_text=f"{label}, {float(scores_LK[proposal, kind]):.2f}",
        independent=dense,
        boxes=[tuple(boxes_BL4[0, proposal].float().tolist()) for proposal, _ in found],
        box=box,
        **about,
    )


def _of_cell(model: DenseDetector, proposal: int) -> nn.Linear:
    """The classifier of one cell of a patch: some rows of the head."""
    columns = model.patches.grid[1] * model.cells
    row, column = divmod(proposal, columns)
    cell = row % model.cells * model.cells + column % model.cells
    first = cell * (model.classes + 4)
    return _linear(model.to_cells, lambda rows: rows[first : first + model.classes])


def _linear(layer: nn.Linear, of_rows: Callable[[Tensor], Tensor]) -> nn.Linear:
    """A linear layer built from the rows of another."""
    weight_WD, bias_W = (of_rows(rows.detach()) for rows in (layer.weight, layer.bias))
    linear = nn.Linear(weight_WD.shape[1], weight_WD.shape[0], device="meta")
    linear.weight, linear.bias = nn.Parameter(weight_WD), nn.Parameter(bias_W)
    return linear


# ---------------------------------------------------------------- shared by all


def _stacks(model: Any) -> list[Stack]:
    if isinstance(model, SwinBody):
        return _stages(model)
    return [patches(LAYERS, model.patches, blocks_of(model.trunk.blocks), getattr(model, "queries", 0))]


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
