"""What several tests of data need."""

from pathlib import Path

import pytest

from photos import Photos


@pytest.fixture
def photos(tmp_path: Path) -> Photos:
    return Photos(tmp_path)
