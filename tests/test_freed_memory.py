"""Freed memory is kept for the next tensors: no page is asked of the kernel twice."""

import statistics
import subprocess
import sys

import pytest

PROGRAM = """
import resource, torch
from regard.hardware import keep_freed_memory
torch.set_num_threads(1)
torch.manual_seed(1)
layers = [torch.nn.Linear(64, 64) for _ in range(6)]
model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 1200))
x, labels = torch.randn(2048, 64), torch.randint(0, 1200, (2048,))
for kept in (False, True):
    if kept:
        keep_freed_memory()
    faults = []
    for _ in range(8):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.nn.functional.cross_entropy(model(x), labels, label_smoothing=0.1).backward()
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    print(*faults[1:])
"""
PAGES = 2048 * 1200 * 4 // 4096  # of one tensor of logits


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs glibc")
def test_freed_memory_is_used_again_without_asking_the_kernel():
    """In a process of its own: pages asked for in each step but the first, without and with."""
    shown = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    given_back, kept = ([int(number) for number in line.split()] for line in shown.splitlines())
    assert len(kept) == len(given_back) == 7 and statistics.median(kept) < PAGES / 100
    assert 2 * sum(kept) < sum(given_back)
