"""All kinds of explanations: what each one takes, and which function makes it.

Quick to import, since the help of the command line lists them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from regard.errors import UsageError, did_you_mean

EXTENSIONS = (".png", ".svg", ".html", ".json", ".csv")


@dataclass(frozen=True)
class Kind:
    maker: str  # "module:function" in this package, from a View to an Explanation
    about: str  # one line
    takes: tuple[str, ...] = ()  # the fields of `view.Choice` that have an effect
    input: Literal["needed", "optional", "none"] = "needed"  # none: it depends on the model alone


KINDS = {
    "attention": Kind(
        "attention:attention",
        "attention weights of every head; drawn over the image for image models",
        ("stack", "layer", "head", "answer"),
    ),
    "alignment": Kind(
        "alignment:alignment",
        "which source word each output word comes from",
        ("layer", "head", "reading"),
    ),
    "rollout": Kind("rollout:rollout", "attention traced back through all layers", ("stack", "answer")),
    "lens": Kind("lens:lens", "what the model would predict after each layer", ("answer",)),
    "contributions": Kind(
        "contributions:contributions", "what each head and part added to one logit", ("answer", "token")
    ),
    "ablation": Kind("ablation:ablation", "how the answer changes with each head or part switched off", ("answer",)),
    "attribution": Kind(
        "attribution:attribution",
        "contribution of each input position to the answer",
        ("answer", "token", "method"),
    ),
    "influence": Kind(
        "influence:influence",
        "how strongly each position depends on every other, for any mixer",
        ("stack", "answer"),
    ),
    "heads": Kind("heads:heads", "scores of all heads: importance, entropy, induction, copying …"),
    "candidates": Kind(
        "candidates:candidates", "the model's candidates at each position", ("answer", "count", "temperature")
    ),
    "beams": Kind("beams:beams", "the beam search, as a tree"),
    "tokens": Kind("pieces:tokens", "what the model reads: its tokens, or the patches of an image"),
    "positions": Kind("positions:positions", "positional encodings", input="none"),
    "toeplitz": Kind(
        "convolutions:convolutions",
        "Hyena's convolutions as Toeplitz matrices; with an input, the whole operator",
        input="optional",
    ),
}


def find(name: str) -> Kind:
    if name not in KINDS:
        raise UsageError(
            f"Unknown kind '{name}'.", f"--what expects one of: {', '.join(KINDS)}.", did_you_mean(name, KINDS)
        )
    return KINDS[name]


def check_choices(what: str, chosen: Iterable[str]) -> None:
    """Refuse choices that have no effect, before anything is computed."""
    for name in chosen:
        if name not in KINDS[what].takes:
            applies_to = [kind_name for kind_name, kind in KINDS.items() if name in kind.takes]
            raise UsageError(
                f"--{name} has no effect here.",
                f"It applies to {', '.join(applies_to)}, not to {what}.",
                f"Leave --{name} out, or choose another kind with --what.",
            )


def refuse_input(what: str) -> NoReturn:
    raise UsageError("An input has no effect here.", f"'{what}' takes no input.", "Leave it out.")


def check_extension(path: Path) -> None:
    """Refuse unknown file formats before anything is computed."""
    if path.suffix.lower() not in EXTENSIONS:
        known = ", ".join(EXTENSIONS[:-1])
        raise UsageError(
            f"'{path}' has an unknown extension.",
            f"The formats are {known} or {EXTENSIONS[-1]}.",
            f"Use a name such as {path.stem or 'explain'}.png or {path.stem or 'explain'}.html.",
        )


def parameters(task: Any) -> dict[str, inspect.Parameter]:
    """The parameters of the task's `subject`: for a translator, text and target. Empty: it has no layers."""
    return dict(inspect.signature(task.subject).parameters) if hasattr(task, "subject") else {}


def input_of(
    task: Any, what: str, text: str, target: str = "", context: str | None = None, box: int | None = None
) -> tuple[Any, ...]:
    """The arguments for the task's `subject`, or a clear error. `what`: the kind, or "" for the default one."""
    wanted = parameters(task)
    needs = KINDS[what].input if what else "needed"
    if not wanted and (needs == "needed" or text):
        raise UsageError(
            f"'{task.folder.path}' is {task.about.noun}.",
            "It has no layers to explain.",
            f"Use `regard {task.about.verb} {task.folder.path}`.",
        )
    for name, value in (("target", target), ("context", context), ("box", box)):
        if value and name not in wanted:
            raise UsageError(
                f"A {name} has no effect here.", f"'{task.folder.path}' is {task.about.noun}.", f"Leave --{name} out."
            )
    if needs == "none":
        if text.strip():
            refuse_input(what)
        return ()
    first = next(iter(wanted.values()))
    image = getattr(task, "reads", "") == "images"
    if not text.strip():
        if needs == "optional" or first.default is not inspect.Parameter.empty:
            return ()
        raise UsageError(
            f"{'An image' if image else 'A text'} is missing.",
            f"'{what or 'attention'}' needs an input.",
            "Add its file: dog.png" if image else 'Add it: "A dog sleeps."',
        )
    if not image:
        _must_be_unicode(text + target)
    if "context" in wanted:
        if context is None or not context.strip():
            raise UsageError(
                "The context is missing.",
                "It is the text that contains the answer to a question.",
                "Add --context FILE.",
            )
        return text, context
    if box is not None:
        return text, box
    return (text, target) if "target" in wanted else (text,)


def _must_be_unicode(text: str) -> None:
    from regard.data.lines import HALF_A_CHARACTER, encodable

    if not encodable(text):
        raise UsageError("The text is not Unicode.", HALF_A_CHARACTER, "Give it in UTF-8.")
