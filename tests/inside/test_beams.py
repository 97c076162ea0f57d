"""The tree of a beam search, compared with a naive search over full forward passes."""

import json

import pytest
import torch

from regard.data.pairs import pair_splits
from regard.data.tokenizers import END, PAD, START
from regard.decoding.hypothesis import Request
from regard.errors import UsageError
from regard.inside.beams import beam_tree, tree_of


@pytest.fixture(scope="module")
def sentences(trained) -> list[str]:
    return [source for source, _ in pair_splits(trained.settings.data)["test"]][:5]


def next_words(model, source: list[int], written: list[int]) -> list[float]:
    """Log-probabilities of every next word."""
    device = next(model.parameters()).device
    source_1S, target_1T = (torch.tensor([ids], device=device) for ids in (source, [START, *written]))
    sides = [(x, torch.ones_like(x), torch.arange(x.shape[1], device=device)[None]) for x in (source_1S, target_1T)]
    with torch.no_grad():
        return model(*sides[0], *sides[1])[0, -1].log_softmax(-1).tolist()


def by_hand(model, source: list[int], beam: int, alpha: float, limit: int):
    """All hypotheses that were kept, and all that ended, each with its log-probability."""
    beginnings, lengthened, ended = [([], 0.0)], [], []
    while True:
        considered = []
        for tokens, so_far in beginnings:
            for word, log_p in enumerate(next_words(model, source, tokens)):
                if word not in (PAD, START):
                    considered.append(([*tokens, word], so_far + log_p))
        considered.sort(key=lambda each: -each[1])
        ended += [each for each in considered[:beam] if each[0][-1] == END]
        beginnings = [each for each in considered[: 2 * beam] if each[0][-1] != END][:beam]
        lengthened += beginnings
        if len(beginnings[0][0]) == limit:
            ended += beginnings[: beam - len(ended)]
        if len(ended) >= beam or len(beginnings[0][0]) == limit:
            scored = [(log_p / ((5 + len(tokens)) / 6) ** alpha, tokens) for tokens, log_p in ended]
            return lengthened, sorted(scored, reverse=True)


@pytest.mark.parametrize(("beam", "limit"), [(1, 40), (3, 40), (3, 4)])
def test_the_tree_equals_a_naive_search(trained, sentences, beam, limit):
    """With a limit of 4 tokens, what is still open then ends as it is."""
    if trained.hardware.device.type == "cuda":
        pytest.skip("a GPU searches in bfloat16, whose scores differ in the third digit")
    translator = trained.translator(beam=beam)
    for sentence in sentences:
        source = translator.encode(sentence)
        lengthened, ended = by_hand(trained.model, source, beam, translator.settings.length_penalty, limit)
        tree = tree_of(translator._search.record(Request(0, source, START, limit)))

        def tokens(node, tree=tree):
            return tuple(each.token for each in tree.path(node.id))

        kept_nodes = {tokens(node): node.total for node in tree.nodes[1:] if node.fate == "kept"}
        kept_nodes |= {tokens(node): node.total for node in tree.ended if node.token != END}
        assert kept_nodes == pytest.approx({tuple(words): log_p for words, log_p in lengthened}, abs=1e-3)
        assert [tokens(node) for node in tree.ended] == [tuple(words) for _, words in ended]
        assert [node.score for node in tree.ended] == pytest.approx([score for score, _ in ended], abs=1e-3)


@pytest.mark.parametrize("beam", [1, 4])
def test_the_winner_is_what_the_run_writes(trained, sentences, beam):
    for sentence in sentences:
        tree = beam_tree(trained, sentence, beam=beam)
        assert [tree.text] == trained.translate(sentence, beam=beam)
        winner = tree.nodes[tree.winner]
        [written] = trained.translator(beam=beam).translate([sentence], best=1)[0]
        assert winner.fate == "winner"
        assert winner.score == pytest.approx(written.score, abs=1e-6)
        assert [node.token for node in tree.path(winner.id)] == [*written.tokens, END]
        assert {node.id for node in tree.nodes if node.on_path} == {0, *(node.id for node in tree.path(winner.id))}


def test_every_beam_has_as_many_candidates_as_were_considered(trained, sentences):
    tree = beam_tree(trained, sentences[0], beam=3)
    for parent in tree.nodes:
        children = [node for node in tree.nodes if node.parent == parent.id]
        assert len(children) in ((6,) if parent.id == 0 else (0, 6))
        assert len(children) == 0 or parent.fate == "kept"
        assert all(node.log_p <= 0 and node.total <= parent.total for node in children)
    assert all(node.parent < node.id and node.step == tree.nodes[node.parent].step + 1 for node in tree.nodes[1:])


def test_the_tree_as_json(trained, sentences):
    tree = beam_tree(trained, sentences[0], beam=2)
    content = json.loads(json.dumps(tree.to_json()))
    assert content["nodes"][content["winner"]]["fate"] == "winner"
    assert content["nodes"][0] == {
        "id": 0,
        "parent": None,
        "step": 0,
        "token": START,
        "word": "<start>",
        "log_p": 0.0,
        "total": 0.0,
        "fate": "kept",
        "score": None,
        "on_path": True,
    }


def test_models_without_beam_search_are_refused(trained, language):
    with pytest.raises(UsageError, match="no beam search"):
        beam_tree(language, "A text")
    with pytest.raises(UsageError, match="keeps no beams"):
        beam_tree(trained, "A text", temperature=0.5)
    with pytest.raises(UsageError, match="text is blank"):
        beam_tree(trained, "  ")
