"""Recipes and settings: what is accepted, what is refused and in which words, and that nothing is lost in writing."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from pydantic import ValidationError

from expect import error_of
from regard import registry
from regard.errors import RegardError, UsageError, did_you_mean
from regard.recipes import from_toml, recipe_names, recipe_summary, resolve, validate
from regard.recipes.writing import flat, to_toml
from regard.settings import Settings


def refused(*overrides: str, recipe: str = "demo") -> UsageError:
    """The error that these overrides meet, after checking what all such errors have in common."""
    error = error_of(resolve, recipe, overrides)
    assert error.exit_code == 2
    assert len(str(error).splitlines()) == 3
    return error


# --- Recipes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", recipe_names())
def test_every_ready_made_recipe_resolves(name):
    settings = resolve(name)
    assert settings.recipe == name
    assert settings.task in registry.names("tasks")


def test_the_ready_made_recipes_are_the_ones_users_know():
    expected = {"demo", "multi30k", "starter", "transformer-base", "shakespeare", "shakespeare-cpu", "enwik8"}
    expected |= {"gpt2-124m", "bert-small", "trec", "sst2", "imdb", "words", "recall", "reverse", "permutations"}
    expected |= {"digits", "mnist", "cifar10", "cifar10-swin", "digits-pixels", "mnist-pixels", "cifar10-pixels"}
    assert expected <= set(recipe_names())


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_begins_with_a_line_that_says_what_it_is(name):
    assert len(recipe_summary(name)) > 20
    assert not recipe_summary(name).startswith("#")


def test_a_recipe_may_be_a_file(tmp_path):
    (tmp_path / "mine.toml").write_text("[training]\nsteps = 7\n")
    settings = resolve(str(tmp_path / "mine.toml"))
    assert settings.training.steps == 7
    assert settings.recipe == "mine"


def test_what_a_recipe_leaves_out_takes_the_default():
    defaults = registry.load("tasks", "translate").Settings(task="translate")
    assert flat(from_toml("[training]\nsteps = 7\n")) == flat(defaults) | {"training.steps": 7}


def test_an_unknown_recipe_names_the_nearest():
    error = refused(recipe="transformer-bas")
    assert "transformer-bas" in error.what
    assert "'transformer-base'" in error.fix


def test_a_missing_recipe_file_is_named(tmp_path):
    missing = str(tmp_path / "missing.toml")
    assert missing in refused(recipe=missing).what


def test_a_recipe_that_is_not_utf8_is_an_error(tmp_path):
    (tmp_path / "latin.toml").write_bytes('# Übung\ntask = "translate"\n'.encode("latin-1"))
    assert "latin.toml" in refused(recipe=str(tmp_path / "latin.toml")).what


def test_broken_toml_is_an_error_with_its_line(tmp_path):
    (tmp_path / "broken.toml").write_text("seed = 1\n[training\nsteps = 5\n")
    error = refused(recipe=str(tmp_path / "broken.toml"))
    assert "broken" in error.what
    assert "line 2" in error.why


# --- Mistakes --------------------------------------------------------------------------------------------


def test_an_unknown_key_names_key_value_and_nearest_name():
    error = refused("training.learning_rat=0.25")
    assert "'training.learning_rat'" in error.what
    assert "0.25" in error.what
    assert "[training]" in error.why
    assert "'learning_rate'" in error.fix


def test_an_unknown_section_names_the_nearest_section():
    error = refused("trainig.steps=5")
    assert "trainig" in error.what
    assert "'training'" in error.fix


def test_an_unknown_key_at_the_top_names_the_nearest():
    error = refused("sed=5")
    assert "'sed'" in error.what
    assert "'seed'" in error.fix


def test_an_unknown_key_like_no_other_lists_the_valid_names():
    error = refused("decoding.qqqq=1")
    assert "beam" in error.fix
    assert "length_penalty" in error.fix


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("training.steps=many", "training.steps", "'many'"),
        ("training.steps=2.5", "training.steps", "2.5"),
        ("training.steps=true", "training.steps", "True"),
        ('training.steps="5"', "training.steps", "'5'"),
        ("model.bias=1", "model.bias", "1"),
        ("model.dropout=high", "model.dropout", "'high'"),
        ("data.train=[1, 2]", "data.train", "1"),
        ("data.columns=[0]", "data.columns", "[0]"),
        ("data.columns=[0, -1]", "data.columns", "-1"),
        ("model.norm=middle", "model.norm", "'middle'"),
        ("task=sing", "task", "'sing'"),
        ("system.device=tpu", "system.device", "'tpu'"),
        ("data=5", "data", "5"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_with_key_and_value(override, key, value):
    error = refused(override)
    assert f"'{key}'" in error.what
    assert value in error.what


@pytest.mark.parametrize(
    "override",
    [
        "training.learning_rate=-0.1",
        "training.learning_rate=0",
        "training.learning_rate=nan",
        "training.steps=0",
        "training.keep_checkpoints=1",
        "training.clip_norm=-1",
        "model.layers=-2",
        "model.dropout=1.0",
        "model.dropout=-0.1",
        "data.held_out=1",
        "data.max_length=0",
        "tokenizer.vocabulary=0",
        "decoding.top_p=0",
        "decoding.top_p=1.5",
        "seed=-1",
    ],
)
def test_a_number_out_of_range_is_refused_and_the_key_explained(override):
    key = override.partition("=")[0]
    error = refused(override)
    assert f"'{key}'" in error.what
    assert "should be" in error.why
    section, _, name = key.rpartition(".")
    settings = resolve("demo")
    assert type(settings.sections().get(section, settings)).model_fields[name].description in error.fix


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["model.heads=7"], ["heads = 7", "width = 128"]),
        (["model.heads=7", "model.key_width=16"], ["heads = 7", "width = 128"]),
        (["model.width=9", "model.heads=3"], ["width = 9", "odd"]),
        (["model.width=9", "model.heads=3", "model.positions=sinusoidal-halves"], ["width = 9", "odd"]),
        (["model.width=12", "model.heads=4", "model.positions=rotary"], ["head of 3", "rotary"]),
        (["training.tokens_per_batch=63"], ["tokens_per_batch = 63", "row_length = 64"]),
        (["training.micro_batches=33"], ["micro_batches = 33", "32 rows"]),
        (["training.save_every=40"], ["validate_every = 150", "save_every = 40"]),
        (["training.select=bleu", "training.validate_bleu=false"], ["select", "validate_bleu"]),
        (["training.ema=0.999", "training.average_checkpoints=5"], ["ema", "average_checkpoints"]),
        (["data.max_length=65"], ["data.max_length = 65", "training.row_length = 64"]),
        (["tokenizer.joint=false"], ["model.tie_embeddings", "tokenizer.joint"]),
        (["tokenizer.dropout=0.1"], ["tokenizer.dropout", '"word"']),
        (
            ["model.positions=learned", "model.max_positions=31"],
            ["data.max_length = 32", "model.max_positions = 31"],
        ),
    ],
)
def test_settings_that_do_not_fit_together_are_refused_by_name(overrides, named):
    error = refused(*overrides)
    assert "do not fit together" in error.what
    assert all(name in error.why for name in named), error.why


@pytest.mark.parametrize(
    "overrides",
    [
        ["model.heads=7", "model.key_width=16", "model.value_width=16"],
        ["model.width=9", "model.heads=3", "model.positions=learned"],
        ["model.width=24", "model.heads=4", "model.positions=rotary"],
        ["training.tokens_per_batch=64"],
        ["training.micro_batches=32"],
        ["training.save_every=50"],
        ["training.select=bleu"],
        ["data.max_length=64"],
        ["tokenizer.joint=false", "model.tie_embeddings=target"],
        ["tokenizer.kind=bpe", "tokenizer.dropout=0.1"],
        ["model.positions=learned", "model.max_positions=32"],
    ],
)
def test_settings_just_inside_each_rule_are_accepted(overrides):
    settings = resolve("demo", overrides)
    for override in overrides:
        section, _, rest = override.partition(".")
        name, _, value = rest.partition("=")
        assert str(getattr(getattr(settings, section), name)).lower() == value


# --- Overrides -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        ("training.steps=500", "training", "steps", 500),
        ("training.steps=1_000", "training", "steps", 1000),
        (" training.steps = 500", "training", "steps", 500),
        ("training.learning_rate=0.01", "training", "learning_rate", 0.01),
        ("training.learning_rate=3e-4", "training", "learning_rate", 3e-4),
        ("training.learning_rate=2", "training", "learning_rate", 2.0),
        ("model.gated=true", "model", "gated", True),
        ("training.validate_bleu=false", "training", "validate_bleu", False),
        ("model.activation=gelu", "model", "activation", "gelu"),
        ('model.activation="gelu"', "model", "activation", "gelu"),
        ("model.activation='gelu'", "model", "activation", "gelu"),
        ("model.positions=sinusoidal-halves", "model", "positions", "sinusoidal-halves"),
        ("system.device=cuda:1", "system", "device", "cuda:1"),
        ("system.compile=no", "system", "compile", "no"),
        ("data.cache=/tmp/a=b c", "data", "cache", "/tmp/a=b c"),
        ("data.cache=", "data", "cache", ""),
        ('data.train=["a.en", "a.de"]', "data", "train", ["a.en", "a.de"]),
        ('data.train=[["a.en", "a.de"], ["b.tsv"]]', "data", "train", [["a.en", "a.de"], ["b.tsv"]]),
        ("data.train=[]", "data", "train", []),
        ("data.columns=[3, 1]", "data", "columns", [3, 1]),
    ],
)
def test_an_override_sets_a_value_of_its_type(override, section, key, value):
    given = getattr(getattr(resolve("starter", [override]), section), key)
    assert given == value
    assert type(given) is type(value)


def test_an_override_at_the_top_and_the_last_of_two_wins():
    assert resolve("demo", ["seed=5", "seed=6"]).seed == 6


def test_an_override_changes_nothing_else():
    before, after = resolve("demo").model_dump(), resolve("demo", ["training.steps=7"]).model_dump()
    assert before["training"].pop("steps") != after["training"].pop("steps")
    assert before == after


@pytest.mark.parametrize("override", ["training.steps", "steps", "", "=5", " =5"])
def test_an_override_without_key_or_value_shows_the_form(override):
    error = refused(override)
    assert f"'{override}'" in error.what
    assert "training.steps=500" in error.fix


@pytest.mark.parametrize("override", ["training.steps.more=5", "seed.more=5", "model.width.a.b=1"])
def test_an_override_into_a_value_says_that_it_is_not_a_section(override):
    error = refused(override)
    assert error.what.split("'")[1] in override
    assert "is a value, not a section" in error.why


@pytest.mark.parametrize("override", ["..=3", "training.=3", ".steps=3", "training..steps=3", "training=5"])
def test_an_override_with_misplaced_dots_is_a_usage_error(override):
    assert "setting" in refused(override).what


# --- Writing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_survives_writing_and_reading(name):
    settings = resolve(name)
    assert from_toml(to_toml(settings)) == settings


def test_unusual_values_survive_writing_and_reading():
    overrides = [
        'data.root=C:\\data\\new "quoted" \t ümläut 句子',
        'data.train=[["a b.en", "ä.de"], ["c.tsv"]]',
        "data.columns=[4, 2]",
        "training.epsilon=1e-12",
        "training.learning_rate=1e20",
        "model.gated=true",
        'data.cache="line\\nbreak"',
    ]
    settings = resolve("starter", overrides)
    assert from_toml(to_toml(settings)) == settings
    assert settings.data.cache == "line\nbreak"


def test_a_single_data_file_needs_no_brackets():
    assert resolve("trec", ["data.train=mine.tsv"]).data.train == ["mine.tsv"]


@pytest.mark.parametrize(
    ("recipe", "setting"),
    [("shakespeare", "decoding.beam=3"), ("demo", "data.text=a.txt"), ("trec", "masking.share=0.2")],
)
def test_a_setting_without_effect_on_the_task_is_refused(recipe, setting):
    with pytest.raises(UsageError) as caught:
        resolve(recipe, [setting])
    assert setting.partition("=")[0] in caught.value.what
    assert "Leave it out" in caught.value.fix


def test_the_documented_name_of_each_key_of_the_design_is_valid():
    text = """
        task = "translate"
        seed = 1
        [data]
        root = "."
        train = ["train.en.gz", "train.de.gz"]
        valid = ["val.en.gz", "val.de.gz"]
        test = ["test_2016_flickr.en.gz", "test_2016_flickr.de.gz"]
        [tokenizer]
        kind = "bpe"
        vocabulary = 10000
        joint = true
        [model]
        layers = 4
        width = 128
        heads = 4
        feedforward = 256
        mixer = "attention"
        positions = "sinusoidal"
        norm = "pre"
        dropout = 0.3
        [training]
        steps = 8000
        tokens_per_batch = 8192
        learning_rate = 0.005
        schedule = "inverse-sqrt"
        warmup = 2000
        label_smoothing = 0.1
        validate_every = 500
        save_every = 500
        [decoding]
        beam = 5
        length_penalty = 0.6
    """
    listed = flat(from_toml(text))
    for section, values in tomllib.loads(text).items():
        for key, value in values.items() if isinstance(values, dict) else []:
            assert listed[f"{section}.{key}"] == value


# --- The objects -----------------------------------------------------------------------------------------


def test_settings_are_frozen():
    settings = resolve("demo")
    with pytest.raises(ValidationError):
        settings.seed = 5
    with pytest.raises(ValidationError):
        settings.training.steps = 5
    assert settings == resolve("demo")


def test_every_setting_of_every_task_and_part_has_a_description():
    tasks = [registry.load("tasks", name).Settings for name in registry.names("tasks")]
    sections = [field.annotation for task in tasks for field in task.model_fields.values()]
    parts = [registry.load(kind, name).Settings for kind in registry.KINDS for name in registry.names(kind)]
    for settings in {each for each in [*sections, *parts] if isinstance(each, type) and issubclass(each, Settings)}:
        for name, field in settings.model_fields.items():
            is_section = isinstance(field.annotation, type) and issubclass(field.annotation, Settings)
            assert field.description or is_section, f"{settings.__name__}.{name}"


def test_derived_settings_follow_from_the_others():
    model = validate({"model": {"width": 96, "heads": 6}}).model
    assert (model.head_key_width, model.head_value_width) == (16, 16)
    model = validate({"model": {"width": 96, "heads": 5, "key_width": 8, "value_width": 24}}).model
    assert (model.head_key_width, model.head_value_width) == (8, 24)
    training = validate({"training": {"validate_every": 60}}).training
    assert training.checkpoint_every == 60
    training = validate({"training": {"validate_every": 60, "save_every": 20}}).training
    assert training.checkpoint_every == 20


def test_a_mistake_while_working_exits_with_1_and_a_mistake_in_the_command_with_2():
    assert RegardError("what", "why", "fix").exit_code == 1
    assert UsageError("what", "why", "fix").exit_code == 2
    assert issubclass(UsageError, RegardError)


def test_did_you_mean_names_one_or_lists_all():
    assert did_you_mean("widht", ["width", "heads"]) == "Did you mean 'width'?"
    assert did_you_mean("zzz", ["width", "heads"]) == "Valid names: heads, width."


def test_a_file_without_the_toml_ending_is_a_recipe_too(tmp_path, monkeypatch):
    Path(tmp_path, "experiment").write_text("seed = 9\n")
    monkeypatch.chdir(tmp_path)
    assert resolve("experiment").seed == 9


def test_a_setting_of_another_task_is_told_before_its_value_is_judged():
    with pytest.raises(UsageError) as error:
        resolve("demo", ["synthetic.length=5"])
    assert "has no effect on the task 'translate'" in error.value.what


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("model.hyena.ordr=3", "Did you mean 'order'?"),
        ("model.hyena={a={b=1}}", "Valid names"),
        ("training.muon.learning_rate=fast", "Muon's highest rate"),
        ("model.gru.x=3", "'gru' has no settings of its own"),
    ],
)
def test_the_table_of_a_part_that_is_not_used_is_checked_too(override, says):
    with pytest.raises(UsageError) as caught:
        resolve("demo", [override])
    assert says in caught.value.fix


def test_the_starter_of_translators_is_for_a_laptop():
    """Five million tokens through fewer than four million weights: a fortieth of the work that took 14 hours."""
    settings = resolve("starter")
    tokens = settings.training.steps * settings.training.tokens_per_batch
    block = 4 * settings.model.width**2 + 2 * settings.model.width * settings.model.feedforward
    decoder = block + 4 * settings.model.width**2
    weights = settings.model.layers * (block + decoder) + settings.tokenizer.vocabulary * settings.model.width
    assert tokens * weights < 3e13
