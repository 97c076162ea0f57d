"""`regard doctor` on folders of images."""

from __future__ import annotations

from pathlib import Path

import pytest

from image_sources import tree
from regard.cli.doctor import _examine as examine
from regard.errors import RegardError


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tree(tmp_path / "photos", *(f"{kind}/{number}.png" for kind in ("cat", "dog") for number in range(20)))


def test_folders_without_images_are_counted_and_named(photos: Path) -> None:
    assert examine("", (), photos)["data"]["empty_classes"] == 0
    for name in ("ant", "bee"):
        (photos / name).mkdir()
    result = examine("", (), photos)
    assert result["data"]["empty_classes"] == 2 and set(result["data"]["classes"]) == {"cat", "dog"}
    assert "2 folders beside the classes hold no images: 'photos/ant', 'photos/bee'." in result["advice"]


def test_folders_without_images_are_named_also_where_an_error_follows(photos: Path, capsys) -> None:
    for image in (photos / "dog").iterdir():
        image.unlink()
    with pytest.raises(RegardError, match="class 'cat'"):
        examine("", (), photos)
    assert "A folder beside the classes holds no images: 'photos/dog'." in capsys.readouterr().err
