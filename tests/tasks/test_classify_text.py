"""A trained classifier: its scores, its baselines, and what it can start from."""

import json
from collections import Counter

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import accuracy_score, f1_score

import regard
from regard.data.labelled import labelled_splits
from regard.errors import RegardError
from regard.training.checkpoint import read_weights
from regard.training.folder import RunFolder
from tiny import CLASSIFY, TINY_TEXT, person


def lines(path):
    return [line.split("\t") for line in path.read_text().splitlines()]


def test_it_has_learned_who_a_sentence_is_about(classifier):
    assert regard.evaluate(classifier.folder.path, baselines=False)["accuracy"] > 90


def test_scores_are_scikit_learns(classifier, texts):
    labels, sentences = zip(*lines(texts / "test.tsv"), strict=True)
    guessed = [guess.label for guess in classifier.classify(sentences)]
    evaluation = classifier.evaluate(baselines=False)
    assert evaluation.outputs == guessed
    assert evaluation.metrics["accuracy"] == pytest.approx(100 * accuracy_score(labels, guessed))
    assert evaluation.metrics["macro_f1"] == pytest.approx(100 * f1_score(labels, guessed, average="macro"))


def test_the_evaluation_shows_bags_of_words_on_the_same_split(classifier):
    evaluation = classifier.evaluate()
    names = [baseline["name"] for baseline in evaluation.details["baselines"]]
    assert len(names) == 3 and all(baseline["accuracy"] > 85 for baseline in evaluation.details["baselines"])
    shown = "\n".join(evaluation.notes)
    assert all(name in shown for name in names)
    train = list(labelled_splits(classifier.settings.data)["train"])
    mean = sum(len(example.text.split()) for example in train) / len(train)
    assert "1,500" in shown and evaluation.details["samples_per_length"] == pytest.approx(len(train) / mean)


def test_the_confusion_picture_is_drawn(classifier):
    picture = classifier.evaluate(baselines=False).details["confusion_picture"]
    assert np.asarray(Image.open(picture).convert("L")).std() > 5


def test_probabilities_of_all_classes_sum_to_one(classifier):
    [guess] = classifier.classify(["I see the dog."])
    assert guess.all[0] == (guess.label, guess.probability)
    assert sum(p for _, p in guess.all) == pytest.approx(1.0, abs=1e-5)
    assert {name for name, _ in guess.all} == {"self", "others", "nobody"}


def test_a_text_is_classified_alike_alone_and_among_others(classifier, texts):
    sentences = [text for _, text in lines(texts / "test.tsv")[:60]]
    together = classifier.classify(sentences)
    for sentence, guess in zip(sentences[:8], together, strict=False):
        [alone] = classifier.classify([sentence])
        assert dict(alone.all)["self"] == pytest.approx(dict(guess.all)["self"], abs=1e-5)


def test_an_unknown_label_at_evaluation_is_named(classifier, tmp_path):
    (tmp_path / "new.tsv").write_text("self\tI go home.\nsomebody\tThe man goes home.\n")
    with pytest.raises(RegardError) as caught:
        classifier.evaluate([str(tmp_path / "new.tsv")])
    assert "'somebody'" in caught.value.what and "nobody, others, self" in caught.value.why


@pytest.mark.parametrize("form", ["tsv", "jsonl", "csv"])
def test_what_has_no_text_is_left_out_of_the_scores_counted_and_keeps_its_line(classifier, tmp_path, capsys, form):
    examples = [("self", "I go home."), ("self", ""), ("others", "She goes home."), ("nobody", "  ")]
    line = {"tsv": "{}\t{}\n", "jsonl": '{{"label": "{}", "text": "{}"}}\n', "csv": "{},{}\n"}[form]
    written = ("label,text\n" if form == "csv" else "") + "".join(line.format(*example) for example in examples)
    (tmp_path / f"new.{form}").write_text(written + "\n" * (form != "csv"))
    found = classifier.evaluate([str(tmp_path / f"new.{form}")], baselines=False)
    blank = [1, 3] if form == "csv" else [1, 3, 4]  # where a record is a line, a blank one counts
    assert [number for number, output in enumerate(found.outputs) if not output] == blank
    assert [output for output in found.outputs if output] == [
        guess.label for guess in classifier.classify(["I go home.", "She goes home."])
    ]
    assert (found.count, found.details["left_out"]) == (2, len(blank))
    said = " ".join(capsys.readouterr().err.split())
    assert f"{len(blank)} of {len(found.outputs)} lines have no text" in said


def test_a_single_class_cannot_be_learned(tmp_path):
    (tmp_path / "train.tsv").write_text("self\tI go home.\n" * 50)
    with pytest.raises(RegardError) as caught:
        regard.train("starter-classify", out=tmp_path / "run", data=tmp_path)
    assert "label 'self'" in caught.value.what
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("source", ["masked", "language"])
def test_a_classifier_starts_from_a_run(source, request, texts, tmp_path):
    run = request.getfixturevalue(source)
    few = [setting for setting in CLASSIFY if "steps" not in setting and "validate" not in setting]
    few += ["training.steps=60", "training.validate_every=60", "training.warmup=5"]
    out = regard.train("starter-classify", *few, out=tmp_path / "tuned", data=texts, start_from=run.folder.path)
    tuned = regard.load(out)
    assert tuned.tokenizer.to_json() == run.tokenizer.to_json()
    assert tuned.settings.model.causal == (source == "language")
    assert tuned.settings.model.width == run.settings.model.width
    most_frequent = Counter(person(text) for _, text in lines(texts / "test.tsv")).most_common(1)[0][1] / 4
    assert tuned.evaluate(baselines=False).metrics["accuracy"] > most_frequent + 3


def test_word_vectors_start_the_embedding(words, texts, tmp_path):
    vectors = words.folder.path / "vectors.txt"
    settings = [*TINY_TEXT, *CLASSIFY, "model.width=16", "tokenizer.kind=word", "tokenizer.vocabulary=600"]
    settings += ["tokenizer.lowercase=true", "training.steps=1", "training.learning_rate=1e-9"]
    out = regard.train("starter-classify", *settings, out=tmp_path / "run", data=texts, embeddings=vectors)
    run = regard.load(out)
    table = read_weights(RunFolder(out))["trunk.embedding.table.weight"].numpy()
    row = table[run.tokenizer.encode(["teacher"])[0][0]]
    given = words.vectors.vectors[words.vectors.row("teacher")]
    assert np.dot(row, given) / np.linalg.norm(row) / np.linalg.norm(given) == pytest.approx(1.0, abs=1e-4)
    with pytest.raises(RegardError) as caught:
        regard.train(
            "starter-classify", *settings, "model.width=32", out=tmp_path / "wide", data=texts, embeddings=vectors
        )
    assert "16" in str(caught.value)
    assert not (tmp_path / "wide").exists()


def test_the_classes_are_written_beside_the_model(classifier):
    assert json.loads((classifier.folder.path / "labels.json").read_text()) == ["nobody", "others", "self"]


def test_the_same_command_resumes_a_run_that_started_from_another(masked, texts, tmp_path):
    few = [*CLASSIFY, "training.validate_every=5", "model.dropout=0.0"]
    where = {"out": tmp_path / "tuned", "data": texts, "start_from": masked.folder.path}
    regard.train("starter-classify", *few, "training.steps=5", **where)
    run = regard.train("starter-classify", *few, "training.steps=10", **where, resume=True)
    loaded = regard.load(run)
    assert loaded.folder.read_json("summary.json")["steps"] == 10
    assert loaded.settings.model.width == masked.settings.model.width
