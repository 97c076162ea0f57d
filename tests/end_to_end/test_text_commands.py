"""The verbs for text: generate, fill, classify, embeddings, tokenize, and evaluate for each kind of run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command import regard

# ---------------------------------------------------------------- training


def test_a_user_trains_and_uses_a_language_model(texts: Path, tmp_path: Path):
    settings = ["data.text=text.txt", "model.layers=1", "model.width=32", "model.heads=2", "model.feedforward=64"]
    settings += ["training.steps=20", "training.validate_every=10", "training.row_length=32", "training.warmup=5"]
    settings += ["training.tokens_per_batch=256"]
    shown = regard("train", "shakespeare-cpu", "--data", texts, "--out", "run", *settings, cwd=tmp_path, curves=True)
    assert "bits_per_byte" in shown.stdout and "regard generate run --prompt" in shown.stdout
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["task"] == "language" and summary["metrics"].keys() == {"loss", "perplexity", "bits_per_byte"}
    for name in ("curves.png",):
        assert (tmp_path / "run" / "plots" / name).stat().st_size > 5000
    assert "⟶" in (tmp_path / "run" / "samples" / "step-20.txt").read_text()


# ---------------------------------------------------------------- generate


def test_generate_reads_a_prompt_from_standard_input_and_prints_it_with_what_follows(language):
    options = ["--max-tokens", "30", "--seed", "5", "--temperature", "1"]
    piped = regard("generate", language.folder.path, *options, stdin="The man")
    given = regard("generate", language.folder.path, "--prompt", "The man", *options)
    assert piped.stdout == given.stdout
    assert piped.stdout.startswith("The man")
    assert piped.stdout[7:-1] == language.generate("The man", max_tokens=30, seed=5, temperature=1.0)[0]


def test_generate_as_json_gives_one_object_a_sample(language):
    options = ["--prompt", "The", "--samples", "3", "--max-tokens", "10", "--json"]
    found = [json.loads(line) for line in regard("generate", language.folder.path, *options).stdout.splitlines()]
    assert len(found) == 3
    for each in found:
        assert each["prompt"] == "The" and len(each["tokens"]) == 10
        assert "".join(step["token"] for step in each["tokens"]) == each["text"]


def test_generate_with_lookup_prints_the_same_text_and_how_many_tokens_a_pass_gave(language):
    options = ["--prompt", "The dog sleeps. The dog", "--max-tokens", "60", "--temperature", "0"]
    plain = regard("generate", language.folder.path, *options)
    quick = regard("generate", language.folder.path, *options, "--lookup", "7")
    assert quick.stdout == plain.stdout
    assert "in a pass" not in plain.stderr
    average = float(quick.stderr.split("Tokens written in a pass, on average: ")[1].split()[0].rstrip("."))
    assert 1.2 < average <= 8


def test_generate_shows_the_candidates_of_every_step(language):
    options = ["--prompt", "The", "--max-tokens", "4", "--top", "3", "--temperature", "0"]
    lines = regard("generate", language.folder.path, *options).stdout.splitlines()
    assert len(lines) == 4
    for line in lines:
        chosen, probability, first, likeliest, *_ = line.split()
        assert (chosen, probability) == (first, likeliest)


# ---------------------------------------------------------------- fill, classify, embeddings, tokenize


def test_fill_prints_candidates_with_probabilities(masked):
    shown = regard("fill", masked.folder.path, "The [MASK] is sick.", "--top", "4").stdout.splitlines()
    assert len(shown) == 4 and all("%" in line and line.endswith("is sick.") for line in shown)
    found = json.loads(regard("fill", masked.folder.path, "The [MASK] is sick.", "--json").stdout)
    assert len(found["masks"]) == 1 and len(found["masks"][0]) == 5


def test_classify_is_a_filter(classifier, texts: Path, tmp_path: Path):
    sentences = [line.split("\t")[1] for line in (texts / "test.tsv").read_text().splitlines()[:6]]
    piped = regard("classify", classifier.folder.path, stdin="\n".join([*sentences[:3], "", *sentences[3:]]) + "\n")
    lines = piped.stdout.splitlines()
    assert lines[3] == "" and len(lines) == 7
    expected = [f"{guess.label}\t{guess.probability:.4f}" for guess in classifier.classify(sentences)]
    assert lines[:3] + lines[4:] == expected
    (tmp_path / "a.txt").write_text("\n".join(sentences) + "\n")
    found = regard("classify", classifier.folder.path, "a.txt", "a.txt", "--json", "--top", "2", cwd=tmp_path).stdout
    records = [json.loads(line) for line in found.splitlines()]
    assert len(records) == 12 and records[:6] == records[6:]
    assert len(records[0]["classes"]) == 2 and records[0]["text"] == sentences[0]


def test_evaluate_a_classifier_from_the_command_line(classifier):
    shown = regard("evaluate", classifier.folder.path)
    assert "accuracy" in shown.stdout and "macro_f1" in shown.stdout and "Bags of words" in shown.stdout
    found = json.loads(regard("evaluate", classifier.folder.path, "--json", "--no-baselines").stdout)
    assert found["texts"] == 400 and "baselines" not in found
    assert Path(found["confusion_picture"]).is_file()


def test_embeddings_are_looked_at_and_exported(words, tmp_path: Path):
    shown = regard(
        "embeddings", words.folder.path, "--nearest", "teacher", "--analogy", "boy-man+woman", "--count", "3",
        "-o", "near.png", "--export", "vectors.txt", cwd=tmp_path,
    )  # fmt: skip
    assert "teacher" in shown.stdout and "boy-man+woman" in shown.stdout
    assert (tmp_path / "near.png").stat().st_size > 5000
    count, width = (tmp_path / "vectors.txt").read_text().split("\n", 1)[0].split()
    assert (int(count), int(width)) == (len(words.vectors.words), 16)
    again = json.loads(regard("embeddings", "vectors.txt", "--nearest", "teacher", "--json", cwd=tmp_path).stdout)
    assert [near["word"] for near in again["answers"][0]["nearest"][:3]] == [
        word for word, _ in words.vectors.nearest("teacher", 3)
    ]


def test_tokenize_shows_tokens_with_byte_positions(run: Path):
    found = json.loads(regard("tokenize", run, "Tür 🙂", "--json").stdout)
    raw = "".join(token["raw"] for token in found["tokens"])
    assert bytes.fromhex(raw.replace(" ", "")).decode() == "Tür 🙂"
    assert regard("tokenize", run / "tokenizer.json", stdin="Tür 🙂").stdout == regard("tokenize", run, "Tür 🙂").stdout


def test_the_lectures_example_of_merging_comes_out():
    shown = regard("tokenize", "-", "aaabdaaabac", "--merges").stdout
    assert "Z=aa" in shown and "ZYdZYac" in shown
    assert shown.rstrip().splitlines()[-1].endswith("XdXac")


@pytest.mark.parametrize("task", ["language", "masked", "classify-text", "embeddings"])
def test_init_prints_a_recipe_for_every_task(task: str):
    assert f'task = "{task}"' in regard("init", task).stdout


def test_doctor_looks_at_labelled_and_running_text(texts: Path):
    labelled = json.loads(
        regard("doctor", "starter-classify", 'data.test=["test.tsv"]', "--data", texts, "--json").stdout
    )
    assert sum(counts["train"] for counts in labelled["data"]["classes"].values()) == labelled["data"]["train"]["texts"]
    running = regard("doctor", "shakespeare-cpu", "data.text=text.txt", "--data", texts).stdout
    assert "documents" in running and "vocabulary" in running


# ---------------------------------------------------------------- mistakes

MISTAKES = {
    "generate with a translator": ("generate {run}", ("is a translator", "a language model", "regard translate"), 2),
    "translate with a language model": ("translate {language}", ("is a language model", "regard generate"), 2),
    "fill with a classifier": ("fill {classifier} A[MASK]", ("is a text classifier", "regard classify"), 2),
    "classify with a masked model": ("classify {masked}", ("is a masked language model", "regard fill"), 2),
    "align a language model": ("explain {language} hello --what alignment", ("no words to align",), 2),
    "negative temperature": ("generate {language} --prompt a --temperature -1", ("--temperature -1", "Use 0"), 2),
    "top-k at temperature 0": ("generate {language} --temperature 0 --top-k 3", ("--top-k has no effect",), 2),
    "candidates of many samples": ("generate {language} --top 3 --samples 2", ("--top 3", "--samples 1"), 2),
    "lookup at a temperature": (
        "generate {language} --prompt a --lookup 4 --temperature 0.8",
        ("lookup = 4", "temperature = 0.8", "Use temperature 0"),
        2,
    ),
    "lookup of several texts at once": ("generate {language} --temperature 0 --lookup 4 --slots 2", ("slots = 2",), 2),
    "top-p of nothing": ("generate {language} --prompt a --top-p 0", ("top_p", "greater than 0"), 2),
    "fill without a mask": ("fill {masked} hello", ("no [MASK]",), 2),
    "missing text": ("train shakespeare-cpu --out new", ("input.txt' is missing", "--data DIR"), 1),
    "empty text": ("train shakespeare-cpu --out new data.text={bad}/empty.txt", ("text is empty", "empty.txt"), 1),
    "text that is not UTF-8": (
        "train shakespeare-cpu --out new data.text={bad}/latin.txt",
        ("not valid UTF-8", "latin.txt", 'tokenizer.kind="byte"'),
        1,
    ),
    "too many samples": ("generate {language} --samples 1000000000", ("1,000,000,000 samples",), 2),
    "another width than that of the run to start from": (
        "train starter-classify --out new data.train={texts}/train.tsv --from {masked} model.width=48",
        ("model.width cannot be chosen here", "has model.width = 32"),
        2,
    ),
    "no name of a text": ("train shakespeare-cpu --out new data.text=", ("No text is named",), 1),
    "JSON that is none": ("train words --out new data.text={bad}/broken.jsonl", ("Line 2 of", "not valid JSON"), 1),
    "test file that is missing": ("evaluate {language} no.txt", ("'no.txt' is missing", "Check the path"), 1),
    "output of a language model": ("evaluate {language} -o new.txt", ("nothing to write", "Leave out -o"), 2),
    "picture of no words": ("embeddings {words} -o new.png", ("nothing to draw", "--nearest"), 2),
    "labelled text of unknown form": (
        'train starter-classify --out new data.train=["{bad}/empty.txt"]',
        ("empty.txt", "data.form"),
        2,
    ),
    "start from what is no run": ("train trec --from {bad} --out new", ("not a run folder",), 1),
    "vectors that are missing": (
        'train starter-classify --out new data.train=["{texts}/train.tsv"] --embeddings no.txt',
        ("no.txt", "missing"),
        1,
    ),
    "unknown word": ("embeddings {words} --nearest xyzzy", ("xyzzy",), 1),
    "nothing asked of embeddings": ("embeddings {words}", ("nothing to do", "--nearest"), 2),
    "tokens of nothing": ("tokenize {bad} hello", ("has no tokenizer",), 1),
    "setting of another task": ("train shakespeare-cpu decoding.beam=4", ("'decoding.beam' has no effect",), 2),
}


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    (folder / "empty.txt").write_text("")
    (folder / "broken.jsonl").write_text('{"text": "fine"}\n{"text": \n')
    (folder / "latin.txt").write_bytes("Grüße ".encode("latin-1") * 10_000)
    return folder


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_gets_three_lines_and_leaves_nothing(
    name: str, bad: Path, texts: Path, run: Path, request: pytest.FixtureRequest, tmp_path: Path
):
    command, says, code = MISTAKES[name]
    places = {"bad": bad, "texts": texts, "run": run}
    for kind in ("language", "masked", "classifier", "words"):
        if f"{{{kind}}}" in command:
            places[kind] = request.getfixturevalue(kind).folder.path
    result = regard(*[word.format(**places) for word in command.split(" ")], cwd=tmp_path, code=code)
    assert result.stdout == "" and len(result.error) == 3, result.stderr
    for part in says:
        assert part in "\n".join(result.error)
    assert list(tmp_path.iterdir()) == []
