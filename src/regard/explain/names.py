"""What the parts of a model are called in pictures; names.js calls them the same on the page."""

from __future__ import annotations

import re

from regard.inside.trace import Trace

PART = re.compile(r"(?P<stack>.+?)\.(?P<layer>\d+)\.(?P<part>[a-z]+)(?:\.(?P<head>\d+))?")
ALONE = "layers"  # the name of a stack that is the only one


def part_name(trace: Trace, name: str) -> str:
    """'decoder.0.cross.3' as 'decoder, layer 1, cross-attention, head 4'; what is not a part stays as it is."""
    found = PART.fullmatch(name)
    if found is None:
        return name
    site = f"{found['stack']}.{found['layer']}.{found['part']}"
    words = [] if found["stack"] == ALONE else [found["stack"]]
    words += [f"layer {int(found['layer']) + 1}", next(part.title for part in trace.parts() if part.name == site)]
    words += [f"head {int(found['head']) + 1}"] if found["head"] else []
    return ", ".join(words)
