"""Are two trainings in one run folder kept apart?

    python benchmarks/two_at_once.py [--times 20] [--quick]

The same command is started twice at the same moment, as a new training or with --resume after the run was killed. One
of the two must train, and end with the same bytes as a training that is alone; the other must be refused with an error
in three lines, and touch nothing. The last line is JSON; the exit code is 1 if both trained, or none, or files differ.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from small_trainings import Ended, Training, Workshop, differences, kill_at_rename, run, when

# Both begin at once, and the one that trains does not end before the other has.
MEET = """
import glob, time
def wait_for(pattern, count=1):
    for _ in range(60_000):
        if len(glob.glob(pattern)) >= count:
            break
        time.sleep(0.001)
open("{folder}/%d.here" % os.getpid(), "w").close()
wait_for("{folder}/*.here", 2)
"""
TRAININGS = ["language", "classify-text from masked", "synthetic", "pixels"]


def together(workshop: Workshop, training: Training, resumed: bool) -> tuple[str, list[str]]:
    """What the refused one was told, and what is wrong."""
    with workshop.bench(training.name) as folder:
        out, whole = folder / "run", workshop.whole(training.name)
        if resumed:
            run(*workshop.command(training, out), before=kill_at_rename("/step-6"))
        command = workshop.command(training, out, "--resume")
        ended = folder / "ended"
        before = when("os.rename", "/step-8'", f"wait_for({str(ended)!r})") + MEET.format(folder=folder)

        def train() -> Ended:
            result = run(*command, before=before)
            ended.touch()
            return result

        with ThreadPoolExecutor(2) as workers:
            both = [each.result() for each in [workers.submit(train) for _ in range(2)]]
        refused = [ended for ended in both if ended.code]
        problems = [f"not a clear end: {ended.stderr[-1000:]}" for ended in both if not ended.is_clear]
        if len(refused) != 1:
            problems.append(f"exit codes {[ended.code for ended in both]}")
        if len(refused) < 2:
            problems += differences(out, whole)
        told = [line for ended in refused for line in ended.stderr.splitlines() if line.startswith("Error: ")]
        return " / ".join(told).replace(str(folder), ""), problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="four times")
    options = parser.parse_args()
    times = 4 if options.quick else options.times
    bad = 0
    with tempfile.TemporaryDirectory() as place:
        workshop = Workshop(Path(place))
        print("training | started | the other was told | problems", flush=True)
        for number in range(times):
            training, resumed = workshop.trainings[TRAININGS[number // 2 % len(TRAININGS)]], bool(number % 2)
            told, problems = together(workshop, training, resumed)
            bad += bool(problems)
            print(f"{training.name} | {'--resume' if resumed else 'new'} | {told} | {'; '.join(problems)}", flush=True)
    print(json.dumps({"times": times, "problems": bad}))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
