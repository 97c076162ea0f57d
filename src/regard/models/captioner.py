"""The encoder–decoder over images: the encoder reads patches, the decoder writes about them.

    memory = encoder(patches)
    logits = decoder(caption so far, memory) Eᵀ           E: the embedding of words, when tied

An image has no filling, so every word may look at every patch. A caption has a row to itself, and is filled up behind
its end, where no word before it looks.

Shapes: B images · C channels · H × W pixels · S patches · T words of a caption · D model width · V vocabulary
        R = H · W · C numbers that an image is given as · X images that enter
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.data.scale import Scaled
from regard.layers.context import Context, Memory
from regard.layers.patches import PatchEmbedding
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.stack import through
from regard.settings import CaptionModel


class Captioner(EncoderDecoder):
    source_embedding: PatchEmbedding

    def __init__(self, settings: CaptionModel, height: int, width: int, channels: int, vocabulary: int, scaled: Scaled):
        """`scaled`: how pixels are scaled when they are given as bytes."""
        super().__init__(settings, vocabulary, lambda table: PatchEmbedding(settings, height, width, channels))
        self.shape = height, width, channels
        self.scaled = scaled

    def forward(self, images_BCHW: Tensor, caption_BT: Tensor) -> Tensor:
        """Logits of the next word at every position of the caption: [B, T, V]."""
        return self.to_logits(self.hidden(images_BCHW, caption_BT))

    def hidden(self, images_BCHW: Tensor, caption_BT: Tensor) -> Tensor:
        """What the logits are read from: [B, T, D]."""
        memory_BSD = self.encode(images_BCHW)
        memory = Memory(memory_BSD, None, self._summary(memory_BSD, None))
        position_1T = torch.arange(caption_BT.shape[1], device=caption_BT.device)[None]
        return self.decode(memory, caption_BT, None, position_1T)

    def encode(self, images_BCHW: Tensor) -> Tensor:
        """What the encoder makes of every patch: [B, S, D]."""
        x_BSD = self.source_embedding(images_BCHW)
        position_1S = torch.arange(x_BSD.shape[1], device=x_BSD.device)[None]
        return through(self.encoder, self.encoder_norm, x_BSD, Context.build(None, position_1S, causal=False))

    def read(self, source_XR: Tensor, lengths_X: Tensor) -> tuple[Tensor, Tensor]:
        """Images as bytes, row by row, the channels of a pixel side by side."""
        images_XCHW = self.scaled.pixels(source_XR.unflatten(1, self.shape))
        memory_XSD = self.encode(images_XCHW.to(self.source_embedding.project.weight.dtype))
        return memory_XSD, torch.full_like(lengths_X, memory_XSD.shape[1])

    def source_positions(self, length: int) -> int:
        rows, columns = self.source_embedding.grid
        return self.source_embedding.before + rows * columns
