"""The sample corpus: hand-written sentences for every rule of the grammar, and what the corpus promises."""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice

import pytest

from regard.data.samples import grammar, lexicon
from regard.data.samples.english_german import Corpus, corpus, main, pairs, sentences
from regard.data.samples.grammar import (
    BARE,
    HER,
    HIS,
    MY,
    OUR,
    THE,
    THEIR,
    THIS,
    THREE,
    TWO,
    A,
    Clause,
    Determiner,
    NounPhrase,
    PrepositionalPhrase,
    Who,
)
from regard.data.samples.lexicon import BE, CAN, HE, MAY, MUST, SHE, THEY, WANT, WAS, WE, WILL, WOULD_LIKE, I

NOUNS = {noun.english: noun for noun in lexicon.NOUNS}
ADJECTIVES = {adjective.english: adjective for adjective in lexicon.ADJECTIVES}
ADVERBS = {adverb.english: adverb for adverb in lexicon.ADVERBS}
VERBS = {verb.german if not verb.prefix else verb.prefix + verb.german: verb for verb in lexicon.VERBS}
KNOW_THAT = lexicon.SAYING_VERBS[0]


def np(determiner: Determiner, noun: str, adjective: str = "", plural: bool = False) -> NounPhrase:
    return NounPhrase(NOUNS[noun], determiner, ADJECTIVES[adjective] if adjective else None, plural)


def pp(preposition: lexicon.Preposition, phrase: grammar.Phrase) -> PrepositionalPhrase:
    return PrepositionalPhrase(preposition, phrase)


# --- Noun phrases: gender, case, number, and the tables of endings ---------------------------------------

THE_DOG, THE_CAT, THE_HORSE = np(THE, "dog", "small"), np(THE, "cat", "small"), np(THE, "horse", "small")
A_DOG, A_CAT, A_HORSE = np(A, "dog", "small"), np(A, "cat", "small"), np(A, "horse", "small")

PHRASES = [
    # The weak adjective, after the definite article.
    (THE_DOG, "the small dog", "der kleine Hund", "den kleinen Hund", "dem kleinen Hund"),
    (THE_CAT, "the small cat", "die kleine Katze", "die kleine Katze", "der kleinen Katze"),
    (THE_HORSE, "the small horse", "das kleine Pferd", "das kleine Pferd", "dem kleinen Pferd"),
    (np(THE, "dog", "small", True), "the small dogs", "die kleinen Hunde", "die kleinen Hunde",
     "den kleinen Hunden"),
    (np(THIS, "book", "old"), "this old book", "dieses alte Buch", "dieses alte Buch", "diesem alten Buch"),
    (np(THIS, "man"), "this man", "dieser Mann", "diesen Mann", "diesem Mann"),
    (np(THIS, "woman", "young", True), "these young women", "diese jungen Frauen", "diese jungen Frauen",
     "diesen jungen Frauen"),
    # The mixed adjective, after ein-words.
    (A_DOG, "a small dog", "ein kleiner Hund", "einen kleinen Hund", "einem kleinen Hund"),
    (A_CAT, "a small cat", "eine kleine Katze", "eine kleine Katze", "einer kleinen Katze"),
    (A_HORSE, "a small horse", "ein kleines Pferd", "ein kleines Pferd", "einem kleinen Pferd"),
    (np(OUR, "child", "clever"), "our clever child", "unser kluges Kind", "unser kluges Kind",
     "unserem klugen Kind"),
    (np(MY, "daughter", "sick", True), "my sick daughters", "meine kranken Töchter", "meine kranken Töchter",
     "meinen kranken Töchtern"),
    (np(THEIR, "aunt"), "their aunt", "ihre Tante", "ihre Tante", "ihrer Tante"),
    # The strong adjective, with nothing before it, or a number.
    (np(BARE, "tea", "cold"), "cold tea", "kalter Tee", "kalten Tee", "kaltem Tee"),
    (np(BARE, "milk", "cold"), "cold milk", "kalte Milch", "kalte Milch", "kalter Milch"),
    (np(BARE, "water", "cold"), "cold water", "kaltes Wasser", "kaltes Wasser", "kaltem Wasser"),
    (np(BARE, "apple", "fresh", True), "fresh apples", "frische Äpfel", "frische Äpfel", "frischen Äpfeln"),
    (np(TWO, "house", "new", True), "two new houses", "zwei neue Häuser", "zwei neue Häuser",
     "zwei neuen Häusern"),
    # Weak nouns, an adjective that ends in -e, dative plurals with and without a new -n; a and an.
    (np(THE, "boy"), "the boy", "der Junge", "den Jungen", "dem Jungen"),
    (np(A, "student", "tired"), "a tired student", "ein müder Student", "einen müden Studenten",
     "einem müden Studenten"),
    (np(HIS, "farmer"), "his farmer", "sein Bauer", "seinen Bauern", "seinem Bauern"),
    (np(THE, "child", "", True), "the children", "die Kinder", "die Kinder", "den Kindern"),
    (np(THREE, "car", "", True), "three cars", "drei Autos", "drei Autos", "drei Autos"),
    (np(HER, "girl", "", True), "her girls", "ihre Mädchen", "ihre Mädchen", "ihren Mädchen"),
    (np(A, "apple"), "an apple", "ein Apfel", "einen Apfel", "einem Apfel"),
    (np(A, "man", "old"), "an old man", "ein alter Mann", "einen alten Mann", "einem alten Mann"),
]  # fmt: skip


