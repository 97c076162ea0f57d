"""Sites: the places in a model where one can look, or change what passes.

    encoder.embedding           what the first block of a stack reads                [B, T, D]
    encoder.0                   what a block has made of it                          [B, T, D]
    encoder.0.mixer             what a part of a block adds to it; also .cross, .feedforward
    encoder.0.mixer.heads       the heads side by side, before W_out                 [B, T, H·V]

Blocks are counted from 0. While `watching`, an edit is a function of what passes; rows of a batch may each be edited
in their own way, so that a hundred changes are one pass of the model.

Shapes: B rows · T positions · H heads · V value width of a head · D model width
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from regard.errors import UsageError, did_you_mean
from regard.inside.subject import Subject

PARTS = ("mixer", "cross", "feedforward")
Edit = Callable[[Tensor], Tensor]


def sites_of(subject: Subject) -> dict[str, nn.Module]:
    """The module of every site. Of heads, it is the one that reads them."""
    sites: dict[str, nn.Module] = {}
    for stack in subject.stacks:
        sites[f"{stack.name}.embedding"] = stack.embed
        for number, block in enumerate(stack.blocks):
            sites[f"{stack.name}.{number}"] = block
            for part in PARTS:
                module = getattr(block, part)
                if module is not None:
                    sites[f"{stack.name}.{number}.{part}"] = module
                    if getattr(module, "heads", 0):
                        sites[f"{stack.name}.{number}.{part}.heads"] = module.to_out
    return sites


@contextmanager
def watching(subject: Subject, keep: Collection[str] = (), edits: Mapping[str, Edit] | None = None) -> Iterator[Any]:
    """Inside, each pass of the model notes what passed the sites to `keep`, as it was after the edits."""
    edits = edits or {}
    sites, seen = sites_of(subject), {}
    handles = []

    def passed(site: str, value: Tensor) -> Tensor:
        value = edits[site](value) if site in edits else value
        if site in keep:
            seen[site] = value
        return value

    for site in {*keep, *edits}:
        if site not in sites:
            raise UsageError(
                f"'{site}' is not a place in this model.", "There is no such part.", did_you_mean(site, list(sites))
            )

        def before(_: Any, inputs: tuple[Any, ...], site: str = site) -> Any:
            return (passed(site, inputs[0]), *inputs[1:])

        def after(_: Any, __: Any, output: Tensor, site: str = site) -> Tensor:
            return passed(site, output)

        module = sites[site]
        if site.endswith(".heads"):
            handles.append(module.register_forward_pre_hook(before))
        else:
            handles.append(module.register_forward_hook(after))
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()
