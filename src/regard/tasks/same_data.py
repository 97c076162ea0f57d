"""Whether the data of a run is still what it was when the run was started.

A run goes on exactly where it stopped only with the same training data in the same order; and its figures are of
the data that was held out then. So data.json in the run folder keeps a fingerprint of each split, of the content
alone: data that was copied or moved is the same data.
"""

from __future__ import annotations

from collections.abc import Mapping

from regard import console
from regard.data.named import SHOWN_AS
from regard.errors import RegardError
from regard.training.folder import RunFolder

NAME = "data.json"


def remember_data(folder: RunFolder, fingerprints: Mapping[str, str]) -> None:
    """Keep the fingerprints of a new run's data. In one that goes on, other training data is an error."""
    if _changed(folder, fingerprints, "train"):
        raise RegardError(
            f"The training data of '{folder.path}' has changed since the run was started.",
            "A run goes on where it stopped, in the same order of the same data.",
            f"Restore the data; or start a new run from what this one has learned: --from {folder.path}",
        )
    for split in ("valid", "test"):
        notice_change(folder, fingerprints, split)
    folder.write_json(NAME, dict(fingerprints))


def notice_change(folder: RunFolder, fingerprints: Mapping[str, str], split: str) -> None:
    """Say so if a split is not what it was when the run was trained."""
    if _changed(folder, fingerprints, split):
        console.warn(
            f"The {SHOWN_AS[split]} data of '{folder.path}' has changed since the run was trained: figures are not "
            "comparable, and some of it may have been trained on."
        )


def _changed(folder: RunFolder, fingerprints: Mapping[str, str], split: str) -> bool:
    """A run from before there was a data.json is not judged."""
    return (folder.path / NAME).exists() and folder.read_json(NAME).get(split) != fingerprints.get(split)
