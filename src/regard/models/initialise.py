"""Where training starts.

paper     matrices uniform with variance 2 / (fan in + fan out), embeddings normal with variance 1 / d
gpt2      everything normal with deviation .02; what is added to the residual stream scaled by 1 / √(2 · depth),
          so that its size does not grow with depth
zero-out  matrices normal with deviation .5 / √(fan in), embeddings .02; what is added to the residual stream is
          zero at first, so that every block starts as the identity

Recurrent cells stay as torch made them. Mixers and positions may have weights that start in their own way.
"""

from __future__ import annotations

import math

from torch import nn

from regard.layers.mixer import Mixer
from regard.layers.positions import Positions
from regard.settings import ModelSettings


def initialise(model: nn.Module, settings: ModelSettings, depth: int) -> None:
    """Set every weight of a model of `depth` blocks. Tie weights only after this."""
    paper = settings.initialisation == "paper"
    mixers = [module for module in model.modules() if isinstance(module, Mixer)]
    done = {id(part) for mixer in mixers for own in mixer.initialise() for part in own.modules()}
    for name, module in model.named_modules():
        if id(module) in done:
            continue
        if isinstance(module, nn.Linear):
            adds = name.endswith(("to_out", "contract"))  # to the residual stream
            if paper:
                nn.init.xavier_uniform_(module.weight)
            elif settings.initialisation == "gpt2":
                nn.init.normal_(module.weight, std=0.02 / math.sqrt(2 * depth) if adds else 0.02)
            elif adds:
                nn.init.zeros_(module.weight)
            else:
                nn.init.normal_(module.weight, std=0.5 / math.sqrt(module.in_features))
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5 if paper else 0.02)
        elif isinstance(module, Positions):
            module.initialise()
