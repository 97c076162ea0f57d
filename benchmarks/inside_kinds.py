"""Is everything that is looked at right on this machine's GPU, for every kind of model?

    python benchmarks/inside_kinds.py                 # in the repository; on a CPU with --device cpu

Small models with random weights, those of the tests (tests/small_models.py), moved to the device. Of each: the largest
change of a logit when every mixer is recomputed from its formula, and the largest error of the arithmetic of a random
cell of every matrix of the walk, relative to the number. Lens, contributions, attributions, scores of heads, influence
and ablation are run too. Exits with 1 if anything fails.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import small_models
from regard.explore.arithmetic import arithmetic
from regard.explore.matrices import tensor
from regard.explore.session import TracedInput
from regard.explore.steps import steps
from regard.inside.trace import Trace, trace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    device = parser.parse_args().device
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    spoilt, pixels = small_models.spoilt, small_models.pixels
    small_models.spoilt = lambda model: spoilt(model).to(device)
    small_models.pixels = lambda *size: pixels(*size).to(device)
    failed = 0
    for kind, make in small_models.KINDS.items():
        torch.manual_seed(1)
        try:
            traced = trace(make())
            look_at_all(traced)
            print(f"{kind}: difference {traced.difference:.1e}, arithmetic {arithmetic_error(traced):.1e}", flush=True)
        except Exception:
            failed += 1
            print(f"{kind}: failed", flush=True)
            traceback.print_exc()
    print(f"{len(small_models.KINDS)} kinds, {failed} failed")
    sys.exit(bool(failed))


def look_at_all(traced: Trace) -> None:
    subject = traced.subject
    if subject.readout is not None:
        assert traced.lens().agreement.values[-1] == 100
        assert traced.contributions().notes["error"] < 1e-3
    traced.candidates()
    traced.attribute("integrated-gradients", steps=8).faithful(orders=2)
    traced.attribute("occlusion")
    traced.ablate(parts=next(iter(traced.parts())).name)
    traced.influence(probes=2)
    if any(part.attends for part in traced.parts()):
        traced.heads()
    if subject.with_tokens is not None:
        trace(subject.with_tokens(subject.tokens))


def arithmetic_error(recorded: Trace) -> float:
    traced, draw, worst = TracedInput(None, 0, {}, recorded), random.Random(1), 0.0  # type: ignore[arg-type]
    names = {
        figure["matrix"]
        for stack in recorded.stacks
        for layer in range(len(stack.layers))
        for step in steps(traced, stack.name, layer)["steps"]
        for figure in step["figures"]
    }
    for name in sorted(names):
        *head, row, column = (draw.randrange(size) for size in tensor(traced, name).shape)
        content = arithmetic(traced, name, row, column, head=head[0] if head else None)
        if content["lines"] and content["cell"] is not None:
            error = abs(content["lines"][-1]["value"] - content["cell"])
            worst = max(worst, error / max(1.0, abs(content["cell"])))
    return worst


if __name__ == "__main__":
    main()
