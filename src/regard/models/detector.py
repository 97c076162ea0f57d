"""A detector: a Transformer over the patches of an image proposes boxes, each with a score for every class.

    dense   every cell, a patch or a part of one, has a class and a box. Scores are independent of each other (σ), so
            that background is where all are low; a box is counted from its cell:
                centre = the cell's centre + cell · d          size = cell · eˢ
    set     some tokens stand beside the patches, and each has a class, or "nothing", and a box anywhere in the image
            (Carion et al., 2020; in one stack with the patches: Fang et al., 2021)

Shapes: B images · C channels · H × W pixels · T tokens · R × S grid of patches · Q queries · L proposals: cells or
queries · D model width · K classes · 4: x0, y0, x1, y1
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.models.initialise import initialise
from regard.models.vision import PatchReader
from regard.settings import DetectorModel

RARE = 0.01  # the score of every class at first: most cells are background
SMALLEST, LARGEST = -4.0, 6.0  # s, in eˢ


def make_detector(settings: DetectorModel, height: int, width: int, channels: int, classes: int) -> Detector:
    kind = DenseDetector if settings.head == "dense" else SetDetector
    return kind(settings, height, width, channels, classes)


class Detector(PatchReader):
    suppresses: ClassVar[bool]  # whether an object may be found several times, and the less sure boxes have to go

    def forward(self, images_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """What the head says of classes, [B, L, K or K + 1], and boxes in pixels, [B, L, 4]; both float32."""
        raise NotImplementedError

    def scores(self, logits: Tensor) -> Tensor:
        """Of every class for every box, 0 … 1: [B, L, K]."""
        raise NotImplementedError

    def token_of(self, proposal: int) -> int:
        """The token that a proposal is read from."""
        raise NotImplementedError


class DenseDetector(Detector):
    suppresses = True
    centres_L2: Tensor
    cell_2: Tensor

    def __init__(self, settings: DetectorModel, height: int, width: int, channels: int, classes: int):
        super().__init__(settings, height, width, channels)
        self.classes, self.cells = classes, settings.cells
        self.to_cells = nn.Linear(settings.width, settings.cells**2 * (classes + 4))
        initialise(self, settings, depth=settings.layers)
        nn.init.zeros_(self.to_cells.weight)
        with torch.no_grad():
            self.to_cells.bias.view(-1, classes + 4)[:, :classes] = -math.log(1 / RARE - 1)
        rows, columns = (side * settings.cells for side in self.patches.grid)
        cell = width / columns, height / rows
        y_R1, x_S = (torch.arange(rows)[:, None] + 0.5) * cell[1], (torch.arange(columns) + 0.5) * cell[0]
        centres_RS2 = torch.stack(torch.broadcast_tensors(x_S, y_R1), dim=-1)
        self.register_buffer("centres_L2", centres_RS2.reshape(-1, 2), persistent=False)
        self.register_buffer("cell_2", torch.tensor(cell), persistent=False)

    def forward(self, images_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        x_BTD = self.tokens(images_BCHW)[:, self.patches.before :]
        said = self.to_cells(x_BTD).float()
        # Cells of a patch lie in it as patches lie in the image: rows first.
        said = said.unflatten(1, self.patches.grid).unflatten(-1, (self.cells, self.cells, -1))
        said_BLX = said.transpose(2, 3).flatten(1, 4)
        logits_BLK, moved_BL2, sizes_BL2 = said_BLX.split([self.classes, 2, 2], dim=-1)
        centres_BL2 = self.centres_L2 + moved_BL2 * self.cell_2
        half_BL2 = sizes_BL2.clamp(SMALLEST, LARGEST).exp() * self.cell_2 / 2
        return logits_BLK, torch.cat([centres_BL2 - half_BL2, centres_BL2 + half_BL2], dim=-1)

    def scores(self, logits: Tensor) -> Tensor:
        return logits.sigmoid()

    def token_of(self, proposal: int) -> int:
        columns = self.patches.grid[1]
        row, column = divmod(proposal, columns * self.cells)
        return self.patches.before + row // self.cells * columns + column // self.cells


class SetDetector(Detector):
    suppresses = False
    size_4: Tensor

    def __init__(self, settings: DetectorModel, height: int, width: int, channels: int, classes: int):
        # Queries are learned tokens beside the patches, as registers are: the last of them.
        beside = settings.model_copy(update={"registers": settings.registers + settings.queries})
        super().__init__(beside, height, width, channels)
        self.queries = settings.queries
        self.to_classes = nn.Linear(settings.width, classes + 1)  # the last: nothing
        self.to_box = nn.Sequential(nn.Linear(settings.width, settings.width), nn.GELU(), nn.Linear(settings.width, 4))
        initialise(self, settings, depth=settings.layers)
        self.register_buffer("size_4", torch.tensor([width, height] * 2).float(), persistent=False)

    def forward(self, images_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        before = self.patches.before
        x_BQD = self.tokens(images_BCHW)[:, before - self.queries : before]
        centres_BQ2, sizes_BQ2 = self.to_box(x_BQD).float().sigmoid().chunk(2, dim=-1)
        boxes_BQ4 = torch.cat([centres_BQ2 - sizes_BQ2 / 2, centres_BQ2 + sizes_BQ2 / 2], dim=-1)
        return self.to_classes(x_BQD).float(), boxes_BQ4 * self.size_4

    def scores(self, logits: Tensor) -> Tensor:
        return logits.softmax(-1)[..., :-1]

    def token_of(self, proposal: int) -> int:
        return self.patches.before - self.queries + proposal
