"""Curves of a training: one panel for each thing that was measured."""

from regard.explain.training_curves import training_curves

RECORDS = [
    {"step": 1, "loss": 3.0, "learning_rate": 0.1, "images_per_second": 9.0},
    {"step": 2, "valid_loss": 2.5, "valid_accuracy": 50.0, "valid_macro_f1": 40.0},
]


def test_there_is_a_panel_for_the_loss_each_metric_asked_for_the_rate_and_the_speed(tmp_path, saved_figures):
    training_curves(RECORDS, ["accuracy", "loss", "bleu"], tmp_path / "new" / "curves.png")
    [figure] = saved_figures
    assert [axis.get_title() for axis in figure.axes] == ["loss", "accuracy", "learning rate", "images per second"]
    loss, accuracy, _, speed = figure.axes
    assert [line.get_label() for line in loss.lines] == ["training", "validation"]
    assert accuracy.lines[0].get_xydata().tolist() == [[2, 50]] and speed.lines[0].get_xydata().tolist() == [[1, 9]]
    assert (tmp_path / "new" / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_without_records_nothing_is_drawn(tmp_path):
    training_curves([], ["loss"], tmp_path / "curves.png")
    assert not list(tmp_path.iterdir())