@pytest.mark.parametrize(("phrase", "english", "nominative", "accusative", "dative"), PHRASES)
def test_noun_phrases_decline(phrase, english, nominative, accusative, dative):
    assert phrase.english("nominative") == english
    assert phrase.german("nominative") == nominative
    assert phrase.german("accusative") == accusative
    assert phrase.german("dative") == dative


CONTRACTED = [
    (pp(lexicon.IN, np(THE, "garden", "small")), "in the small garden", "im kleinen Garten"),
    (pp(lexicon.INTO, np(THE, "garden")), "into the garden", "in den Garten"),
    (pp(lexicon.INTO, np(THE, "village")), "into the village", "ins Dorf"),
    (pp(lexicon.IN, np(THE, "kitchen")), "in the kitchen", "in der Küche"),
    (pp(lexicon.IN, np(A, "house")), "in a house", "in einem Haus"),
    (pp(lexicon.TO, np(THE, "station", "new")), "to the new station", "zum neuen Bahnhof"),
    (pp(lexicon.TO, np(THE, "school")), "to the school", "zur Schule"),
    (pp(lexicon.TO, np(OUR, "school")), "to our school", "zu unserer Schule"),
    (pp(lexicon.TO, np(THE, "child", plural=True)), "to the children", "zu den Kindern"),
    (pp(lexicon.FROM, np(THE, "market")), "from the market", "vom Markt"),
    (pp(lexicon.OUT_OF, np(THE, "forest")), "out of the forest", "aus dem Wald"),
    (pp(lexicon.WITHOUT, np(HIS, "brother")), "without his brother", "ohne seinen Bruder"),
    (pp(lexicon.WITH, THEY), "with them", "mit ihnen"),
]


@pytest.mark.parametrize(("phrase", "english", "german"), CONTRACTED)
def test_prepositions_govern_a_case_and_contract(phrase, english, german):
    assert (phrase.english(), phrase.german()) == (english, german)


# --- Sentences -------------------------------------------------------------------------------------------


def say(subject, verb: str = "", **rest) -> tuple[str, str]:
    return grammar.simple_sentence(clause(subject, verb, **rest))


def clause(subject, verb: str = "", adverb: str = "", **rest) -> Clause:
    return Clause(subject, VERBS[verb] if verb else None, adverb=ADVERBS[adverb] if adverb else None, **rest)


THE_MAN, THE_WOMAN, THE_CHILD = np(THE, "man"), np(THE, "woman"), np(THE, "child")
THE_DOOR, THE_BOY, A_BOOK = np(THE, "door"), np(THE, "boy"), np(A, "book")
A_CHILD = np(A, "child")
AN_APPLE, THE_APPLE, APPLES = np(A, "apple"), np(THE, "apple"), np(BARE, "apple", plural=True)
GARDEN = pp(lexicon.IN, np(THE, "garden"))

