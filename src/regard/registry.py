"""The one place that lists the parts: name → "module:Class".

Whatever lists or chooses tasks, mixers, position encodings or optimizers asks here. A plug-in, a Python file
named with `--plugin`, adds to these tables with dicts of the same names:

    MIXERS = {"shift": Shift}          # in the user's shift.py, beside the class

Nothing is imported before it is asked for. A run records the plug-ins it was made with, by name and hash, and asks for
them again; opening a run folder never executes code that lies in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import RegardError, UsageError, did_you_mean

TASKS: dict[str, Any] = {
    "translate": "regard.tasks.translate:Translate",
    "summarize": "regard.tasks.summarize:Summarize",
    "language": "regard.tasks.language:Language",
    "chat": "regard.tasks.chat:Chat",
    "masked": "regard.tasks.masked:Masked",
    "classify-text": "regard.tasks.classify_text:ClassifyText",
    "answer": "regard.tasks.answer:Answer",
    "embeddings": "regard.tasks.embeddings:Embeddings",
    "classify-image": "regard.tasks.classify_image:ClassifyImage",
    "detect": "regard.tasks.detect:Detect",
    "pixels": "regard.tasks.pixels:Pixels",
    "segment": "regard.tasks.segment:Segment",
    "caption": "regard.tasks.caption:Caption",
    "synthetic": "regard.tasks.synthetic:Synthetic",
    "play": "regard.tasks.play:Play",
}
MIXERS: dict[str, Any] = {
    "attention": "regard.layers.attention:Attention",
    "local": "regard.layers.local:LocalAttention",
    "hyena": "regard.layers.hyena:Hyena",
    "rnn": "regard.layers.recurrent:Rnn",
    "lstm": "regard.layers.recurrent:Lstm",
    "gru": "regard.layers.recurrent:Gru",
}
POSITIONS: dict[str, Any] = {
    "sinusoidal": "regard.layers.positions:Sinusoidal",
    "sinusoidal-halves": "regard.layers.positions:SinusoidalHalves",
    "sinusoidal-2d": "regard.layers.positions:Sinusoidal2d",
    "learned": "regard.layers.positions:Learned",
    "index": "regard.layers.positions:Index",
    "rotary": "regard.layers.positions:Rotary",
    "none": "regard.layers.positions:NoPositions",
}
OPTIMIZERS: dict[str, Any] = {
    "adam": "regard.training.optimizer:Adam",
    "adamw": "regard.training.optimizer:AdamW",
    "muon": "regard.training.optimizer:MuonAndAdamW",
}
KINDS = {"tasks": TASKS, "mixers": MIXERS, "positions": POSITIONS, "optimizers": OPTIMIZERS}


def names(kind: str) -> list[str]:
    """All names of a kind, in the order of their table."""
    return list(KINDS[kind])


def load(kind: str, name: str) -> Any:
    """The class of this name, imported when it is first asked for."""
    table = KINDS[kind]
    if name not in table:
        raise UsageError(
            f"There is no {kind.removesuffix('s')} '{name}'.",
            f"It is not one of the {kind} that Regard or a plug-in brings.",
            did_you_mean(name, table),
        )
    if isinstance(table[name], str):
        module, _, attribute = table[name].partition(":")
        table[name] = getattr(importlib.import_module(module), attribute)
    return table[name]


# ---------------------------------------------------------------- plug-ins


@dataclass(frozen=True)
class Plugin:
    """A Python file that brought parts, and the hash of what was in it."""

    path: Path
    sha256: str
    parts: frozenset[tuple[str, str]]  # (kind, name)


_plugins: dict[Path, Plugin] = {}


def load_plugins(paths: Iterable[Path | str] | Path | str) -> None:
    """Run these files, and add the parts that they define."""
    for path in [paths] if isinstance(paths, Path | str) else paths:
        file = Path(path).resolve()
        if file not in _plugins:
            _plugins[file] = _load_plugin(file)


def plugins() -> list[Plugin]:
    """The plug-ins of this process, in the order they were loaded."""
    return list(_plugins.values())


def plugins_of(used: Mapping[str, str]) -> list[Plugin]:
    """Those that brought any of the parts used: {"mixers": "shift", …}."""
    return [plugin for plugin in plugins() if plugin.parts & set(used.items())]


def _load_plugin(file: Path) -> Plugin:
    try:
        source = file.read_bytes()
    except OSError as error:
        raise UsageError(f"Cannot read the plug-in '{file}'.", f"{error}", "Check the path after --plugin.") from None
    name = f"regard_plugin_{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UsageError(f"'{file}' is not a Python file.", "A plug-in is one.", "Name a file that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with contextlib.redirect_stdout(sys.stderr):  # standard output is for results
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise RegardError(
            f"The plug-in '{file}' failed while it was loaded.",
            f"{type(error).__name__}: {error}",
            "Correct the file; `python FILE.py` shows where it fails.",
        ) from error
    brought = {kind: parts for kind in KINDS if (parts := getattr(module, kind.upper(), None))}
    if not brought:
        raise UsageError(
            f"The plug-in '{file}' brings nothing.",
            f"It defines none of {', '.join(kind.upper() for kind in KINDS)}.",
            'For example: MIXERS = {"mine": Mine}',
        )
    for kind, parts in brought.items():
        for part in parts:
            if part in KINDS[kind]:
                raise UsageError(
                    f"The plug-in '{file}' brings a second '{part}'.",
                    f"There is one already among the {kind}.",
                    "Give it another name.",
                )
        _check_parts(file, kind, parts)
    for kind, parts in brought.items():
        KINDS[kind].update(parts)
    brings = frozenset((kind, part) for kind, parts in brought.items() for part in parts)
    return Plugin(file, hashlib.sha256(source).hexdigest(), brings)


def _check_parts(file: Path, kind: str, parts: Any) -> None:
    """A dict from names that a recipe can have to classes that say what others must know."""
    needed = ("Settings", "about") if kind == "tasks" else ("Settings",)
    if not isinstance(parts, dict):
        raise UsageError(
            f"{kind.upper()} in the plug-in '{file}' is not a dict.",
            "It has the classes by their names.",
            f'For example: {kind.upper()} = {{"mine": Mine}}',
        )
    for name, part in parts.items():
        if not re.fullmatch(r"[A-Za-z0-9_-]+", str(name)):
            raise UsageError(
                f"The plug-in '{file}' brings a part named '{name}'.",
                "A name has letters, digits, - and _ only: it is a key in recipes.",
                "Give it another name.",
            )
        if not isinstance(part, type) or not all(hasattr(part, attribute) for attribute in needed):
            raise UsageError(
                f"'{name}' in the plug-in '{file}' cannot be one of the {kind}.",
                f"It is not a class with {' and '.join(needed)}.",
                "docs/extending.md shows what to derive it from.",
            )
