"""Sites: activations of a model that can be read and edited.

    encoder.embedding           input of the first block                             [B, T, D]
    encoder.0                   output of a block                                    [B, T, D]
    encoder.0.mixer             output of a part of a block; also .cross, .feedforward
    encoder.0.mixer.heads       concatenated heads, before W_out                     [B, T, H·V]

Blocks are counted from 0. Inside `watching`, an edit maps an activation to another one. Each row of the batch can be
edited differently, so that a hundred changes are one forward pass.

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
    """The module of every site: its output is the activation, or for heads its input."""
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
    """Inside, every forward pass applies the edits; yields a dict that it fills with the activations to `keep`."""
    edits = edits or {}
    sites, activations = sites_of(subject), {}
    handles = []

    def visit(site: str, value: Tensor) -> Tensor:
        value = edits[site](value) if site in edits else value
        if site in keep:
            activations[site] = value
        return value

    for site in {*keep, *edits}:
        if site not in sites:
            raise UsageError(
                f"'{site}' is not a site of this model.", "There is no such part.", did_you_mean(site, list(sites))
            )

        def before(_: Any, inputs: tuple[Any, ...], site: str = site) -> Any:
            return (visit(site, inputs[0]), *inputs[1:])

        def after(_: Any, __: Any, output: Tensor, site: str = site) -> Tensor:
            return visit(site, output)

        module = sites[site]
        if site.endswith(".heads"):
            handles.append(module.register_forward_pre_hook(before))
        else:
            handles.append(module.register_forward_hook(after))
    try:
        yield activations
    finally:
        for handle in handles:
            handle.remove()