SENTENCES = [
    # The verb comes second.
    (say(THE_DOG, "sehen", object=np(A, "cat")), "The small dog sees a cat.",
     "Der kleine Hund sieht eine Katze."),
    (say(THE_DOG, "sehen", object=np(A, "cat"), adverb="today", spot="front"),
     "Today the small dog sees a cat.", "Heute sieht der kleine Hund eine Katze."),
    (say(THE_MAN, "lesen", object=A_BOOK, adverb="every day"), "The man reads a book every day.",
     "Der Mann liest jeden Tag ein Buch."),
    (say(THE_MAN, "sehen", object=SHE, adverb="often", spot="middle"), "The man often sees her.",
     "Der Mann sieht sie oft."),
    # Stems that change, and stems in -t, -d, -n.
    (say(SHE, "schlafen"), "She sleeps.", "Sie schläft."),
    (say(HE, "fahren", additions=(pp(lexicon.TO, np(THE, "station")),)), "He drives to the station.",
     "Er fährt zum Bahnhof."),
    (say(SHE, "tragen", object=np(THE, "suitcase", "heavy")), "She carries the heavy suitcase.",
     "Sie trägt den schweren Koffer."),
    (say(HE, "arbeiten"), "He works.", "Er arbeitet."),
    (say(SHE, "finden", object=np(THE, "key")), "She finds the key.", "Sie findet den Schlüssel."),
    (say(I, "zeichnen", object=A_HORSE), "I draw a small horse.", "Ich zeichne ein kleines Pferd."),
    (say(HE, "essen", object=APPLES), "He eats apples.", "Er isst Äpfel."),
    (say(np(THE, "mouse", plural=True), "fressen", object=np(BARE, "bread")), "The mice eat bread.",
     "Die Mäuse fressen Brot."),
    # Separable verbs, alone, with a modal, in the perfect.
    (say(THE_WOMAN, "aufmachen", object=THE_DOOR), "The woman opens the door.",
     "Die Frau macht die Tür auf."),
    (say(THE_WOMAN, "aufmachen", object=THE_DOOR, helper=MUST), "The woman must open the door.",
     "Die Frau muss die Tür aufmachen."),
    (say(I, "zumachen", object=THE_DOOR, past=True), "I closed the door.", "Ich habe die Tür zugemacht."),
    (say(SHE, "einladen", object=np(MY, "friend", plural=True)), "She invites my friends.",
     "Sie lädt meine Freunde ein."),
    (say(WE, "abholen", object=HE), "We pick him up.", "Wir holen ihn ab."),
    (say(WE, "abholen", object=THE_BOY), "We pick up the boy.", "Wir holen den Jungen ab."),
    (say(I, "zurückkommen", additions=(pp(lexicon.FROM, np(THE, "market")),), adverb="today"),
     "I come back from the market today.", "Ich komme heute vom Markt zurück."),
    # Modals and the future.
    (say(I, "anrufen", object=THE_WOMAN, helper=WANT), "I want to call the woman.",
     "Ich will die Frau anrufen."),
    (say(THEY, "lesen", object=A_BOOK, helper=CAN), "They can read a book.", "Sie können ein Buch lesen."),
    (say(I, "schlafen", helper=WOULD_LIKE, adverb="now", spot="front"), "Now I would like to sleep.",
     "Jetzt möchte ich schlafen."),
    (say(THE_CHILD, "spielen", helper=MAY, additions=(pp(lexicon.WITH, THE_DOG), GARDEN)),
     "The child is allowed to play with the small dog in the garden.",
     "Das Kind darf im Garten mit dem kleinen Hund spielen."),
    (say(HE, "kaufen", object=np(THE, "car"), helper=WILL, adverb="tomorrow", spot="front"),
     "Tomorrow he will buy the car.", "Morgen wird er das Auto kaufen."),
    # The perfect, with haben and with sein; "war" for "was".
    (say(THE_BOY, "kaufen", object=A_BOOK, past=True, adverb="yesterday", spot="front"),
     "Yesterday the boy bought a book.", "Gestern hat der Junge ein Buch gekauft."),
    (say(I, "gehen", past=True,
         additions=(pp(lexicon.INTO, np(THE, "forest")), pp(lexicon.WITH, np(MY, "son")))),
     "I went into the forest with my son.", "Ich bin mit meinem Sohn in den Wald gegangen."),
    (say(WE, "aufstehen", past=True), "We got up.", "Wir sind aufgestanden."),
    (say(WE, helper=WAS, past=True, predicate=ADJECTIVES["tired"]), "We were tired.", "Wir waren müde."),
    # Dative verbs; two objects.
    (say(I, "helfen", receiver=THE_MAN), "I help the man.", "Ich helfe dem Mann."),
    (say(THE_WOMAN, "danken", receiver=np(THE, "child", plural=True)), "The woman thanks the children.",
     "Die Frau dankt den Kindern."),
    (say(THE_DOG, "folgen", receiver=THE_BOY, past=True), "The small dog followed the boy.",
     "Der kleine Hund ist dem Jungen gefolgt."),
    (say(np(THIS, "bag"), "gehören", receiver=SHE), "This bag belongs to her.", "Diese Tasche gehört ihr."),
    (say(THE_MAN, "geben", receiver=THE_CHILD, object=AN_APPLE, adverb="today"),
     "The man gives the child an apple today.", "Der Mann gibt dem Kind heute einen Apfel."),
    (say(THE_MAN, "helfen", receiver=A_CHILD, adverb="today"), "The man helps a child today.",
     "Der Mann hilft heute einem Kind."),
    (say(SHE, "zeigen", receiver=WE, object=np(HER, "dog")), "She shows us her dog.",
     "Sie zeigt uns ihren Hund."),
    # Verbs with a preposition, and with a link word in English only.
    (say(HE, "warten", additions=(pp(lexicon.WAITING_FOR, np(THE, "train")),)), "He waits for the train.",
     "Er wartet auf den Zug."),
    (say(WE, "suchen", object=THE_CHILD), "We look for the child.", "Wir suchen das Kind."),
    # Kein and nicht.
    (say(HE, "kaufen", object=AN_APPLE, negated=True), "He does not buy an apple.", "Er kauft keinen Apfel."),
    (say(WE, "kaufen", object=APPLES, negated=True), "We do not buy apples.", "Wir kaufen keine Äpfel."),
    (say(HE, "trinken", object=np(BARE, "milk"), negated=True), "He does not drink milk.",
     "Er trinkt keine Milch."),
    (say(HE, "sehen", object=THE_DOG, negated=True, adverb="today"), "He does not see the small dog today.",
     "Er sieht den kleinen Hund heute nicht."),
    (say(SHE, "aufmachen", object=THE_DOOR, negated=True), "She does not open the door.",
     "Sie macht die Tür nicht auf."),
    (say(SHE, "aufmachen", object=THE_DOOR, negated=True, helper=CAN), "She cannot open the door.",
     "Sie kann die Tür nicht aufmachen."),
    (say(I, "schlafen", negated=True, past=True, additions=(GARDEN,)), "I did not sleep in the garden.",
     "Ich habe nicht im Garten geschlafen."),
    (say(I, helper=BE, predicate=ADJECTIVES["hungry"], negated=True, adverb="today"),
     "I am not hungry today.", "Ich bin heute nicht hungrig."),
    (say(lexicon.THIS_HERE, helper=BE, predicate=np(A, "hat", "red"), negated=True),
     "This is not a red hat.", "Das ist kein roter Hut."),
    (say(lexicon.THESE_HERE, helper=BE, predicate=np(BARE, "egg", "fresh", True)), "These are fresh eggs.",
     "Das sind frische Eier."),
    # Clauses join.
    (grammar.complex_sentence(
        clause(I, "lachen"), lexicon.BECAUSE, clause(SHE, "aufmachen", object=THE_DOOR)),
     "I laugh because she opens the door.", "Ich lache, weil sie die Tür aufmacht."),
    (grammar.complex_sentence(
        clause(HE, "zumachen", object=THE_DOOR), lexicon.ALTHOUGH,
        clause(WE, helper=BE, predicate=ADJECTIVES["tired"])),
     "He closes the door, although we are tired.", "Er macht die Tür zu, obwohl wir müde sind."),
    (grammar.complex_sentence(
        Clause(I, KNOW_THAT), lexicon.THAT,
        clause(THE_BOY, "aufmachen", object=np(THE, "window"), past=True, adverb="yesterday")),
     "I know that the boy opened the window yesterday.",
     "Ich weiß, dass der Junge gestern das Fenster aufgemacht hat."),
    (grammar.complex_sentence(
        Clause(THEY, KNOW_THAT), lexicon.THAT, clause(HE, "abholen", object=SHE, helper=WANT)),
     "They know that he wants to pick her up.", "Sie wissen, dass er sie abholen will."),
    (grammar.fronted_sentence(clause(THE_CHILD, "schlafen"), lexicon.WHEN, clause(THE_MAN, "arbeiten")),
     "When the man works, the child sleeps.", "Wenn der Mann arbeitet, schläft das Kind."),
    (grammar.fronted_sentence(
        clause(I, "einladen", object=HE, helper=WILL), lexicon.IF, clause(HE, "zurückkommen")),
     "If he comes back, I will invite him.", "Wenn er zurückkommt, werde ich ihn einladen."),
    (grammar.relative_sentence(
        clause(I, "helfen", receiver=THE_BOY), clause(Who(THE_BOY), "suchen", object=THE_DOG)),
     "I help the boy who looks for the small dog.", "Ich helfe dem Jungen, der den kleinen Hund sucht."),
    (grammar.relative_sentence(
        clause(I, "kennen", object=A_CHILD), clause(Who(A_CHILD), "aufstehen", past=True)),
     "I know a child who got up.", "Ich kenne ein Kind, das aufgestanden ist."),
    (grammar.opposed_sentence(clause(HE, "singen"), clause(THE_CHILD, "schlafen")),
     "He sings, but the child sleeps.", "Er singt, aber das Kind schläft."),
]  # fmt: skip


