"""The commands in README.md and docs/ work as they stand there.

Each document's commands, those within sentences and tables too, are taken from its text and run in order, in a folder
with small files of the names that the texts use. Nothing is changed but that trainings are made short, by settings
that the command itself does not have, and by smaller budgets: steps, seconds, seeds; of several values to compare, the
first and the last. A recipe, verb, placeholder or line that no table below knows is an error, so that nothing is left
out silently.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import lzma
import re
import shlex
import shutil
import signal
import subprocess
import tarfile
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import regard
from command import Result, finish, forked_regard, running
from command import regard as run_regard
from image_sources import mnist, write
from regard import registry
from regard.data.samples import english_german, package_descriptions, small_talk, stories
from regard.errors import UsageError
from regard.recipes import validate
from small_data import story_records
from tiny import person, stripes, tagged_sentences

HERE = Path(__file__).parent.parent
# All but the log, whose commands take hours, and are of the version of their day.
DOCUMENTS = [HERE / "README.md", *sorted(set((HERE / "docs").glob("*.md")) - {HERE / "docs" / "log.md"})]

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
    "summarize": [
        *MODEL,
        *ROWS,
        "data.max_summary=64",
        "training.validate_rouge=false",
        "decoding.beam=1",
        "data.held_out=0.1",
    ],
    "chat": [*MODEL, *ROWS, "data.max_length=64", "data.held_out=0.1", "decoding.max_tokens=5"],
    "language": [*MODEL, *ROWS],
    "masked": [*MODEL, *ROWS, "tokenizer.vocabulary=300"],
    "classify-text": LABELLED,
    "answer": [*MODEL, *ROWS, "data.max_length=64", "tokenizer.vocabulary=300"],
    "embeddings": ["embeddings.width=16", "embeddings.words_per_batch=128"],
    "classify-image": IMAGES,
    "detect": [*IMAGES, "model.patch=8"],
    "pixels": IMAGES,
    "caption": [*IMAGES, "decoding.beam=2", "decoding.max_tokens=8"],
    "segment": IMAGES,
    "synthetic": [*MODEL, "training.tokens_per_batch=256", "synthetic.length=32"],
    "play": [*MODEL, "training.tokens_per_batch=644", "data.games=300", "data.held_out=0.1", "matches.games=2"],
    "tag": [],
}
# The built-in sentences and scenes are more than need be.
FILES = {"demo": ['data.sample=""', 'data.train=["train.en", "train.de"]']}
FILES["chat-demo"] = ['data.sample=""', 'data.train=["talk.jsonl"]']
FILES["summaries"] = ['data.sample=""', 'data.train=["described.tsv"]']
FILES["squad"] = ["data.held_out=0.2"]
FILES["stories"] = ['data.sample=""', 'data.train=["questions.jsonl"]', "data.held_out=0.2"]
FILES["stories-generate"] = ['data.sample=""', 'data.train=["asked.tsv"]', "data.held_out=0.2"]
FILES["chess-rules"] = ["data.games=20"]  # a rule asked at every move of every game takes a while
FILES["scenes-caption"] = ['data.sample=""', "data.images=captions.jsonl"]
FILES["scenes-segment"] = ['data.sample=""', "data.images=pets"]
FILES["scenes-detect"] = ['data.sample=""', "data.images=boxes.jsonl"]
FILES["permutations"] = ["synthetic.length=8"]

# What a comparison is given as its budget becomes this.
BUDGETS = {"--steps": "2", "--tokens": "512"}
SEEDS = ["--seeds", "1"]

# Verbs that train nothing run as they stand, but for this.
VERBS: dict[str, list[str]] = {
    **{verb: [] for verb in ("recipes", "init", "doctor", "evaluate", "explain", "probe", "embeddings", "tokenize")},
    "explore": [],
    **{verb: [] for verb in ("translate", "summarize", "chat", "generate", "markov", "fill", "classify", "answer")},
    **{verb: [] for verb in ("caption", "detect", "segment", "play")},
    "reproduce": ["--tiny", "--parallel", "1"],
    "demo": [],
    "bench": ["--lengths", "16,32", "--width", "16", "--rounds", "1", "--device", "cpu"],
}

# Of these, all that is given is in their words: a run, a text, or files that are the same for every document.
ASKED_ONCE = ("explore", "evaluate", "probe", "embeddings", "explain", "bench", "generate")

ALONE = ("recipes", "demo")  # verbs that are whole commands by themselves

# To plot a comparison takes longer than one of its trainings.
NO_PLOT = "import regard.explain.comparison as plots; plots.draw_comparison = lambda *_, **__: None\n"

# Two claims stand for those of a group, of a deck, or for all: each has tests of its own.
TWO_CLAIMS = """
from regard.cli import reproduce as verb
choose = verb.choose
verb.choose = lambda wanted, deck, full: choose(wanted, deck, full)[: 2 if wanted or deck or not full else None]
"""

# ---------------------------------------------------------------- what stands for the reader's own

PLACEHOLDERS = {"FILE": "lines.txt", "OUT": "out.txt", "DIR": "data", "PNG": "picture.png", "IMAGE": "a.jpg"}
PLACEHOLDERS |= {"TEXT": "The king and the man", "WORD": "king", "RECIPE": "demo", "INPUT": "The king", "KIND": "lens"}
PLACEHOLDERS |= {"GOLD": "links.txt", "CLAIM": "scaling"}
# What RUN is: of the first entry whose words are all in the command.
RUN = {
    ("generate", "-o"): "digits-pixels",
    ("generate", "--complete"): "digits-pixels",
    ("generate", "--modes"): "hyena",
    ("generate",): "shakespeare-cpu",
    ("explain", "image.png"): "digits",
    ("explain", "toeplitz"): "hyena",
    ("summarize",): "summaries",
    ("explain", "--context"): "stories",
    ("answer",): "stories",
    ("chat",): "chat-demo",
    ("fill",): "bert-small",
    ("classify",): "starter-classify",
    ("detect",): "scenes-detect",
    ("probe",): "digits-pixels",
    ("play",): "tictactoe",
    ("caption",): "scenes-caption",
    ("embeddings",): "words",
    ("tokenize",): "bert-small",
    (): "demo",
}
# Runs that a text takes for granted. Those of the name of a recipe are trained from it.
RUNS = {f"runs/{name}": ["demo", f"seed={seed}"] for seed, name in enumerate("abc", start=1)}
RUNS["runs/mine"] = ["starter"]
RUNS["runs/hyena"] = ["shakespeare-cpu", "model.mixer=hyena"]
# What each method or attribute of a loaded run is asked of.
METHODS = {"translate": "demo", "generate": "shakespeare-cpu", "fill": "bert-small", "classify": "starter-classify"}
METHODS |= {"answer": "stories", "caption": "scenes-caption", "detect": "scenes-detect", "play": "tictactoe"}
METHODS |= {"segment": "scenes-segment", "sample": "digits-pixels", "vectors": "words", "settings": "demo"}


def make_files(folder: Path) -> None:
    """The files that the texts name, each as small as will do."""
    (folder / "data").mkdir()
    pairs = english_german.pairs(120, seed=5)
    sources = [source for source, _ in pairs]
    for name, part in {"train": pairs, "test": pairs[:3], "data/train": pairs}.items():
        (folder / f"{name}.en").write_text("".join(source + "\n" for source, _ in part))
        (folder / f"{name}.de").write_text("".join(target + "\n" for _, target in part))
    (folder / "lines.txt").write_text("".join(source + "\n" for source in sources[:3]))
    text = "".join(source + "\n" for source in sources) + "The king and the man saw the queen and the woman.\n" * 10
    for name in ("text.txt", "other.txt", "data/input.txt"):
        (folder / name).write_text(text)
    for name in ("unlabelled.jsonl", "reviews.jsonl"):
        (folder / name).write_text("".join(json.dumps({"text": source}) + "\n" for source in sources))
    (folder / "train.tsv").write_text("".join(f"{person(source)}\t{source}\n" for source in sources))
    talk = small_talk.conversations(60, seed=5)
    (folder / "talk.jsonl").write_text("".join(json.dumps({"turns": turns}) + "\n" for turns in talk))
    described = package_descriptions.pairs(60, seed=5)
    (folder / "described.tsv").write_text("".join("\t".join(pair) + "\n" for pair in described))
    (folder / "story.txt").write_text("Mary went to the kitchen. John took the ball.\n")
    for name in ("questions.jsonl", "train.jsonl", "data/train.jsonl", "data/dev.jsonl"):
        (folder / name).write_text("".join(f"{json.dumps(record)}\n" for record in story_records(60)))
    asked = [f"{each.question} {each.story}\t{each.answer or 'unknown'}\n" for each in stories.some(60, seed=5)]
    (folder / "asked.tsv").write_text("".join(asked))
    for kind in ("across", "down"):
        (folder / "photos" / kind).mkdir(parents=True)
        for shade in range(100, 112):
            Image.fromarray(stripes(kind, shade, 0)).convert("RGB").save(folder / "photos" / kind / f"{shade}.jpg")
    photos = [f"photos/{kind}/{shade}.jpg" for kind in ("across", "down") for shade in range(100, 112)]
    listed = [{"image": name, "captions": [f"stripes {name.split('/')[1]}", "an image"]} for name in photos]
    (folder / "captions.jsonl").write_text("".join(json.dumps(record) + "\n" for record in listed))
    boxes = [{"image": name, "boxes": [[0, 0, 4, 4]], "labels": ["corner"]} for name in photos]
    (folder / "boxes.jsonl").write_text("".join(json.dumps(record) + "\n" for record in boxes))
    for kind in ("images", "masks"):
        (folder / "pets" / kind).mkdir(parents=True)
        for shade in range(12):
            pixels = stripes("down", 100 + shade, 0) if kind == "images" else stripes("down", 1, shade)
            Image.fromarray(pixels).save(folder / "pets" / kind / f"{shade}.png")
    for split in ("train", "valid", "test"):
        (folder / f"tagged-{split}.tsv").write_text(tagged_sentences(20, seed=1))
    for split in ("train", "test"):
        (folder / f"TREC.{split}").write_text("".join(f"{person(source)}:one {source}\n" for source in sources))
    for name in ("a.jpg", "image.png"):
        Image.open(folder / "photos" / "down" / "100.jpg").save(folder / name)
    for split in ("train", "valid", "test"):  # and the recipe chess
        games = "0-1\t2400\t2300\tf2f3 e7e5 g2g4 d8h4\n" * 10
        (folder / "data" / f"{split}.tsv.xz").write_bytes(lzma.compress(games.encode()))
    # What the recipes mnist and cifar10 look for in the folder that --data names.
    write(folder / "data", mnist(train=200, test=20))
    with tarfile.open(folder / "data" / "cifar10-jpg.tar.xz", "w:xz") as archive:
        for split in ("train", "test"):
            archive.add(folder / "photos", split)


# ---------------------------------------------------------------- reading a document


@dataclass
class Block:
    """A fenced block, under its heading of the second level; or a `span` within a text."""

    heading: str
    language: str
    lines: list[str]


@dataclass
class Command:
    line: str
    output: list[str] = field(default_factory=list)  # what the text says that it prints


def blocks_of(document: Path) -> Iterator[Block]:
    """All that is set as code, in its order."""
    heading, block, paragraph = "", None, ""
    for line in [*document.read_text(encoding="utf-8").splitlines(), ""]:
        if block is not None:
            if line.startswith("```"):
                yield block
                block = None
            else:
                block.lines.append(line)
            continue
        if line.strip() and not line.startswith(("```", "|")):
            paragraph += line + " "
        else:
            for code in re.findall(r"`([^`]+)`", paragraph + line * line.startswith("|")):
                yield Block(heading, "span", [code.replace("\\|", "|")])
            paragraph = ""
        if line.startswith("```"):
            block = Block(heading, line.removeprefix("```").strip(), [])
        elif line.startswith("## "):
            heading = line


def commands_in(block: Block) -> list[Command]:
    """The commands of a block, which has nothing else but what they print."""
    commands: list[Command] = []
    with_output = any(line.startswith("$ ") for line in block.lines)
    for line in block.lines:
        if line.startswith("$ ") or (not with_output and re.match(r"(regard|make|echo) ", line)):
            commands.append(Command(line.removeprefix("$ ")))
        elif commands and with_output:
            commands[-1].output.append(line)
        elif commands and line.startswith(" "):
            commands[-1].line += " " + line.strip()
        else:
            assert not line.strip(), f"'{line}' stands among commands, and is none that this test knows."
    assert commands, f"a block without a command: {block.lines}"
    return commands


def typed_as(command: Command) -> str:
    return command.line.partition(" #")[0].strip()


# ---------------------------------------------------------------- running one


@dataclass
class Reader:
    """Somebody who types what a document says, in a folder of their own."""

    folder: Path
    made_once: Callable[[str, Callable[[Path], object]], Path]
    draws: bool = False  # what comparisons plot
    typed: set[str] = field(default_factory=set)
    everyones: dict[str, str] = field(default_factory=dict)  # runs that are not this document's own, and what they are

    def start_section(self) -> None:
        """Where a text just says mine.toml, it is a translator's."""
        self.save("mine.toml", printed("init", "translate"))

    def type(self, command: Command) -> None:
        """Run a line, and check that it gives what it is said to give."""
        if command.line.startswith("make "):
            self.make(shlex.split(command.line, comments=True)[1])
            return
        self.typed.add(typed_as(command))
        for line in self.without_brackets(command.line):
            words = shlex.split(line, comments=True)
            stdin = ""
            if words[0] == "echo":
                _, stdin, pipe, *words = words
                assert pipe == "|"
            assert words[0] == "regard", line
            target = words[-1] if words[-2] == ">" else ""
            result = self.run(words[1:-2] if target else words[1:], stdin)
            if target:
                self.save(target, result.stdout)
            if "-o" in words:
                assert (self.folder / self.filled(words[words.index("-o") + 1], words)).exists(), line
            for shown in command.output:
                assert shown in result.stdout, line

    def leave_out(self, block: Block) -> None:
        """What another reader types is not to be typed again."""
        if block.language == "":
            self.typed |= {typed_as(command) for command in commands_in(block)}

    def type_span(self, code: str) -> None:
        """A command within a sentence or a table: run, unless it is only named, or left open by dots."""
        if code.startswith("make "):
            self.make(code.split()[1])
        if not code.startswith("regard "):
            return
        verb = code.split()[1]
        self.check_options(verb, code)
        bare = re.sub(r"\[[^]]*\]", "", code)
        if code not in self.typed and "…" not in bare and len(shlex.split(code)) > (2 if verb not in ALONE else 1):
            if verb == "train":  # an example of its own, not the next command of the text
                recipe = self.filled(code.split()[2], [])
                self.forget(Path("runs", Path(recipe).stem))
            self.type(Command(bare if "[--" not in code or "…" in code else code))

    def make(self, target: str) -> None:
        """What the Makefile would do after the set-up, which needs a network. The tests are running already."""
        made = subprocess.run(["make", "-n", target], cwd=HERE, capture_output=True, text=True, check=True).stdout
        last = made.splitlines()[-1].removeprefix(".venv/bin/") if made else ""
        if last.startswith("regard "):
            self.need(Path("runs/demo"))  # `regard demo` shows it, if it is there
            self.run(shlex.split(last)[1:], "")

    def save(self, target: str, content: str) -> None:
        """Write a recipe, edited as the text says where it must be. It makes runs of its own."""
        images = {"classify-image": "photos", "segment": "pets", "caption": "captions.jsonl", "detect": "boxes.jsonl"}
        for task, source in images.items():
            if f'task = "{task}"' in content:
                content = re.sub('^sample = "[^"]*"', 'sample = ""', content, flags=re.M)
                content = re.sub('^images = ""', f'images = "{source}"', content, flags=re.M)
        if 'task = "summarize"' in content:
            content = content.replace('train = ["train.tsv"]', 'train = ["described.tsv"]')
        if 'task = "chat"' in content:
            content = content.replace('train = ["train.jsonl"]', 'train = ["talk.jsonl"]')
        (self.folder / target).write_text(content)
        for name in (Path(target).stem, f"compare-{Path(target).stem}"):
            self.forget(Path("runs", name))

    def forget(self, run: Path) -> None:
        shutil.rmtree(self.folder / run, ignore_errors=True)
        self.everyones.pop(str(run), None)

    def without_brackets(self, line: str) -> Iterator[str]:
        """A summary's command with all that it may have, once for each alternative of [--a | --b] or a|b|c."""
        if " [--" in line:
            self.check_options(line.split()[1], line)
        either = re.search(r"\[[^][]* \| [^][]*\]|\w+(\|\w+)+", line)
        for alternative in reversed(re.split(r" ?\| ?", either[0])) if either else [""]:
            chosen = line.replace(either[0], alternative) if either else line
            yield re.sub(r"[][…]", "", chosen) if " [--" in line else chosen
            line = line.replace(" [--mask]", "")  # which goes with the last alternative only

    def check_options(self, verb: str, line: str) -> None:
        known = printed(verb, "--help")
        for option in re.findall(r"(?<= |\[)--[\w-]+", line):
            assert f"{option} " in known, f"`regard {verb}` has no option {option}"

    def run(self, words: list[str], stdin: str) -> Result:
        verb = words[0]
        words = [self.filled(word, words) for word in words]
        for option, word in itertools.pairwise(words):
            if word.startswith("runs/") and option != "--out":
                self.need(Path(*Path(word).parts[:2]))
        if verb in ("train", "compare") and not words[1].startswith("runs/"):
            words = self.shortened(words)
        elif verb == "doctor" and words[1:] and not words[1].startswith("-"):
            words += [setting for setting in self.settings(words[1]) if setting.startswith("data.")]
        else:
            words += VERBS.get(verb, []) if verb in ("train", "compare") else VERBS[verb]
        if verb == "explore" and "-o" not in words:
            return self.visited(words)
        if verb == "train" and recipe_file(words[1]).is_file() and all("=" in word for word in words[2:]):
            return self.train(words[1], words[2:], Path("runs", words[1]))
        if verb in ASKED_ONCE and not stdin and all(run in self.everyones for run in runs_in(words)):
            return self.ask_once(words)
        before = TWO_CLAIMS if verb == "reproduce" else "" if self.draws else NO_PLOT
        return run_regard(*words, stdin=stdin, cwd=self.folder, before=before)

    def ask_once(self, words: list[str]) -> Result:
        """What is asked in several documents of a run that is the same in all is asked in one, and copied."""
        output = self.folder / words[words.index("-o") + 1] if "-o" in words else None

        def ask(folder: Path) -> None:
            folder.mkdir()
            result = run_regard(*words, cwd=self.folder)
            (folder / "result.json").write_text(json.dumps(asdict(result)))
            if output:
                shutil.move(output, folder / "output")

        asked = self.made_once(f"asked-{digest(*words, *(self.everyones[run] for run in runs_in(words)))}", ask)
        if output:
            shutil.move(asked / "output", output)
        return Result(**json.loads((asked / "result.json").read_text()))

    def visited(self, words: list[str]) -> Result:
        """A page that is served until Ctrl-C, opened once."""
        with running(*words, "--no-browser", cwd=self.folder, program=forked_regard()) as process:
            assert process.stdout is not None
            address = process.stdout.readline().decode().strip()
            with urllib.request.urlopen(address) as page:
                assert b"<title>" in page.read()
            process.send_signal(signal.SIGINT)
            result = finish(process)
        assert result.code == 0, result.stderr
        return result

    def train(self, recipe: str, settings: list[str], run: Path) -> Result:
        """`regard train` of a recipe. What is the same in several documents is typed once, and copied."""
        name = f"{recipe}-{digest(*settings, run.name)}"
        place = self.folder / run
        assert not place.exists(), f"{run} is there already"

        def type_it(out: Path) -> None:
            words = [] if run.name == recipe else ["--out", str(run)]
            result = run_regard("train", recipe, *settings, *words, cwd=self.folder)
            out.mkdir()
            shutil.move(place, out / "run")
            (out / "result.json").write_text(json.dumps(asdict(result)))

        made = self.made_once(f"documented-{name}", type_it)
        self.everyones[str(run)] = name
        place.parent.mkdir(exist_ok=True)
        shutil.move(made / "run", place)
        return Result(**json.loads((made / "result.json").read_text()))

    def filled(self, word: str, words: list[str]) -> str:
        """What stands for a placeholder in a command."""
        if word == "DIR" and words[words.index(word) - 1] == "--out":
            return "runs/out"
        if word == "RUN":
            return "runs/" + next(run for marks, run in RUN.items() if set(marks) <= set(words))
        if word == "TEXT" and "fill" in words:
            return "The [MASK] was great."
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
        self.train(recipe, settings, run)

    def shortened(self, words: list[str]) -> list[str]:
        """A training or comparison of seconds: of what the command itself sets, only the budget is changed."""
        verb, recipe, *rest = words
        settings = self.settings(recipe)
        if "--from" in rest:  # it has the model and the tokenizer of that run
            settings = [setting for setting in settings if not setting.startswith(("model.", "tokenizer."))]
        if "--seconds" in rest:  # which first takes seconds to find out how many steps they are
            at = rest.index("--seconds")
            rest[at : at + 2] = ["--steps", "2"]
        if any(option in rest for option in BUDGETS):
            settings = [setting for setting in settings if setting not in STEPS]
            settings += ["training.validate_every=1000000"]
        for option, value in BUDGETS.items():
            if option in rest:
                rest[rest.index(option) + 1] = value
        if verb == "compare":
            rest = [ends_of(word) if before == "--vary" else word for before, word in itertools.pairwise(["", *rest])]
            rest = [word for before, word in itertools.pairwise(["", *rest]) if "--seeds" not in (before, word)] + SEEDS
        given = set(re.findall(r"[\w.]+(?==)", " ".join(rest))) - {"training.steps"}
        return [verb, recipe, *rest, *(setting for setting in settings if setting.partition("=")[0] not in given)]

    def settings(self, recipe: str) -> list[str]:
        """What makes a training of this recipe short."""
        return [*STEPS, *SETTINGS[self.task(recipe)], *FILES.get(recipe, [])]

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


