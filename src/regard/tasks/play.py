"""Play: games in, a model that plays them out. It is told the result it is to reach, and makes the likeliest move."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard import console
from regard.data.splits import empty_splits, must_not_be_empty
from regard.errors import RegardError, UsageError, did_you_mean
from regard.settings import CausalModel, FileList, GameData, GameTraining, MatchSettings, NetworkSettings
from regard.tasks.task import About, Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from regard.data.game_batches import GameBatch
    from regard.data.game_corpus import Games, GameSource
    from regard.data.games.position import Position
    from regard.evaluation.legality import JudgedGames
    from regard.evaluation.matches import Match, Pairing
    from regard.evaluation.metrics import Evaluation
    from regard.inside.subject import Subject
    from regard.models.causal import Causal
    from regard.settings import Problem

FIRST_MOVES = 3  # that the page of `regard explore` begins with
MOST_VALIDATED = 500  # games; a test takes all
WISHES = ("win", "draw", "lose")


class PlaySettings(NetworkSettings):
    SELECT: ClassVar[tuple[str, ...]] = ("loss", "accuracy", "legal")

    data: GameData = GameData()
    matches: MatchSettings = MatchSettings()
    model: CausalModel = CausalModel()
    training: GameTraining = GameTraining()

    @property
    def row(self) -> tuple[str, int]:
        """The result, and every move."""
        return "the moves of data.game, or data.max_length, and one more,", self.data.longest + 1

    def check(self) -> Iterator[Problem]:
        yield from super().check()
        yield from self.data.check()
        yield from self.training.check_rows(*self.row)


@dataclass(frozen=True)
class Choice:
    """The move that a model makes, and what it thinks of all that are allowed, likeliest first.

    A probability is of all moves that there can be: what is missing to 1 was given to moves that are not allowed.
    """

    move: str
    probability: float
    all: list[tuple[str, float]]
    likeliest: str  # of all moves; where it is not allowed, it is not the one that is made

    @property
    def legal(self) -> bool:
        """Whether the model knew the rules here."""
        return self.likeliest == self.move


class Play(Task[PlaySettings]):
    """`regard.load("runs/tictactoe").play(["b2", "a1"])`"""

    about = About(
        noun="a player of games",
        verb="play",
        metrics=("legal", "accuracy", "loss"),
        starter="tictactoe",
        advice="For other games edit data.game or data.train, data.perfect (0) and model.max_positions (moves and 1).",
    )
    Settings = PlaySettings
    starts_from = ("play",)

    model: Causal

    # ------------------------------------------------------------ from data to a model

    @classmethod
    def check_files(cls, settings: PlaySettings) -> None:
        from regard.data.game_corpus import game_splits
        from regard.data.games import game_named

        game_named(settings.data.game)
        game_splits(settings.data)

    @classmethod
    def examine(cls, settings: PlaySettings) -> tuple[dict[str, Any], list[str]]:
        """Reads every game, or makes them: the rules are followed in all of them."""
        from regard.data.game_corpus import game_splits, told_of_bad_games
        from regard.data.games import game_named

        names = game_named(settings.data.game).result_names()
        figures: dict[str, Any] = {"game": settings.data.game}
        advice: list[str] = []
        sources = game_splits(settings.data)
        every = {split: source.read() for split, source in sources.items()}
        for split, games in every.items():
            results = games.results.tolist()
            figures[split] = {
                "games": len(games),
                "longest, in moves": max((int(games.words.lengths.max()) - 2) if len(games) else 0, 0),
                **{f"ending in {name}": results.count(number) for number, name in enumerate(names)},
            }
        once = {sources[split].files: games for split, games in every.items()}.values()
        figures["left_out"] = sum(games.bad for games in once)
        advice += [told_of_bad_games(games) for games in once if games.bad]
        advice += empty_splits({split: len(games) for split, games in every.items()}, "game")
        return figures, advice or ["Every game keeps to the rules."]

    @cached_property
    def game(self) -> type[Position]:
        from regard.data.games import game_named

        return game_named(self.settings.data.game)

    @property
    def _rows(self) -> int:
        return max(1, self.settings.training.tokens_per_batch // self._length)

    @property
    def _length(self) -> int:
        """Positions of a row."""
        return self.settings.row[1]

    def prepare(self) -> None:
        from regard.data.game_batches import GameStream
        from regard.data.game_corpus import game_splits, warn_of_bad_games

        sources = game_splits(self.settings.data)
        self.remember_data({split: source.fingerprint for split, source in sources.items()})
        self.games = {split: source.read() for split, source in sources.items()}
        # Files that several splits are taken from are told of once.
        for games in {sources[split].files: games for split, games in self.games.items()}.values():
            warn_of_bad_games(games)
        must_not_be_empty({split: len(games) for split, games in self.games.items()}, "game", "games")
        self.stream = GameStream(self.games["train"].words, self._rows, self._length, self.settings.seed)

    def restore(self) -> None:
        """Nothing is needed but the rules of the game."""

    def build(self) -> Causal:
        from regard.data.game_corpus import vocabulary_size
        from regard.models.causal import Causal

        return Causal(self.settings.model, vocabulary_size(self.game))

    def architecture(self) -> dict[str, Any]:
        from regard.data.game_corpus import RESULTS, vocabulary_size
        from regard.data.tokenizers import END, SPECIALS

        results = [f"<{name}>" for name in self.game.result_names()]
        return {
            "architecture": "causal",
            "vocabulary": vocabulary_size(self.game),
            "game": self.settings.data.game,
            "result_ids": [RESULTS, RESULTS + 1, RESULTS + 2],
            "end_id": END,
            "words": [*SPECIALS, *results, *self.game.words],
        }

    def describe(self) -> str:
        games = self.games["train"]
        steps = -(-len(games) // self._rows)
        return (
            f"{len(games):,} games of {self.settings.data.game} · {len(games.words.ids) / len(games) - 2:.1f} moves "
            f"each · {len(self.game.words):,} moves in all · an epoch is {steps:,} step{'s' * (steps > 1)}"
        )

    # ------------------------------------------------------------ training and scoring

    def hidden(self, batch: GameBatch) -> Tensor:
        return self.model.hidden(batch.tokens_BT)

    def validate(self, step: int) -> dict[str, float]:
        self.folder.write_text(f"samples/step-{step}.txt", self._sample())
        return self._judge(self._validation_games)

    def test(self) -> dict[str, float]:
        from regard.evaluation.matches import match_score

        games = self.games["test"]
        scores = [match_score(pairing, match, self.game) for pairing, match in self._matches()]
        played = {score.name: score.value for score in scores}
        return self._judge(self._judged(games)) | {"result": self._result_accuracy(games)} | played

    def _judged(self, games: Games) -> JudgedGames:
        from regard.evaluation.legality import JudgedGames

        return JudgedGames.of(games, self.game, self._length)

    @cached_property
    def _validation_games(self) -> JudgedGames:
        return self._judged(self.games["valid"].evenly(MOST_VALIDATED))

    def _judge(self, judged: JudgedGames) -> dict[str, float]:
        """
        loss        mean, in nats per move, the end of a game included
        accuracy    percentage of the moves and ends that the model finds likeliest
        legal       percentage of the positions in which the likeliest move is allowed
        legal_mass  percentage of the probability of all moves that goes to those that are allowed
        """
        from regard.evaluation.legality import judge

        batches = judged.batches(self._rows, self._length, self.game)
        return judge(self.model, batches, self.logits, self.hardware, self.processes)

    def _result_accuracy(self, games: Games) -> float:
        """Percentage of the games whose result is the one that makes their moves likeliest."""
        from regard.data.game_batches import in_order
        from regard.evaluation.legality import likeliest_results

        batches = in_order(games.words, self._rows, self._length)
        guessed_N = likeliest_results(self.model, batches, self.logits, self.hardware, self.processes)
        return 100 * float((guessed_N == games.results).mean())

    def _matches(self) -> list[tuple[Pairing, Match]]:
        """Whole games against others; always the same for the same weights."""
        from regard.evaluation.matches import pairings, play_match

        count = self.settings.matches.games
        if not count:
            return []
        with console.progress(0, "matches"):
            return [
                (pairing, play_match(self.model, self.game, pairing, count, self._length))
                for pairing in pairings(self.game)
            ]

    def _sample(self) -> str:
        """A game of the model against itself, asked that the first side wins."""
        position: Position = self.game.start()
        words: list[str] = []
        while position.result is None and len(words) < self._length:
            choice = self._choose(words, position, wish=0)
            words.append(choice.move)
            position = position.play(self.game.words.index(choice.move))
        result = "not ended" if position.result is None else self.game.result_names()[position.result]
        return f"asked for {self.game.sides[0]}: {' '.join(words)} ({result})\n\n{position.show()}\n"

    def evaluate(self, files: FileList | None = None, split: str = "test", **options: Any) -> Evaluation:
        """How well it knows the rules and expects the moves of others, and how it plays."""
        import numpy as np

        from regard.data.game_corpus import game_files, game_splits, warn_of_bad_games
        from regard.evaluation.classification import wilson
        from regard.evaluation.matches import match_score
        from regard.evaluation.metrics import Evaluation, Score

        source: GameSource = game_files(files, self.settings.data) if files else game_splits(self.settings.data)[split]
        if not files:
            self.notice_change({split: source.fingerprint}, split)
        games = source.read()
        warn_of_bad_games(games)
        if not len(games):
            raise RegardError("There is nothing to score.", "There is no game that can be used.", "Name another file.")
        judged = self._judged(games)
        moves = sum(map(len, judged.legal))
        signatures = {
            "loss": f"nats per move, over {moves:,} moves and {len(games):,} ends",
            "accuracy": "% of the moves and ends",
            "legal": f"% of {moves:,} positions: the likeliest move is allowed",
            "legal_mass": "% of the probability of all moves",
            "result": "% of the games: the result that makes its moves likeliest",
        }
        metrics = self._judge(judged) | {"result": self._result_accuracy(games)}
        matches = self._matches()
        scores = [Score(name, value, None, signatures[name]) for name, value in metrics.items()]
        scores += [match_score(pairing, match, self.game) for pairing, match in matches]
        counts = np.bincount(games.results, minlength=3)
        ended = dict(zip(self.game.result_names(), counts.tolist(), strict=True))
        notes = ["", "In the games that are scored: " + ", ".join(f"{n:,} {name}" for name, n in ended.items()) + "."]
        if matches:
            turns, illegal = (sum(getattr(match, name) for _, match in matches) for name in ("turns", "illegal"))
            low, high = wilson(illegal, turns)
            notes.append(
                f"In its own games it never makes a move that is not allowed. At {illegal:,} of {turns:,} turns the "
                f"likeliest of all moves was not ({100 * illegal / turns:.2f} %, {100 * low:.2f} to {100 * high:.2f})."
            )
        details = {
            "game": self.settings.data.game,
            "results": ended,
            "left_out": games.bad,
            "matches": {pairing.name(self.game): match.to_json() for pairing, match in matches},
        }
        return Evaluation(scores, len(games), "games", details=details, notes=notes)

    def next_commands(self) -> list[str]:
        path = self.folder.path
        return [f"regard play {path}", f"regard evaluate {path}", f"regard probe {path}"]

    # ------------------------------------------------------------ a loaded run

    def play(self, moves: Sequence[str] = (), wish: str = "win") -> Choice:
        """The move that the model makes after these; asked to win, draw or lose as the side whose turn it is."""
        position = self.after(moves)
        if position.result is not None:
            raise UsageError("The game is over.", "There is no move to make.", "Leave out the last moves.")
        return self._choose(moves, position, self.wished(wish, position.side))

    def after(self, moves: Sequence[str]) -> Position:
        """The position after these moves from the start; a clear error where they break the rules."""
        for word in moves:
            if word not in self.game.words:
                known = did_you_mean(word, self.game.words)
                raise UsageError(f"'{word}' is not a move.", f"A move is written as {self.game.words[0]}.", known)
        try:
            return self.game.replay([self.game.words.index(word) for word in moves])[-1]
        except ValueError as error:
            raise UsageError("These moves are not a game.", f"Of them, {error}.", "Correct the moves.") from None

    def wished(self, wish: str, side: int) -> int:
        """The result that a wish of this side stands for."""
        from regard.data.games.position import DRAW

        if wish not in WISHES:
            raise UsageError(
                f"A game cannot be played to '{wish}'.", "A player may be asked to win, draw or lose.", "Use win."
            )
        return {"win": side, "draw": DRAW, "lose": 1 - side}[wish]

    def _choose(self, moves: Sequence[str], position: Position, wish: int) -> Choice:
        """The likeliest of the moves that are allowed in the position after these."""
        import torch

        from regard.data.game_corpus import MOVES, RESULTS

        words = [RESULTS + wish, *(MOVES + self.game.words.index(word) for word in moves)]
        tokens_1T = torch.tensor([words[:1] + words[1:][-(self._length - 1) :]], device=self.hardware.device)
        self.model.eval()
        with torch.inference_mode(), self.hardware.autocast():
            p_V = self.model(tokens_1T)[0, -1, MOVES:].float().softmax(-1).tolist()
        ordered = sorted(position.legal, key=lambda move: -p_V[move])
        likeliest = max(range(len(p_V)), key=p_V.__getitem__)
        name = self.game.words
        return Choice(name[ordered[0]], p_V[ordered[0]], [(name[move], p_V[move]) for move in ordered], name[likeliest])

    # ------------------------------------------------------------ looking into layers

    def first_inputs(self) -> list[str]:
        """The first moves of a game against itself, and the same without the last of them."""
        moves: list[str] = []
        while len(moves) < FIRST_MOVES:
            moves.append(self.play(moves, "draw").move)
        return [" ".join(moves), " ".join(moves[:-1])]

    def subject(self, moves: str = "", wish: str = "win") -> Subject:
        """A game so far, as moves separated by spaces, and the model's prediction of each next move, to trace."""
        from regard.data.game_corpus import MOVES, RESULTS
        from regard.data.tokenizers import SPECIALS
        from regard.inside import subjects

        words = moves.split()
        position = self.after(words)
        played = [self.game.words.index(word) for word in words]
        ids = [RESULTS + self.wished(wish, position.side), *(MOVES + move for move in played)]
        names = [*SPECIALS, *(f"<{name}>" for name in self.game.result_names()), *self.game.words]
        # The legal moves differ from position to position; after the end of a game there are none, and all are allowed.
        illegal = [
            [MOVES + move for move in range(len(self.game.words)) if move not in set(each.legal)] if each.legal else []
            for each in self.game.replay(played)
        ]
        return subjects.causal(self.model, ids, names.__getitem__, range(MOVES), never_at=illegal, input_text=moves)

    def probe(self, train: int, test: int, output: Path | None = None) -> dict[str, Any]:
        """How well every square of the board can be read from each layer: empty, of who moves, or of the other."""
        from regard.data.game_corpus import game_splits
        from regard.evaluation.probe import probe_squares
        from regard.explain.probe import draw_probe

        sources = game_splits(self.settings.data)
        with console.progress(0, "linear classifiers"):
            taught, scored = (
                self._boards(sources[split].read(), most, seed)
                for seed, (split, most) in enumerate((("train", train), ("test", test)))
            )
            result = probe_squares(*taught, *scored, self.hardware.device)
        title = f"The board, read from each layer of {self.folder.path.name}"
        picture = self.drawn(output or self.folder.plots / "probe.png", lambda path: draw_probe(result, path, title))
        return result | {"picture": picture}

    def _boards(self, games: Games, most: int, seed: int) -> tuple[list[NDArray[np.float32]], NDArray[np.int64]]:
        """What each layer makes of one position of each of some games, [N, D]; and its squares, [N, S].

        A square is 0, empty; 1, of who moves; or 2, of the other. Games and positions are drawn at random.
        """
        import numpy as np

        from regard.data.game_batches import in_order
        from regard.evaluation.probe import layer_features

        generator = np.random.default_rng([self.settings.seed, seed])
        numbers = np.sort(generator.permutation(len(games))[:most])
        ends_N = np.array([min(len(games.moves(number)), self._length) for number in numbers])
        at_N = (generator.random(len(numbers)) * ends_N).astype(np.int64)
        squares_NS = np.array(
            [_squares(self.game.replay(games.moves(number)[:at])[-1]) for number, at in zip(numbers, at_N, strict=True)]
        )
        read = 0  # games

        def passes() -> Iterator[Tensor]:
            nonlocal read
            for batch in in_order(games.words.take(numbers), self._rows, self._length):
                with self.hardware.autocast():
                    yield self.model.trunk(batch.to(self.hardware.device).tokens_BT)
                read += len(batch.labels)

        def at_position(output_BTD: Tensor) -> Tensor:
            rows = np.arange(len(output_BTD))
            return output_BTD[rows, at_N[read : read + len(rows)]]

        return layer_features(self.model.trunk.layers, passes(), at_position), squares_NS


def _squares(position: Position) -> list[int]:
    return [0 if side is None else 1 if side == position.side else 2 for side in position.board]
