"""What every task does in the same way: from a recipe and a run folder to a trained, measured run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch import nn

from regard import console
from regard.settings import Config, ModelSettings
from regard.explain.plots import training_curves
from regard.hardware import Hardware, environment, peak_memory, seed_everything
from regard.recipes import to_toml
from regard.tasks.starting import start_from_files
from regard.training.folder import RunFolder
from regard.training.loop import Progress, Task, Trainer


class RunTask(Task, Protocol):
    """What the trainer needs, and what makes a run of it."""

    def build(self) -> nn.Module: ...
    def architecture(self) -> dict[str, Any]:
        """What another program must know to load the weights."""

    def size(self) -> str:
        """How much data there is, in words."""

    def test(self, model: nn.Module) -> dict[str, float]:
        """The figures for summary.json, on held-out data."""

    def next_commands(self) -> list[str]: ...


def train_task(
    config: Config, folder: RunFolder, make: Callable[[Config, RunFolder, Hardware], RunTask]
) -> dict[str, Any]:
    """Train, or go on training, and leave a finished run. Returns its summary."""
    hardware = Hardware.choose(config.system, config.training.steps if config.worth_compiling else 0)
    console.say(f"Training '{config.recipe}' on {hardware.describe()}.")
    folder.write_json("environment.json", environment())
    for line in without_effect(config):
        console.warn(line)
    task = make(config, folder, hardware)
    folder.write_text("config.toml", to_toml(config))  # a resumed run may have been given more steps
    seed_everything(config.seed)
    model = task.build()
    if not folder.saved_steps():
        start_from_files(config, folder, model)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    console.say(f"{task.size()} · {parameters:,} parameters")
    folder.write_json("config.json", task.architecture() | {"model": config.model.model_dump()})
    trainer = Trainer(config, model, task, folder, hardware)
    progress = trainer.run()
    trainer.finish()
    metrics = task.test(trainer.model)
    return _write_summary(config, folder, hardware, progress, parameters, metrics, task.next_commands())


def without_effect(config: Config) -> list[str]:
    """Settings of the model that change nothing beside its mixer, in words."""
    model, default = config.model, ModelSettings()
    said = [
        f'model.{name} has no effect: model.mixer is "{model.mixer}".'
        for name, mixer in (("window", "local"), ("hyena_order", "hyena"), ("hyena_recurrence", "hyena"))
        if model.mixer != mixer and getattr(model, name) != getattr(default, name) and not model.stages
    ]
    length = config.row[1]
    if model.mixer == "local" and model.window >= length:
        said.append(f"model.window = {model.window} reaches over a row of {length}: local attention is then attention.")
    return said


def draw_curves(folder: RunFolder) -> None:
    """The course of training so far, as a picture."""
    training_curves(folder.read_metrics(), folder.plots / "curves.png")


def _write_summary(
    config: Config,
    folder: RunFolder,
    hardware: Hardware,
    progress: Progress,
    parameters: int,
    metrics: dict[str, float],
    commands: list[str],
) -> dict[str, Any]:
    """Leave summary.json for scripts and README.md for people."""
    summary = {
        "task": config.task,
        "recipe": config.recipe,
        "seed": config.seed,
        "steps": progress.step,
        "seconds": round(progress.seconds, 1),
        "parameters": parameters,
        "device": hardware.describe(),
        "peak_memory_bytes": peak_memory(hardware.device),
        "metrics": metrics,
        "next": commands,
    }
    folder.write_text("README.md", _readme(folder, summary))
    folder.write_json("summary.json", summary)
    return summary


def _readme(folder: RunFolder, summary: dict[str, Any]) -> str:
    figures = "\n".join(f"| {name} | {value:.4g} |" for name, value in summary["metrics"].items())
    commands = "\n".join(summary["next"])
    vocabulary = ", `tokenizer.json` its vocabulary" if (folder.path / "tokenizer.json").exists() else ""
    return f"""# {folder.path.name}

Trained with Regard from the recipe `{summary["recipe"]}` ({summary["task"]}): {summary["steps"]:,} steps,
{summary["parameters"]:,} parameters, on {summary["device"]}. Figures on held-out data:

| | |
|---|---|
{figures}

```
{commands}
```

`model.safetensors` and `config.json` are the model{vocabulary}, `config.toml` every setting,
`metrics.jsonl` the course of training, `checkpoints/` what `--resume` goes on from.
"""