@pytest.mark.parametrize(("pair", "english", "german"), SENTENCES, ids=[gold[1] for gold in SENTENCES])
def test_sentences_are_written_correctly(pair, english, german):
    assert pair == (english, german)


def test_must_has_no_negation():
    with pytest.raises(ValueError, match="must"):
        say(HE, "schlafen", helper=MUST, negated=True)


# --- The corpus ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def default_corpus() -> Corpus:
    return corpus()


def forms(some_pairs, side: int) -> Counter[str]:
    return Counter(form for pair in some_pairs for form in re.findall(r"\w+", pair[side]))


def test_corpus_is_the_same_every_time(default_corpus):
    assert pairs(300, seed=1) == default_corpus.train[:300]
    assert pairs(300, seed=1) != pairs(300, seed=2)


def test_the_first_pairs_are_pinned():
    """A change here is a change of everybody's corpus: trained models and reported scores go with it."""
    assert pairs(3) == [
        ("She would like to close new doors tomorrow.", "Sie möchte morgen neue Türen zumachen."),
        (
            "When two girls visit a child, I play with her.",
            "Wenn zwei Mädchen ein Kind besuchen, spiele ich mit ihr.",
        ),
        ("A girl will answer the friends today.", "Ein Mädchen wird den Freunden heute antworten."),
    ]


