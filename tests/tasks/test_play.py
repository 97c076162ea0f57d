"""A player of games: what it chooses, how its knowledge of the rules is measured, and its matches."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from command import regard as command
from regard.data.game_batches import in_order
from regard.data.game_corpus import RESULTS, Games, game_splits
from regard.data.games.othello import Othello
from regard.data.games.position import DRAW, Position, best_moves
from regard.data.games.tictactoe import TicTacToe
from regard.errors import UsageError
from regard.evaluation.legality import likeliest_results
from regard.evaluation.matches import OPPONENTS, Pairing, match_score, pairings, play_match
from regard.recipes import resolve

SMALL = ["model.layers=1", "model.width=32", "model.heads=2", "model.feedforward=64", "matches.games=20"]
SMALL += ["data.games=2000", "training.steps=100", "training.validate_every=100", "training.warmup=10"]
SMALL += ["training.tokens_per_batch=640", "training.learning_rate=0.01"]


@pytest.fixture(scope="module")
def player(train_once: Callable[..., Any]) -> Any:
    """Of tic-tac-toe, for a second or two: it has learned that a square is taken once."""
    return train_once("player", "tictactoe", *SMALL)


@pytest.fixture(scope="module")
def games(player: Any) -> Games:
    return game_splits(player.settings.data)["test"].read()


def test_it_learns_the_rules_from_moves_alone(player):
    metrics = player.evaluate().metrics
    assert metrics["legal"] > 85 and metrics["legal_mass"] > 75  # 58 % of the squares are free, on average
    assert metrics["loss"] < math.log(9)


def test_its_knowledge_of_the_rules_is_that_of_every_single_position(player, games):
    some = games.evenly(8)
    choices = []
    for number in range(len(some)):
        moves = [player.game.words[move] for move in some.moves(number)]
        wish = int(some.results[number])
        choices += [player._choose(moves[:at], player.after(moves[:at]), wish) for at in range(len(moves))]
    metrics = player._judge(player._judged(some))
    assert metrics["legal"] == pytest.approx(100 * np.mean([choice.legal for choice in choices]))
    masses = [sum(p for _, p in choice.all) for choice in choices]
    assert metrics["legal_mass"] == pytest.approx(100 * np.mean(masses), rel=1e-5)


def test_the_likeliest_result_is_that_which_makes_the_moves_likeliest(player, games):
    some = games.evenly(6)
    found = likeliest_results(player.model, in_order(some.words, 4, 10), player.logits, player.hardware)
    for number, guess in enumerate(found):
        words = torch.tensor(some.words[number].astype(int))
        totals = []
        for result in range(3):
            words[0] = RESULTS + result
            with torch.no_grad():
                log_p = player.model(words[None, :-1])[0].log_softmax(-1)
            totals.append(float(log_p[torch.arange(len(words) - 1), words[1:]].sum()))
        assert guess == int(np.argmax(totals))


def test_what_it_is_asked_for_changes_what_it_plays(player):
    first = {wish: dict(player.play([], wish).all) for wish in ("win", "draw", "lose")}
    assert first["win"] != first["lose"] != first["draw"]
    choice = player.play(["b2", "a1"])
    assert choice.move == choice.all[0][0] and choice.probability == choice.all[0][1]
    assert {word for word, _ in choice.all} == set(player.game.words) - {"b2", "a1"}


@pytest.mark.parametrize(
    ("moves", "wish", "why"),
    [
        (["b2", "b2"], "win", "move 2, b2, is not allowed there"),
        (["q7"], "win", "A move is written as a1"),
        (["a1", "b1", "a2", "b2", "a3"], "win", "no move to make"),
        ([], "cheat", "asked to win, draw or lose"),
    ],
)
def test_what_cannot_be_played_is_refused(player, moves, wish, why):
    with pytest.raises(UsageError) as caught:
        player.play(moves, wish)
    assert why in caught.value.why


# ---------------------------------------------------------------- matches


@pytest.mark.parametrize("pairing", [Pairing("random", 0, 0), Pairing("random", 1, 1), Pairing("perfect", 1, DRAW)])
def test_a_match_is_what_single_choices_give(player, pairing):
    """Its moves come one at a time from a state; here the whole game is read again for every move."""
    count, won, drawn, turns, illegal = 6, 0, 0, 0, 0
    generator = np.random.default_rng([1, pairing.side, pairing.wish, list(OPPONENTS).index(pairing.opponent)])
    written: list[list[str]] = [[] for _ in range(count)]
    for _ in range(9):
        for moves in written:
            position = player.after(moves)
            if position.result is not None:
                continue
            if position.side == pairing.side:
                choice = player._choose(moves, position, pairing.wish)
                moves.append(choice.move)
                turns, illegal = turns + 1, illegal + (not choice.legal)
            else:
                allowed = OPPONENTS[pairing.opponent](position)
                moves.append(player.game.words[allowed[int(generator.integers(len(allowed)))]])
    results = [player.after(moves).result for moves in written]
    won, drawn = results.count(pairing.side), results.count(DRAW)
    match = play_match(player.model, player.game, pairing, count, 10)
    assert (match.won, match.drawn, match.lost) == (won, drawn, count - won - drawn)
    assert (match.turns, match.illegal, match.unfinished) == (turns, illegal, 0)


def test_games_that_do_not_end_are_counted_as_such(player):
    match = play_match(player.model, player.game, Pairing("random", 0, 0), 10, longest=4)
    assert (match.unfinished, match.games) == (10, 10)  # nobody has three in a row after four moves
    score = match_score(Pairing("random", 0, 0), match, player.game)
    assert score.name == "wins_x_random" and score.value == 0 and "10 not ended" in score.signature


def test_only_a_solved_game_is_played_against_a_perfect_player(player):
    assert [pairing.name(player.game) for pairing in pairings(player.game)] == [
        "wins_x_random",
        "wins_o_random",
        "draws_x_perfect",
        "draws_o_perfect",
    ]
    assert [pairing.name(Othello) for pairing in pairings(Othello)] == ["wins_black_random", "wins_white_random"]


def test_evaluation_tells_matches_with_intervals_and_illegal_wishes(player):
    result = player.evaluate()
    scores = {score.name: score for score in result.scores}
    low, high = scores["wins_x_random"].interval
    assert low <= scores["wins_x_random"].value <= high
    assert "never makes a move that is not allowed" in result.notes[-1]
    match = result.details["matches"]["draws_o_perfect"]
    assert match["won"] == 0, "nobody beats a perfect player"
    assert match["drawn"] + match["lost"] == 20


# ---------------------------------------------------------------- what games can teach


@cache
def ends(position: Position, perfect: tuple[bool, bool]) -> tuple[float, ...]:
    """The chance of each result from here on, between players who play at random, or perfectly."""
    if position.result is not None:
        return tuple(float(result == position.result) for result in range(3))
    moves = best_moves(position) if perfect[position.side] else position.legal
    return tuple(np.mean([ends(position.play(move), perfect) for move in moves], axis=0).tolist())


def drawn_against_perfect_play(side: int, share: float) -> float:
    """How often a model draws that has learned games with this share of perfect players completely."""
    kinds = list(itertools.product((False, True), repeat=2))

    def after(position: Position, p_of: dict[tuple[bool, bool], float], move: int) -> dict[tuple[bool, bool], float]:
        """How likely each pair of players is together with the moves so far, after another move."""
        choices = {kind: best_moves(position) if kind[position.side] else position.legal for kind in p_of}
        return {kind: p / len(choices[kind]) if move in choices[kind] else 0.0 for kind, p in p_of.items()}

    def go(position: Position, p_of: dict[tuple[bool, bool], float]) -> float:
        if position.result is not None:
            return float(position.result == DRAW)
        moves = position.legal if position.side == side else best_moves(position)
        following = [(position.play(move), after(position, p_of, move)) for move in moves]
        if position.side != side:
            return float(np.mean([go(*each) for each in following]))
        likeliest = [sum(p * ends(position, kind)[DRAW] for kind, p in p_of.items()) for position, p_of in following]
        return go(*following[int(np.argmax(likeliest))])

    prior = {kind: math.prod(share if perfect else 1 - share for perfect in kind) for kind in kinds}
    return go(TicTacToe.start(), prior)


def test_random_games_do_not_teach_to_draw_and_some_perfect_players_do():
    assert all(drawn_against_perfect_play(side, 0.0) < 0.5 for side in (0, 1))
    share = resolve("tictactoe").data.perfect
    assert [drawn_against_perfect_play(side, share) for side in (0, 1)] == pytest.approx([1.0, 1.0])


# ---------------------------------------------------------------- other games


def test_a_player_starts_from_another_of_the_same_game(player, tmp_path):
    few = [*SMALL, "training.steps=1", "training.validate_every=1", "training.learning_rate=1e-9"]
    run = regard.load(regard.train("tictactoe", *few, out=tmp_path / "on", start_from=player.folder.path))
    for (name, mine), theirs in zip(run.model.trunk.named_parameters(), player.model.trunk.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, msg=name)
    othello = ["data.game=othello", "data.perfect=0.0", "model.max_positions=61", "training.tokens_per_batch=976"]
    with pytest.raises(UsageError, match="It plays tic-tac-toe"):
        regard.train("tictactoe", *othello, out=tmp_path / "other", start_from=player.folder.path)


@pytest.mark.parametrize(
    ("recipe", "length"), [("othello", 61), ("chess", 161), ("chess-rules", 161), ("tictactoe", 10)]
)
def test_a_row_holds_the_longest_game_of_each_recipe(recipe, length):
    settings = resolve(recipe)
    assert settings.row[1] == length <= settings.model.max_positions
    assert settings.training.tokens_per_batch % length == 0


@pytest.mark.parametrize(
    ("setting", "why"),
    [("data.game=chess", "chess is not played perfectly"), ("data.game=othello", "othello is not played perfectly")],
)
def test_settings_that_make_no_games_are_refused(setting, why):
    with pytest.raises(UsageError, match=why):
        resolve("tictactoe", [setting])


def test_the_board_of_othello_is_read_from_layers(train_once):
    settings = ["data.game=othello", "data.perfect=0.0", "data.games=300", "data.held_out=0.1", "matches.games=2"]
    settings += ["model.max_positions=61", "training.steps=2", "training.validate_every=2"]
    settings += ["training.tokens_per_batch=976"]
    run = train_once("othello", "tictactoe", *SMALL[:4], *settings)
    result = run.probe(200, 30)
    assert (result["train_positions"], len(result["squares"]), len(result["layers"])) == (200, 64, 2)
    # Where discs lie in the middle is much the same in all games; untrained layers know little more.
    assert result["commonest_class"] > 50
    moves = run.play([]).all
    assert {word for word, _ in moves} == {"d3", "c4", "f5", "e6"}


# ---------------------------------------------------------------- the command


def test_a_person_plays_through_a_pipe(player):
    lines = "b2\nnonsense\nb2\nmoves\nundo\na1\nquit\n"
    result = command("play", player.folder.path, stdin=lines)
    assert "You are x; the model, asked to win, is o." in result.stdout
    assert result.stdout.count("o plays") == 2 and "Allowed: " in result.stdout
    assert "1 x" in result.stdout and result.stdout.endswith("The game is not over. Bye.\n")
    assert "'nonsense' is not a move" in result.stderr and "b2 is not allowed here" in result.stderr


def test_a_whole_game_as_json(player):
    every = "".join(f"{word}\n" for word in player.game.words) * 2
    shown = json.loads(command("play", player.folder.path, "--side", "o", "--json", stdin=every).stdout)
    assert shown["side"] == "o" and shown["result"] in ("x", "o", "draw")
    assert player.after(shown["moves"]).result == player.game.result_names().index(shown["result"])
    alone = json.loads(command("play", player.folder.path, "--side", "none", "--wish", "draw", "--json").stdout)
    assert alone["side"] is None and player.after(alone["moves"]).result is not None


def test_a_side_or_wish_that_there_is_not_is_refused(player, tiny_run: Callable[[str], Path]):
    assert "no side 'white'" in command("play", player.folder.path, "--side", "white", code=2).error[0]
    assert "win, draw or lose" in command("play", player.folder.path, "--wish", "peace", code=2).error[1]
    other = command("play", tiny_run("synthetic"), code=2)
    assert "This needs a player of games." in other.error[1]


def test_what_could_be_played_at_each_place_are_the_moves_that_were_allowed_there(player):
    trace = player.trace("b2 a1")
    found = trace.candidates(20).probabilities
    logits = trace.logits_AW.double()
    for place, moves in enumerate(([], ["b2"], ["b2", "a1"])):
        allowed = {player.game.words[move] for move in player.after(moves).legal}
        both = zip(found.notes["words"][place], found.values[place], strict=True)
        shown = {word: float(p) for word, p in both if p == p}  # NaN where no more moves are allowed
        assert set(shown) == allowed
        assert sum(shown.values()) == pytest.approx(1, abs=1e-5)
        said = trace.subject.answers[place]
        same = [token for token in range(logits.shape[1]) if trace.subject.name_of(token) in allowed]
        expected = float(logits[place, same].softmax(-1)[same.index(said.token)])
        assert shown[said.label] == pytest.approx(expected, abs=1e-5)
