"""Every verb, from a recipe to a picture, through the installed command."""

from __future__ import annotations

import gzip
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from safetensors import safe_open

import regard as api
from command import PATIENCE, REGARD, environment, forked_regard, regard, running, tree

VERBS = ["demo", "recipes", "init", "train", "doctor", "evaluate", "translate", "generate", "fill", "classify"]
VERBS += ["explain", "embeddings", "tokenize", "markov", "compare", "bench"]
LINES = ["The dog sees a cat.", "", "An old farmer helps the child.", "   ", "The cat sleeps.", "A child reads.", ""]


# ---------------------------------------------------------------- help, recipes, unknown verbs


def test_help_imports_nothing_heavy():
    program = (
        "import sys\n"
        "from regard.cli import main\n"
        f"for arguments in [['--help'], *([verb, '--help'] for verb in {VERBS})]:\n"
        "    sys.argv = ['regard', *arguments]\n"
        "    try: main()\n"
        "    except SystemExit as leave: assert not leave.code\n"
        # typer itself asks for pydantic when it shows a verb's options.
        "    heavy = {'torch', 'numpy', *(['pydantic'] if len(arguments) == 1 else [])}\n"
        "    assert not heavy & set(sys.modules), arguments\n"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.count("Usage: ") == len(VERBS) + 1


def test_without_a_verb_help_is_shown():
    shown = regard().stdout
    assert shown == regard("--help").stdout
    assert all(f"  {verb} " in shown for verb in VERBS)


def test_an_unknown_verb_suggests_the_nearest():
    assert regard("trian", code=2).error == [
        "Error: There is no verb 'trian'.",
        "The command could not be understood.",
        "Did you mean 'train'?",
    ]


def test_recipes_are_listed_one_a_line():
    lines = regard("recipes").stdout.splitlines()
    listed = json.loads(regard("recipes", "--json").stdout)
    assert {"demo", "starter"} <= listed.keys()
    assert [line.split()[0] for line in lines] == list(listed)
    assert all(listed.values())


def test_what_init_prints_is_complete_and_trains(corpus: Path, tmp_path: Path):
    text = regard("init", "translate").stdout
    assert all(" # " in line for line in text.splitlines() if "=" in line)
    names = [str(corpus / name) for name in ("train.en", "train.de")]
    mine = tmp_path / "mine.toml"
    mine.write_text(text.replace(_line(text, "train = "), f"train = {json.dumps(names)}"), encoding="utf-8")
    small = ["training.steps=2", "training.validate_every=2", "training.tokens_per_batch=256", "decoding.beam=1"]
    small += ["model.width=16", "model.layers=1", "tokenizer.vocabulary=300"]
    shown = regard("train", mine, *small, cwd=tmp_path)
    made = tmp_path / "runs" / "mine"
    assert str(made) in shown.stdout.splitlines(), "the absolute path of what was made is printed"
    assert shown.stdout.count("  regard explain runs/mine") == 1, "and what to do next"
    assert tomllib.loads((made / "config.toml").read_text())["data"]["train"] == names


def _line(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(start))


# ---------------------------------------------------------------- the run folder


def test_training_prints_its_summary_as_json(training: Path):
    printed = json.loads((training / "printed.json").read_text())
    made = Path(printed.pop("run"))
    assert made.is_absolute() and made.name == "run"
    assert printed == json.loads((training / "run" / "summary.json").read_text())
    assert printed.keys() >= {"task", "recipe", "seed", "steps", "seconds", "parameters", "device", "metrics"}
    assert (printed["task"], printed["recipe"], printed["seed"], printed["steps"]) == ("translate", "tiny", 1, 120)
    assert printed["metrics"].keys() == {"loss", "perplexity", "bleu", "bleu_lowercase", "chrf"}


def test_a_run_folder_holds_all_that_it_promises(run: Path):
    held = {str(path) for path in tree(run)}
    checkpoint = {"model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"}
    assert held >= {
        "config.toml",
        "config.json",
        "tokenizer.json",
        "model.safetensors",
        "metrics.jsonl",
        "summary.json",
        "environment.json",
        "manifest.json",
        "README.md",
        "plots/curves.png",
        "samples/step-60.txt",
        "samples/step-120.txt",
        *(f"checkpoints/step-{step}/{name}" for step in (90, 120) for name in checkpoint),
    }
    assert (run / "checkpoints" / "last").readlink() == Path("step-120")
    assert (run / "checkpoints" / "best").resolve().name in ("step-60", "step-120")
    assert {path for path in held if Path(path).name.startswith(".")} == {".lock"}, "no temporary file is left"
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(steps)
    assert steps[-1] == 120
    assert (run / "plots" / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_in_a_run_folder_is_a_pickle(run: Path):
    for path in (path for path in run.rglob("*") if path.is_file()):
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as file:
                assert file.keys()
        else:
            # A pickle starts with its protocol; torch.save makes a zip.
            assert not path.read_bytes().startswith((b"\x80", b"PK\x03\x04")), path


# ---------------------------------------------------------------- translate, the filter


@pytest.fixture(scope="module")
def translated(run: Path) -> str:
    return regard("translate", run, stdin="\n".join(LINES) + "\n").stdout


def test_a_line_in_is_a_line_out_in_order_and_as_the_python_api_gives_it(run: Path, translated: str):
    sentences = [line for line in LINES if line.strip()]
    texts = iter(api.load(run).translate(sentences))
    expected = [next(texts) if line.strip() else "" for line in LINES]
    assert len({*expected}) == len(sentences) + 1, "sentences alike would hide a wrong order"
    assert translated == "".join(text + "\n" for text in expected)


def test_a_file_and_a_gzipped_file_give_the_same_as_standard_input(run: Path, translated: str, tmp_path: Path):
    # A byte-order mark and Windows line ends are not text, and the last line needs no end.
    raw = b"\xef\xbb\xbf" + "\r\n".join(LINES).encode() + b"\r"
    (tmp_path / "lines.txt").write_bytes(raw)
    (tmp_path / "lines.txt.gz").write_bytes(gzip.compress(raw))
    plain = regard("translate", run, tmp_path / "lines.txt", "-o", tmp_path / "out.txt")
    assert plain.stdout == ""
    assert regard("translate", run, tmp_path / "lines.txt.gz").stdout == translated
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == translated
    assert tree(tmp_path) == {Path("lines.txt"), Path("lines.txt.gz"), Path("out.txt")}


def test_the_reader_may_leave_early(run: Path):
    with running("translate", run, "--beam", "1", stdin=subprocess.PIPE, program=forked_regard()) as process:
        assert process.stdout and process.stdin
        process.stdout.close()
        process.stdin.write(b"The dog sees a cat.\n")
        process.stdin.close()
        process.stdin = process.stdout = None
        stderr = process.stderr.read().decode() if process.stderr else ""
        assert process.wait() == 1
    assert stderr == ""


def test_a_line_is_answered_before_the_next_is_written_and_ctrl_c_ends_quietly(run: Path):
    model = api.load(run)
    with running("translate", run, stdin=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        for sentence in ("The dog sees a cat.", "The cat sleeps."):
            process.stdin.write(sentence.encode() + b"\n")
            process.stdin.flush()
            assert process.stdout.readline().decode() == model.translate(sentence)[0] + "\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        assert process.stderr and process.stderr.read() == b"Stopped.\n"


def test_the_best_of_n_is_the_translation_without_n(run: Path, translated: str):
    shown = regard("translate", run, "--best", "2", stdin="\n".join(LINES) + "\n").stdout
    blocks = [block.splitlines() for block in shown.removesuffix("\n").split("\n\n")]
    found = [line for block in blocks for line in block if line]
    scores = [float(line.split("\t")[0]) for line in found]
    texts = [line.split("\t")[1] for line in found]
    assert len(found) == 2 * sum(bool(line.strip()) for line in LINES)
    assert texts[::2] == [line for line in translated.splitlines() if line]
    assert all(first >= second for first, second in zip(scores[::2], scores[1::2], strict=True))
    assert all(first != second for first, second in zip(texts[::2], texts[1::2], strict=True))


def test_every_translation_starts_with_the_prefix(run: Path):
    shown = regard("translate", run, "--prefix", "Der Hund", "--json", stdin="\n".join(LINES) + "\n").stdout
    records = [json.loads(line) for line in shown.splitlines()]
    assert [record["source"] for record in records] == LINES
    for record in records:
        texts = [found["text"] for found in record["translations"]]
        assert len(texts) == bool(record["source"].strip())
        assert all(text.startswith("Der Hund") for text in texts)


def test_a_seed_decides_what_is_sampled(run: Path):
    sentences = ["The dog sees a cat.", "An old farmer helps the child.", "The cat sleeps."]
    shown = regard("translate", run, "--temperature", "1", "--seed", "5", stdin="\n".join(sentences)).stdout
    same, other = (api.load(run).translate(sentences, temperature=1.0, seed=seed) for seed in (5, 6))
    assert shown.splitlines() == same
    assert shown.splitlines() != other


# ---------------------------------------------------------------- the other verbs


def test_evaluate_gives_the_figures_of_the_summary(run: Path):
    found = json.loads(regard("evaluate", run, "--json").stdout)
    summary = json.loads((run / "summary.json").read_text())["metrics"]
    assert found["sentences"] == 40
    assert found["metrics"] == {name: summary[name] for name in ("bleu", "bleu_lowercase", "chrf")}
    assert {score["name"] for score in found["scores"]} == found["metrics"].keys()
    for score in found["scores"]:
        low, high = score["interval"]
        assert score["signature"] and low <= high


def test_evaluate_scores_other_files_and_keeps_the_translations(run: Path, corpus: Path, tmp_path: Path):
    out = tmp_path / "out.de"
    shown = regard("evaluate", run, corpus / "valid.en", corpus / "valid.de", "--beam", "1", "-o", out).stdout
    assert [line.split()[0] for line in shown.splitlines()] == ["bleu", "bleu_lowercase", "chrf"]
    sources = (corpus / "valid.en").read_text(encoding="utf-8").splitlines()
    assert out.read_text(encoding="utf-8").splitlines() == api.load(run).translate(sources, beam=1)


def test_explain_as_json_writes_no_file_unless_one_is_named(run: Path, tmp_path: Path):
    content = json.loads(regard("explain", run, "The dog sees a cat.", "--what", "lens", "--json", cwd=tmp_path).stdout)
    assert content["what"] == "lens" and "file" not in content
    assert not any(tmp_path.iterdir())


def test_explain_writes_what_its_file_is_to_be(run: Path, tmp_path: Path):
    sentence, loaded = "The dog sees a cat.", api.load(run)
    found = json.loads(regard("explain", run, sentence, "-o", tmp_path / "attention.png", "--json").stdout)
    assert found["file"] == str(tmp_path / "attention.png") and found["what"] == "attention"
    assert found["output"] == loaded.translate(sentence)[0] and found["difference"] < 1e-4
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")
    regard("explain", run, sentence, "--what", "lens", "-o", tmp_path / "lens.json")
    lens = json.loads((tmp_path / "lens.json").read_text())["arrays"]
    assert lens["agreement"]["values"][-1] == 100
    expected = loaded.trace(sentence).lens().answer.values.tolist()
    for row, ours in zip(expected, lens["probability of the answer"]["values"], strict=True):
        assert ours == pytest.approx(row, abs=1e-5)
    shown = regard("explain", run, sentence, "--what", "candidates", "--count", "3", "-o", tmp_path / "some.csv")
    assert (tmp_path / "some.csv").read_text().splitlines()[0] == "array,answer,rank,word,value"
    assert "has 'probability', 'logit'; a .json also has" in shown.stderr


def test_words_are_aligned_in_the_way_that_was_chosen_and_the_best_beam_is_the_translation(run: Path):
    sentence, loaded = "The dog sees a cat.", api.load(run)
    shown = loaded.explain(sentence, what="alignment")
    aligned = loaded.trace(sentence).alignment()
    assert shown.arrays[0].values.tolist() == aligned.values.tolist()
    assert aligned.notes["way"] in shown.remarks[0] and aligned.notes["criterion"] in shown.remarks[0]
    assert len(shown.figure().axes[0].patches) == len(shown.facts["links"])  # a frame around each
    other = loaded.explain(sentence, what="alignment", layer=1, reading="reads")
    assert "layer 1" in other.remarks[0] and "the step that reads" in other.remarks[0]
    beams = loaded.explain(sentence, what="beams")
    assert beams.output_text == loaded.translate(sentence)[0]
    assert beams.arrays[0].values[0] == beams.arrays[0].values.max()


EXPLAIN_MISTAKES = {
    "": "A text is missing",
    "hello --what atention": "atention",
    "hello -o new.jpg": "unknown extension",
    "hello --what toeplitz": "no convolutions",
    "hello --what contributions --token xyzzy": "no token 'xyzzy'",
    "hello --context lines.txt": "A context has no effect",
    "hello --layer 0": "--layer cannot be 0",
}


@pytest.mark.parametrize("arguments", EXPLAIN_MISTAKES)
def test_what_cannot_be_shown_is_told_in_three_lines(run: Path, tmp_path: Path, arguments: str):
    (tmp_path / "lines.txt").write_text("A line.")
    error = regard("explain", run, *arguments.split(), code=2, cwd=tmp_path).error
    assert len(error) == 3 and EXPLAIN_MISTAKES[arguments] in error[0]
    assert [file.name for file in tmp_path.iterdir()] == ["lines.txt"]


def test_a_page_does_not_begin_with_a_run_or_with_nothing(run: Path, tmp_path: Path):
    error = regard("explore", run, run, "-o", tmp_path / "no.html", code=2).error
    assert error[0] == f"Error: '{run}' is a run, not an input." and error[2] == f"Use --beside {run}."
    error = regard("explore", run, "", "-o", tmp_path / "no.html", code=2).error
    assert error[:2] == ["Error: A text is missing.", "The input is empty."] and len(error) == 3
    assert not any(tmp_path.iterdir())


def test_a_page_begins_with_a_text_longer_than_the_name_of_a_file(run: Path, tmp_path: Path):
    text = "The old farmer helps the child. " * 12
    regard("explore", run, text, "-o", tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 100_000


def test_how_links_are_written_has_no_effect_without_links(run: Path):
    error = regard("evaluate", run, "--links-swapped", code=2).error
    assert "no effect" in error[0] and "--alignment" in error[2]


def test_a_run_without_weights_cannot_be_explained(run: Path, tmp_path: Path):
    copy = Path(shutil.copytree(run, tmp_path / "copy", symlinks=True))
    (copy / "model.safetensors").unlink()
    error = regard("explain", copy, "hello", "-o", tmp_path / "no.png", code=1).error
    assert len(error) == 3 and "model.safetensors" in " ".join(error)


def test_doctor_examines_the_data_of_a_folder(corpus: Path):
    found = json.loads(regard("doctor", "--data", corpus, "--json").stdout)
    assert found["machine"]["torch"]
    assert found["advice"]
    data = found["data"]
    # Held-out files that are there are used; else shares of train are.
    assert sum(data[split]["pairs"] for split in ("train", "valid", "test")) in (1000, 1080)
    assert 259 < data["vocabulary"] <= 10_000


def test_demo_shows_a_run_that_is_already_there(run: Path, tmp_path: Path):
    copy = Path(shutil.copytree(run, tmp_path / "demo", symlinks=True))
    found = json.loads(regard("demo", "--out", copy, "--json").stdout)
    assert found["run"] == str(copy)
    assert len(found["translations"]) == 5
    assert Path(found["picture"]).read_bytes().startswith(b"\x89PNG")


# ---------------------------------------------------------------- colour


@pytest.mark.parametrize("no_color", [False, True])
def test_colour_is_for_terminals_that_want_it(no_color: bool):
    ours, theirs = pty.openpty()
    wish = {"NO_COLOR": "1"} if no_color else {}
    try:
        code = subprocess.run([REGARD, "trian"], stderr=theirs, env=environment() | wish, check=False).returncode
        shown = os.read(ours, 4096).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert code == 2
    assert "Error:" in shown
    assert ("\x1b[" in shown) is not no_color
