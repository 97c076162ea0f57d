"""`regard doctor`: images without classes, and data that nothing can be trained with."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from image_sources import tree
from regard.cli.app import app
from regard.cli.doctor import _examine as examine
from regard.cli.doctor import _shown
from regard.data.survey import Proportion
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


def test_data_that_cannot_be_trained_on_is_an_error_after_the_report(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "a.tsv").write_text("".join(f"dog {n}\tHund {n}\n" for n in range(40)) + "bad\n")
    (tmp_path / "none.tsv").write_text("")
    command = ["doctor", "starter", 'data.train=["a.tsv"]', "data.held_out=0.2", "data.bad_lines=skip"]
    command += ["--data", str(tmp_path)]
    good = CliRunner().invoke(app, command)
    assert good.exit_code == 0
    assert good.stdout.count("1 line of") == 1 and "bad lines" in good.stdout
    bad = CliRunner().invoke(app, [*command, "data.test=none.tsv"])
    assert isinstance(bad.exception, RegardError)
    assert bad.exception.why == "The test data is empty: no pair with text on both sides is left for it."
    assert bad.exception.why in bad.stdout


def test_a_part_of_a_whole_is_shown_as_a_percentage_and_nothing_else_is() -> None:
    shown = [_shown(value) for value in (Proportion(0.25), Proportion(0), 0.25, 0.0, 3, None)]
    assert shown == ["25.00%", "0", "0.2", "0.0", "3", "–"]
