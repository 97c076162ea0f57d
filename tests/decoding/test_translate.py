"""Translating with a trained model: batching, caching and order change nothing."""

import pytest
import torch

from regard.data.pairs import pair_splits
from regard.data.tokenizers import END, PAD, START


@pytest.fixture(scope="module")
def sentences(trained) -> list[str]:
    return [source for source, _ in pair_splits(trained.settings.data)["test"]][:64]


@pytest.mark.parametrize("beam", [1, 4])
def test_a_batch_of_64_gives_the_same_as_one_at_a_time(trained, sentences, beam):
    together = trained.translator(beam=beam).translate(sentences)
    alone = [trained.translator(beam=beam).translate([sentence])[0] for sentence in sentences]
    for batched, single in zip(together, alone, strict=True):
        assert [h.text for h in batched] == [h.text for h in single]
        assert [h.score for h in batched] == pytest.approx([h.score for h in single], abs=1e-4)


def test_cached_decoding_equals_decoding_without_a_cache(trained, sentences):
    """Greedy, where every next token comes from a whole pass over the prefix."""
    translator = trained.translator(beam=1)
    for sentence in sentences[:10]:
        source = torch.tensor([translator.encode(sentence)])
        prefix = [START]
        while prefix[-1] != END and len(prefix) < 40:
            target = torch.tensor([prefix])
            places = torch.arange(64)[None]
            with torch.inference_mode():
                logits = trained.model(
                    source,
                    torch.ones_like(source),
                    places[:, : source.shape[1]],
                    target,
                    torch.ones_like(target),
                    places[:, : target.shape[1]],
                )[0, -1]
                logits[[PAD, START]] = -torch.inf
            prefix.append(int(logits.argmax()))
        assert translator.translate([sentence])[0][0].tokens == prefix[1:-1]


def test_a_beam_never_finds_a_less_likely_best_than_greedy_on_the_whole(trained, sentences):
    greedy = sum(found[0].score for found in trained.translator(beam=1).translate(sentences))
    assert sum(found[0].score for found in trained.translator(beam=5).translate(sentences)) >= greedy


def test_a_forced_prefix_is_kept_as_text(trained, sentences):
    for text in trained.translate(sentences[:8], prefixes=["Heute"] * 8, beam=3):
        assert text.startswith("Heute")


def test_sampling_depends_on_seed_and_row_but_not_on_the_batch(trained, sentences):
    def draw(rows, seed=1, first=0):
        found = trained.translator(temperature=1.0).translate(rows, seed=seed, first_row=first)
        return [hypotheses[0].text for hypotheses in found]

    whole = draw(sentences)
    assert draw(sentences) == whole
    assert draw(sentences, seed=2) != whole
    assert draw(sentences[:20]) + draw(sentences[20:], first=20) == whole
    same = draw([sentences[0]] * 20)
    assert len(set(same)) > 1


def test_sampling_from_the_likeliest_token_alone_is_greedy(trained, sentences):
    sampled = trained.translate(sentences[:20], temperature=1.0, top_k=1)
    assert sampled == trained.translate(sentences[:20], beam=1)


def test_an_empty_list_and_strange_sentences_are_translated_without_complaint(trained):
    assert trained.translate([]) == []
    assert len(trained.translate(["", "🙂 <end> \t", "a " * 300])) == 3


def test_the_trained_model_is_good(trained):
    scores = {score.name: score.value for score in trained.evaluate(beam=1).scores}
    assert scores["bleu"] > 45