def test_corpus_has_the_sizes_asked_for(default_corpus):
    assert (len(default_corpus.train), len(default_corpus.valid), len(default_corpus.test)) == (
        31_000,
        1_000,
        1_000,
    )
    small = corpus(seed=3, train=20, valid=0, test=5)
    assert (len(small.train), len(small.valid), len(small.test)) == (20, 0, 5)


@pytest.mark.parametrize("side", [0, 1], ids=["english", "german"])
def test_no_sentence_comes_twice(default_corpus, side):
    everything = default_corpus.train + default_corpus.valid + default_corpus.test
    assert len({pair[side] for pair in everything}) == len(everything) == 33_000


@pytest.mark.parametrize("side", [0, 1], ids=["english", "german"])
def test_training_pairs_teach_every_form(default_corpus, side):
    known = forms(default_corpus.train, side)
    assert 250 <= len(known) <= 550
    assert min(known.values()) >= 40
    assert set(forms(default_corpus.valid + default_corpus.test, side)) <= set(known)


def test_sentences_look_like_sentences(default_corpus):
    for pair in default_corpus.train:
        for text in pair:
            assert re.fullmatch(r"[A-ZÄÖÜ][A-Za-zÄÖÜäöüß]*(,? [A-Za-zÄÖÜäöüß]+){2,14}\.", text), text


def test_one_english_sentence_has_one_translation():
    translations: dict[str, str] = {}
    for english, german in islice(sentences(seed=7), 30_000):
        assert translations.setdefault(english, german) == german


def test_a_past_that_looks_like_the_present_is_left_out(default_corpus):
    ambiguous = [german for english, german in default_corpus.train if re.match(r"(I|We|They) read\b", english)]
    assert ambiguous
    assert not any("gelesen" in german for german in ambiguous)


def test_main_prints_tab_separated_pairs(capsys):
    main(["--count", "4", "--seed", "5"])
    lines = capsys.readouterr().out.splitlines()
    assert [tuple(line.split("\t")) for line in lines] == pairs(4, seed=5)
