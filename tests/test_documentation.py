"""The commands in README.md and docs/ work as they stand there.

Each document's commands are taken from its text and run in order, in a folder with small files of the names that the
texts use. Trainings are shortened by settings from the tables below; a recipe, verb, placeholder or line that no table
knows is an error, so that nothing is left out silently.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import regard
from command import Result
from command import regard as run_regard
from regard.data.samples import english_german
from tiny import person, stripes, tagged_sentences

HERE = Path(__file__).parent.parent
DOCUMENTS = [HERE / "README.md", *sorted((HERE / "docs").glob("*.md"))]

# ---------------------------------------------------------------- how commands are shortened

STEPS = ["training.steps=2", "training.validate_every=2", "training.warmup=1"]
MODEL = ["model.layers=1", "model.width=16", "model.heads=2", "model.feedforward=16"]
ROWS = ["training.tokens_per_batch=256", "training.row_length=64"]
LABELLED = [*MODEL, *ROWS, "data.max_length=32", "training.row_length=32", "tokenizer.vocabulary=300"]
IMAGES = [*MODEL, "training.images_per_batch=8"]

SETTINGS = {
    "translate": [
        *MODEL,
        *ROWS,
        "data.max_length=32",
        "training.validate_bleu=false",
        "decoding.beam=1",
        "decoding.max_ratio=0.1",
    ],
    "language": [*MODEL, *ROWS],
    "masked": [*MODEL, *ROWS, "tokenizer.vocabulary=300"],
    "classify-text": LABELLED,
    "embeddings": ["embeddings.width=16", "embeddings.words_per_batch=128"],
    "classify-image": IMAGES,
    "pixels": IMAGES,
    "synthetic": [*MODEL, "training.tokens_per_batch=256", "synthetic.length=32"],
    "tag": [],
}
# Recipes whose data is larger than need be, or not made here.
FILES = {"cifar10": ["data.images=photos"], "mnist": ["data.images=photos"]}
FILES["demo"] = ['data.sample=""', 'data.train=["train.en", "train.de"]']

# A comparison trains each variant once; what it is given as its budget becomes this.
BUDGETS = {"--steps": "2", "--tokens": "512", "--seconds": "1", "--seeds": "1"}

# Verbs that train nothing run as they stand, but for this.
VERBS: dict[str, list[str]] = {
    **{verb: [] for verb in ("recipes", "init", "doctor", "evaluate", "translate", "fill", "classify", "probe")},
    **{verb: [] for verb in ("generate", "explain", "embeddings", "tokenize", "markov")},
    "bench": ["--lengths", "16,32", "--width", "16", "--rounds", "1", "--device", "cpu"],
}

# ---------------------------------------------------------------- what stands for the reader's own

PLACEHOLDERS = {"FILE": "lines.txt", "OUT": "out.txt", "DIR": "data", "TEXT": "Once upon"}
RUN = {"translate": "runs/demo", "generate": "runs/shakespeare-cpu"}  # what RUN is, by the verb
# Runs that a text takes for granted. Those of the name of a recipe are trained from it.
RUNS = {f"runs/{name}": ["demo", f"seed={seed}"] for seed, name in enumerate("abc", start=1)}
RUNS["runs/mine"] = ["starter"]
# What each method or attribute of a loaded run is asked of.
METHODS = {"translate": "demo", "generate": "shakespeare-cpu", "fill": "bert-small", "classify": "starter-classify"}
METHODS |= {"sample": "digits-pixels", "vectors": "words", "settings": "demo"}


def make_files(folder: Path) -> None:
    """The files that the texts name, each as small as will do."""
    (folder / "data").mkdir()
    pairs = english_german.pairs(120, seed=5)
    sources = [source for source, _ in pairs]
    for name, part in {"train": pairs, "test": pairs[:3]}.items():
        (folder / f"{name}.en").write_text("".join(source + "\n" for source, _ in part))
        (folder / f"{name}.de").write_text("".join(target + "\n" for _, target in part))
    (folder / "lines.txt").write_text("".join(source + "\n" for source in sources[:3]))
    text = "".join(source + "\n" for source in sources) + "The king and the man saw the queen and the woman.\n" * 10
    for name in ("text.txt", "other.txt", "data/input.txt"):
        (folder / name).write_text(text)
    for name in ("unlabelled.jsonl", "reviews.jsonl"):
        (folder / name).write_text("".join(json.dumps({"text": source}) + "\n" for source in sources))
    (folder / "train.tsv").write_text("".join(f"{person(source)}\t{source}\n" for source in sources))
    for root in ("photos", "data/photos"):
        for kind in ("across", "down"):
            (folder / root / kind).mkdir(parents=True)
            for shade in range(100, 112):
                Image.fromarray(stripes(kind, shade, 0)).convert("RGB").save(folder / root / kind / f"{shade}.jpg")
    for split in ("train", "valid", "test"):
        (folder / f"tagged-{split}.tsv").write_text(tagged_sentences(20, seed=1))
    shutil.copy(folder / "photos" / "down" / "100.jpg", folder / "a.jpg")


# ---------------------------------------------------------------- reading a document


@dataclass
class Block:
    """A fenced block, under its heading of the second level."""

    heading: str
    language: str
    lines: list[str]


@dataclass
class Command:
    line: str
    output: list[str] = field(default_factory=list)  # what the text says that it prints


def blocks_of(document: Path) -> Iterator[Block]:
    heading, block = "", None
    for line in document.read_text(encoding="utf-8").splitlines():
        if block is not None:
            if line.startswith("```"):
                yield block
                block = None
            else:
                block.lines.append(line)
        elif line.startswith("```"):
            block = Block(heading, line.removeprefix("```").strip(), [])
        elif line.startswith("## "):
            heading = line


def commands_in(block: Block) -> list[Command]:
    """The commands of a block; none, if it is a drawing or a table."""
    commands: list[Command] = []
    with_output = any(line.startswith("$ ") for line in block.lines)
    for line in block.lines:
        if line.startswith("$ ") or (not with_output and re.match(r"(regard|make|echo) ", line)):
            commands.append(Command(line.removeprefix("$ ")))
        elif commands and with_output:
            commands[-1].output.append(line)
        elif commands and line.startswith(" "):
            commands[-1].line += " " + line.strip()
        elif commands:
            assert not line.strip(), f"'{line}' stands between commands, and is none that this test knows."
    return commands


# ---------------------------------------------------------------- running one


@dataclass
class Reader:
    """Somebody who types what a document says, in a folder of their own."""

    folder: Path
    made_once: Callable[[str, Callable[[Path], object]], Path]

    def start_section(self) -> None:
        """Where a text just says mine.toml, it is a translator's."""
        (self.folder / "mine.toml").write_text(run_regard("init", "translate").stdout)

    def type(self, command: Command) -> None:
        """Run a line, and check that it gives what it is said to give."""
        line = command.line
        if line.startswith("make "):
            target = shlex.split(line, comments=True)[1]
            assert re.search(rf"^{target}:", (HERE / "Makefile").read_text(), re.M), f"make has no target '{target}'"
            return
        if " [--" in line:
            line = self.check_summary(line)
        words = shlex.split(line, comments=True)
        stdin = ""
        if words[0] == "echo":
            _, stdin, pipe, *words = words
            assert pipe == "|"
        assert words[0] == "regard", line
        target = words[-1] if words[-2] == ">" else ""
        result = self.run(words[1:-2] if target else words[1:], stdin)
        if target:
            (self.folder / target).write_text(result.stdout)
        if "-o" in words:
            assert (self.folder / self.filled(words[words.index("-o") + 1], "")).is_file(), line
        for shown in command.output:
            assert shown in result.stdout, line

    def check_summary(self, line: str) -> str:
        """Every [option] of a summary is one of the verb; gives the command without them."""
        bare, *options = re.split(r"\s\[(?=--)", line)
        verb = line.split()[1]
        known = run_regard(verb, "--help").stdout
        for option in re.findall(r"--[\w-]+", " ".join(options)):
            assert f"{option} " in known, f"`regard {verb}` has no option {option}"
        return bare

    def run(self, words: list[str], stdin: str) -> Result:
        verb = words[0]
        words = [self.filled(word, verb) for word in words]
        for option, word in itertools.pairwise(words):
            if word.startswith("runs/") and option != "--out":
                self.need(Path(*Path(word).parts[:2]))
        if verb in ("train", "compare") and not words[1].startswith("runs/"):
            words = self.shortened(words)
        else:
            words += VERBS[verb] if verb != "compare" else []
        return run_regard(*words, stdin=stdin, cwd=self.folder)

    def filled(self, word: str, verb: str) -> str:
        if word == "RUN":
            return RUN[verb]
        assert word in PLACEHOLDERS or not re.fullmatch("[A-Z]{2,}", word), f"what is {word}?"
        return PLACEHOLDERS.get(word, word)

    def need(self, run: Path) -> None:
        """A run that the text takes for granted."""
        place = self.folder / run
        if place.exists():
            return
        recipe, *settings = RUNS.get(str(run), [run.name])
        assert recipe_file(recipe).is_file(), f"nothing in the text makes {run}"
        settings += self.settings(recipe)
        if self.task(recipe) in ("language", "masked", "embeddings"):
            settings.append("data.text=text.txt")
        needed = self.made_once(
            f"documented-{run.name}", lambda out: regard.train(recipe, *settings, out=out, data=self.folder)
        )
        place.parent.mkdir(exist_ok=True)
        shutil.move(needed, place)

    def shortened(self, words: list[str]) -> list[str]:
        """A training or comparison of seconds, that finds its folder free."""
        verb, recipe, *rest = words
        settings = self.settings(recipe)
        if "--from" in rest:  # it has the model and the tokenizer of that run
            settings = [setting for setting in settings if not setting.startswith(("model.", "tokenizer."))]
        if verb == "compare":
            if any(option in rest for option in ("--steps", "--tokens", "--seconds")):
                settings = [setting for setting in settings if setting not in STEPS]
                settings += ["training.validate_every=1000000"]
            for option, value in BUDGETS.items():
                if option in rest:
                    rest[rest.index(option) + 1] = value
            rest += [] if "--seeds" in rest else ["--seeds", "1"]
        # Those who try the next variant put the one before aside.
        name = Path(recipe).stem if verb == "train" else f"compare-{Path(recipe).stem}"
        shutil.rmtree(self.folder / "runs" / name, ignore_errors=True)
        return [verb, recipe, *rest, *settings]

    def settings(self, recipe: str) -> list[str]:
        """What makes a training of this recipe short."""
        own = FILES.get(recipe, [])
        if recipe.endswith(".toml") and self.task(recipe) == "classify-image":  # as the text says: edit data.images
            own = ['data.sample=""', "data.images=photos"]
        return [*STEPS, *SETTINGS[self.task(recipe)], *own]

    def task(self, recipe: str) -> str:
        path = self.folder / recipe if recipe.endswith(".toml") else recipe_file(recipe)
        return str(tomllib.loads(path.read_text(encoding="utf-8"))["task"])

    def run_python(self, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """A block of Python; each method of `model` on a model that has it."""
        monkeypatch.chdir(self.folder)
        original = regard.train

        def short_train(recipe: str, *overrides: str, **options: Any) -> Path:
            return original(recipe, *overrides, *self.settings(recipe), **options)

        monkeypatch.setattr(regard, "train", short_train)
        names: dict[str, Any] = {}
        for line in source.splitlines():
            if method := re.match(r"model\.(\w+)", line):
                monkeypatch.setattr(regard, "train", original)
                self.need(Path("runs", METHODS[method[1]]))
                names["model"] = regard.load(self.folder / "runs" / METHODS[method[1]])
            exec(line, names)


def recipe_file(name: str) -> Path:
    return Path(regard.__file__).parent / "recipes" / f"{name}.toml"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_says_works(
    document: Path,
    tmp_path: Path,
    made_once: Callable[[str, Callable[[Path], object]], Path],
    monkeypatch: pytest.MonkeyPatch,
):
    make_files(tmp_path)
    reader = Reader(tmp_path, made_once)
    blocks = list(blocks_of(document))
    for block in blocks:  # files that are to be saved under a name, which a text may use before it shows them
        if name := re.fullmatch(r"# ([\w-]+\.(?:py|toml))", block.lines[0] if block.lines else ""):
            block.language = "file"
            (tmp_path / name[1]).write_text("\n".join(block.lines) + "\n")
    heading = None
    for block in blocks:
        if block.heading != heading:
            heading = block.heading
            reader.start_section()
        if block.language == "python":
            reader.run_python("\n".join(block.lines), monkeypatch)
        elif block.language in ("", "sh", "console"):
            for command in commands_in(block):
                reader.type(command)
        else:
            assert block.language in ("toml", "file"), f"what is a block of {block.language}?"


def test_the_readme_has_commands_to_run():
    commands = [command.line for block in blocks_of(DOCUMENTS[0]) for command in commands_in(block)]
    assert len(commands) > 20 and any("regard train" in line for line in commands)
