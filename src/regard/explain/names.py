"""Names of the parts of a model in pictures; names.js has the same ones for the page."""

from __future__ import annotations

import re

from regard.inside.image_subjects import LAYERS
from regard.inside.trace import Trace

PART = re.compile(r"(?P<stack>.+?)\.(?P<layer>\d+)\.(?P<part>[a-z]+)(?:\.(?P<head>\d+))?")


def part_name(trace: Trace, name: str) -> str:
    """'decoder.0.cross.3' as 'decoder, layer 1, cross-attention, head 4'; other names are returned unchanged."""
    match = PART.fullmatch(name)
    if match is None:
        return name
    site = f"{match['stack']}.{match['layer']}.{match['part']}"
    words = [] if match["stack"] == LAYERS else [match["stack"]]
    words += [f"layer {int(match['layer']) + 1}", next(part.title for part in trace.parts() if part.name == site)]
    words += [f"head {int(match['head']) + 1}"] if match["head"] else []
    return ", ".join(words)