def valid_for_some_task(tree: dict[str, Any]) -> bool:
    def accepts(task: str) -> bool:
        try:
            validate(tree | {"task": task})
        except UsageError:
            return False
        return True

    return any(accepts(task) for task in registry.names("tasks"))


@functools.cache
def printed(*words: str) -> str:
    """By a command that prints the same whenever it is given."""
    return run_regard(*words).stdout


def ends_of(values: str) -> str:
    """Of the values that a setting is to have, the first and the last; those between are other trainings."""
    setting, _, given = values.partition("=")
    first, *others = given.split(",")
    return f"{setting}={','.join([first, *others[-1:]])}"


def digest(*words: str) -> str:
    return hashlib.sha256("\n".join(sorted(words)).encode()).hexdigest()[:12]


def runs_in(words: list[str]) -> list[str]:
    return [str(Path(*Path(word).parts[:2])) for word in words if word.startswith("runs/")]


def recipe_file(name: str) -> Path:
    return Path(regard.__file__).parent / "recipes" / f"{name}.toml"


def parts() -> Iterator[Any]:
    """A document each, and each section of the longest, so that two workers may read it."""
    for document in DOCUMENTS:
        if document.name == "README.md":
            for heading in dict.fromkeys(block.heading for block in blocks_of(document)):
                yield pytest.param(document, heading, id=f"{document.name}: {heading.removeprefix('## ')}")
        else:
            yield pytest.param(document, None, id=document.name)


@pytest.mark.parametrize(("document", "section"), list(parts()))
def test_what_a_document_says_works(
    document: Path,
    section: str | None,
    tmp_path: Path,
    made_once: Callable[[str, Callable[[Path], object]], Path],
    monkeypatch: pytest.MonkeyPatch,
):
    make_files(tmp_path)
    reader = Reader(tmp_path, made_once, draws=document.name == "compare.md")
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
        if section not in (None, heading):
            reader.leave_out(block)
        elif block.language == "span":
            reader.type_span(block.lines[0])
        elif block.language == "python":
            reader.run_python("\n".join(block.lines), monkeypatch)
        elif block.language == "toml":
            assert valid_for_some_task(tomllib.loads("\n".join(block.lines)))
        elif block.language == "":
            for command in commands_in(block):
                reader.type(command)
        else:  # text: drawings and tables
            assert block.language in ("file", "text"), f"what is a block of {block.language}?"


def test_the_readme_has_commands_to_run():
    blocks = [block for block in blocks_of(DOCUMENTS[0]) if block.language == ""]
    commands = [command.line for block in blocks for command in commands_in(block)]
    assert len(commands) > 20 and any("regard train" in line for line in commands)
