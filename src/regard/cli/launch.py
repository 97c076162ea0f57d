"""A training as several processes of this machine, started and watched by torch's own launcher (torchrun's).

It ends all of them as soon as one fails. Stopped by Ctrl-C or SIGTERM, it lets them save and leave together. One that
hangs is killed in the end.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from regard.errors import LOST, NOTICED, UNANSWERED, RegardError
from regard.startup import LAUNCHER

STOPPED = 130
LEAVE_WITHIN = 25  # seconds, to save and to end
KILLED_AFTER = 30  # seconds that torch's launcher leaves others to end, once one has failed


def launch(processes: int, arguments: Sequence[str], patience: int) -> int:
    """`regard` with these arguments, so many times at once; the exit code of the first that failed, or 0."""
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from regard.data.processes import cores

    # Left to themselves, all would use all cores.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores() // processes)))
    os.environ[LAUNCHER] = str(os.getpid())
    logging.disable(logging.ERROR)  # the process that fails says why
    try:
        with tempfile.TemporaryDirectory(prefix="regard-") as scratch:
            os.environ["TMPDIR"] = scratch  # what a process that is killed leaves behind goes, too
            config = LaunchConfig(
                min_nodes=1,
                max_nodes=1,
                nproc_per_node=processes,
                logs_specs=DefaultLogsSpecs(log_dir=scratch),
                run_id=uuid.uuid4().hex,
                rdzv_backend="c10d",
                rdzv_endpoint="localhost:0",  # any port that is free
                max_restarts=0,
                shutdown_timeout=LEAVE_WITHIN,
            )
            elastic_launch(config, sys.executable)("-m", "regard", *arguments)
    except ChildFailedError as error:
        code = why(error.failures, processes, patience)
    except SignalException:
        code = STOPPED
    else:
        return 0
    if code == STOPPED:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # all have ended; torch's handlers would raise once more
        raise KeyboardInterrupt
    return code


def why(failures: Mapping[int, Any], processes: int, patience: int) -> int:
    """The exit code after this; an error that says what happened, if no process can have said it itself.

    A process that lost another leaves with the code `LOST`, or `UNANSWERED`. Those that were still there were sent
    SIGTERM, and after a while SIGKILL.
    """
    codes = {rank: failure.exitcode for rank, failure in failures.items()}
    first = min(failure.timestamp for failure in failures.values())
    early = [rank for rank in failures if failures[rank].timestamp < first + KILLED_AFTER // 2]
    if killed := [rank for rank in early if codes[rank] < 0 and codes[rank] != -signal.SIGTERM]:
        raise RegardError(
            f"Process {killed[0]} of {processes} was ended by {signal.Signals(-codes[killed[0]]).name}.",
            "The others cannot go on without it, and have ended, too.",
            "The same command with --resume continues from the last checkpoint.",
        )
    if told := [rank for rank in early if codes[rank] > 0 and codes[rank] not in (*NOTICED, STOPPED)]:
        return int(codes[told[0]])
    # One alone may have been asked to stop, where the others could not know. One that is only slow is asked by us.
    if UNANSWERED not in codes.values() and (STOPPED in codes.values() or LOST not in codes.values()):
        return STOPPED
    silent = sorted(set(range(processes)) - {rank for rank, code in codes.items() if code in NOTICED})
    named = " and ".join(map(str, silent or range(processes)))
    raise RegardError(
        f"Process {named} of {processes} did not answer." if len(silent) == 1 else f"Processes {named} did not answer.",
        f"Others waited for system.patience = {patience} seconds; then all were ended.",
        "The same command with --resume continues from the last checkpoint. Raise system.patience if it was only slow.",
    )
