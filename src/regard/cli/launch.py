"""A training as several processes of this machine, started and watched by torch's own launcher (torchrun's).

It ends all of them as soon as one fails. Stopped by Ctrl-C or SIGTERM, it lets them save and leave together.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Sequence

from regard.errors import RegardError

STOPPED = 130
LEAVE_WITHIN = 25  # seconds, to save and to end


def launch(processes: int, arguments: Sequence[str]) -> int:
    """`regard` with these arguments, so many times at once; the exit code of the first that failed, or 0."""
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from regard.data.processes import cores

    # Left to themselves, all would use all cores.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores() // processes)))
    logging.disable(logging.ERROR)  # the process that fails says why
    try:
        with tempfile.TemporaryDirectory(prefix="regard-") as logs:  # nothing is written there
            config = LaunchConfig(
                min_nodes=1,
                max_nodes=1,
                nproc_per_node=processes,
                logs_specs=DefaultLogsSpecs(log_dir=logs),
                run_id=uuid.uuid4().hex,
                rdzv_backend="c10d",
                rdzv_endpoint="localhost:0",  # any port that is free
                max_restarts=0,
                shutdown_timeout=LEAVE_WITHIN,
            )
            elastic_launch(config, sys.executable)("-m", "regard", *arguments)
    except ChildFailedError as error:
        # One that was killed is the cause, even if others have noticed before the launcher did. SIGTERM is its own.
        rank, first = min(
            error.failures.items(),
            key=lambda failure: (
                failure[1].exitcode >= 0 or failure[1].exitcode == -signal.SIGTERM,
                failure[1].timestamp,
            ),
        )
        if first.exitcode < 0:
            raise RegardError(
                f"Process {rank} of {processes} was ended by {signal.Signals(-first.exitcode).name}.",
                "The others cannot go on without it, and have ended, too.",
                "The same command with --resume continues from the last checkpoint.",
            ) from None
        return first.exitcode
    except SignalException:
        return STOPPED
    return 0
