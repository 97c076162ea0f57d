"""Settings of earlier versions, under the names that they have now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

MOVED = {
    "model.hyena_order": "model.hyena.order",
    "model.hyena_recurrence": "model.hyena.recurrence",
    "model.hyena_filter_length": "model.hyena.filter_length",
    "model.hyena_filter_bands": "model.hyena.filter_bands",
    "model.hyena_filter_width": "model.hyena.filter_width",
    "model.window": "model.local.window",
    "training.muon_learning_rate": "training.muon.learning_rate",
    "training.muon_momentum": "training.muon.momentum",
}
# What has no effect on some tasks, or not any more, and is not among their settings.
WITHOUT_EFFECT = {
    "translate": ["model.logit_cap", "decoding.batch_tokens"],
    "masked": ["model.logit_cap"],
    "language": ["decoding.batch_tokens"],
    "pixels": ["decoding.batch_tokens"],
    "classify-text": ["model.logit_cap", "model.tie_embeddings", "decoding"],
}


def upgrade(tree: dict[str, Any], whole: Mapping[str, Any], report: Callable[[str], None] | None) -> None:
    """Rename settings in place. `whole`: all settings together, of which the tree may be a part.

    `report` says what replaced them; without it the tree is a run's own config.toml, which holds every setting of its
    time, also of parts that it does not use.
    """
    model, training = (whole[name] if isinstance(whole.get(name), dict) else {} for name in ("model", "training"))
    for old, new in MOVED.items():
        section, _, key = old.partition(".")
        values = tree.get(section)
        if not isinstance(values, dict) or key not in values or (key == "window" and _is_of_swin(whole, model)):
            continue
        _, part, name = new.split(".")
        value = values.pop(key)
        if report is not None or part in (model.get("mixer"), training.get("optimizer")):
            table = values.setdefault(part, {})
            if isinstance(table, dict):
                table.setdefault(name, value)
        if report is not None:
            report(f"{old} is now {new}.")
    if report is None and model.get("stages") and isinstance(tree.get("model"), dict):
        tree["model"].setdefault("narrow", "sides")  # the only way there was
    for name in WITHOUT_EFFECT.get(str(whole.get("task", "translate")), []):
        section, _, key = name.partition(".")
        values = tree if not key else tree.get(section)
        if isinstance(values, dict) and (key or section) in values:
            del values[key or section]
            if report is not None:
                report(f"{name} has no effect on this task, and is left out.")


WITH_STAGES = ("classify-image", "segment", "detect")  # tasks whose model has the settings of a Swin


def _is_of_swin(whole: Mapping[str, Any], model: Mapping[str, Any]) -> bool:
    return whole.get("task") in WITH_STAGES and (model.get("mixer") != "local" or bool(model.get("stages")))
