"""The grammar of the sample corpus: one description of a sentence, written out in English and in German.

Read it as a small grammar book. First the endings of articles and adjectives, then noun phrases,
then the verb, then the order of words in a clause, and last how clauses join into sentences.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeGuard

from regard.data.samples.lexicon import (
    BE,
    HABEN,
    PLURAL,
    SEIN,
    THIRD,
    WAS,
    Adjective,
    Adverb,
    Case,
    Helper,
    Noun,
    Preposition,
    Pronoun,
    Triple,
    Verb,
)

# --- Endings ---------------------------------------------------------------------------------------

Endings = dict[str, tuple[str, str, str, str]]  # case -> masculine, feminine, neuter, plural
COLUMNS = {"m": 0, "f": 1, "n": 2, "plural": 3}

# What follows the "d" of the definite article: der, die, das.
ARTICLE: Endings = {
    "nominative": ("er", "ie", "as", "ie"),
    "accusative": ("en", "ie", "as", "ie"),
    "dative": ("em", "er", "em", "en"),
}
# What follows ein, mein, sein, ihr, unser and kein.
EIN: Endings = {
    "nominative": ("", "e", "", "e"),
    "accusative": ("en", "e", "", "e"),
    "dative": ("em", "er", "em", "en"),
}
# What follows zwei, drei, and no article at all.
NOTHING: Endings = dict.fromkeys(ARTICLE, ("", "", "", ""))

# Adjectives after der and dieser, which already show gender and case: der kleine Hund.
WEAK: Endings = {
    "nominative": ("e", "e", "e", "en"),
    "accusative": ("en", "e", "e", "en"),
    "dative": ("en", "en", "en", "en"),
}
# Adjectives after ein-words, which leave some forms bare: ein kleiner Hund, ein kleines Kind.
MIXED: Endings = {
    "nominative": ("er", "e", "es", "en"),
    "accusative": ("en", "e", "es", "en"),
    "dative": ("en", "en", "en", "en"),
}
# Adjectives with nothing before them show everything themselves: kalter Tee, kleine Hunde.
# Dieser takes these endings, too.
STRONG: Endings = {
    "nominative": ("er", "e", "es", "e"),
    "accusative": ("en", "e", "es", "e"),
    "dative": ("em", "er", "em", "en"),
}


@dataclass(frozen=True, eq=False)
class Determiner:
    english: str
    english_plural: str
    german: str
    own: Endings  # the endings it takes itself
    adjective: Endings  # the endings it asks of an adjective
    definite: bool = True


THE = Determiner("the", "the", "d", ARTICLE, WEAK)
THIS = Determiner("this", "these", "dies", STRONG, WEAK)
A = Determiner("a", "", "ein", EIN, MIXED, definite=False)
NO = Determiner("a", "", "kein", EIN, MIXED, definite=False)  # only German has it: "not a" is "kein"
BARE = Determiner("", "", "", NOTHING, STRONG, definite=False)
TWO = Determiner("two", "two", "zwei", NOTHING, STRONG, definite=False)
THREE = Determiner("three", "three", "drei", NOTHING, STRONG, definite=False)
MY = Determiner("my", "my", "mein", EIN, MIXED)
HIS = Determiner("his", "his", "sein", EIN, MIXED)
HER = Determiner("her", "her", "ihr", EIN, MIXED)
OUR = Determiner("our", "our", "unser", EIN, MIXED)
THEIR = Determiner("their", "their", "ihr", EIN, MIXED)
POSSESSIVES = (MY, HIS, HER, OUR, THEIR)

# --- Noun phrases ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NounPhrase:
    noun: Noun
    determiner: Determiner = THE
    adjective: Adjective | None = None
    plural: bool = False

    @property
    def agreement(self) -> int:
        return PLURAL if self.plural else THIRD

    def english(self, case: Case) -> str:
        determiner = self.determiner.english_plural if self.plural else self.determiner.english
        noun = self.noun.english_plural if self.plural else self.noun.english
        rest = join(self.adjective.english if self.adjective else "", noun)
        if determiner == "a" and rest[0] in "aeiou":
            determiner = "an"
        return join(determiner, rest)

    def german(self, case: Case) -> str:
        column = COLUMNS["plural" if self.plural else self.noun.gender]
        article = self.determiner.german + self.determiner.own[case][column]
        ending = self.determiner.adjective[case][column]
        adjective = self.adjective.german.removesuffix("e") + ending if self.adjective else ""
        return join(article, adjective, german_noun(self.noun, case, self.plural))


def german_noun(noun: Noun, case: Case, plural: bool) -> str:
    if not plural:
        # A weak noun looks like its plural everywhere but in the nominative: den Jungen.
        return noun.german_plural if noun.weak and case != "nominative" else noun.german
    if case == "dative" and not noun.german_plural.endswith(("n", "s")):
        return noun.german_plural + "n"  # mit den Kindern
    return noun.german_plural


@dataclass(frozen=True)
class Who:
    """The relative pronoun as a subject; it looks like the definite article of the noun it stands for."""

    head: NounPhrase

    @property
    def agreement(self) -> int:
        return self.head.agreement

    def english(self, case: Case) -> str:
        return "who"

    def german(self, case: Case) -> str:
        return "d" + ARTICLE[case][COLUMNS["plural" if self.head.plural else self.head.noun.gender]]


Phrase = NounPhrase | Pronoun | Who


@dataclass(frozen=True)
class PrepositionalPhrase:
    preposition: Preposition
    phrase: Phrase

    def english(self) -> str:
        return join(self.preposition.english, self.phrase.english(self.preposition.case))

    def german(self) -> str:
        words = join(self.preposition.german, self.phrase.german(self.preposition.case)).split()
        contracted = CONTRACTIONS.get((words[0], words[1]))
        return join(contracted, *words[2:]) if contracted else join(*words)


CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("von", "dem"): "vom",
}

# --- Clauses -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clause:
    """Who does what to whom, when and where: everything that both languages need to know."""

    subject: Phrase
    verb: Verb | None = None  # None: "to be", whose forms are in the helper
    helper: Helper | None = None  # a modal, "will", or a form of "to be"
    past: bool = False
    receiver: Phrase | None = None  # in the dative
    object: Phrase | None = None  # in the accusative
    additions: tuple[PrepositionalPhrase, ...] = ()  # in the English order
    predicate: Adjective | NounPhrase | None = None  # what the subject is
    adverb: Adverb | None = None
    spot: str = "end"  # of the adverb in English: front, middle or end
    negated: bool = False

    @property
    def main_verb(self) -> Verb:
        if self.verb is None:
            raise ValueError('only "to be" does without a main verb')
        return self.verb


# English ---------------------------------------------------------------------------------------------


def english_clause(clause: Clause) -> str:
    adverb = {"front": "", "middle": "", "end": ""}
    if clause.adverb:
        adverb[clause.spot] = clause.adverb.english
    if clause.helper in (BE, WAS):  # he is OFTEN tired, but: he OFTEN sings
        verb = join(english_verb(clause), adverb["middle"])
    else:
        verb = join(adverb["middle"], english_verb(clause))
    return join(
        adverb["front"],
        clause.subject.english("nominative"),
        verb,
        english_objects(clause),
        english_predicate(clause.predicate),
        *(addition.english() for addition in clause.additions),
        adverb["end"],
    )


def english_verb(clause: Clause) -> str:
    agreement = clause.subject.agreement
    if clause.helper:
        forms = clause.helper.english_negative if clause.negated else clause.helper.english
        if forms is None:
            raise ValueError(f"{clause.helper.english[THIRD]!r} has no negative form here")
        return join(forms[agreement], clause.verb.english if clause.verb else "")
    if clause.negated:
        support = "did not" if clause.past else "does not" if agreement == THIRD else "do not"
        return join(support, clause.main_verb.english)
    if clause.past:
        return clause.main_verb.english_past
    return clause.main_verb.english_third if agreement == THIRD else clause.main_verb.english


def english_objects(clause: Clause) -> str:
    """The objects with the small words that belong to the verb."""
    if clause.verb is None:
        return ""
    receiver = clause.receiver.english("dative") if clause.receiver else ""
    target = clause.object.english("accusative") if clause.object else ""
    particle = clause.verb.english_particle
    if isinstance(clause.object, Pronoun):
        return join(clause.verb.english_link, receiver, target, particle)
    return join(particle, clause.verb.english_link, receiver, target)


def english_predicate(predicate: Adjective | NounPhrase | None) -> str:
    if isinstance(predicate, NounPhrase):
        return predicate.english("nominative")
    return predicate.english if predicate else ""


# German ----------------------------------------------------------------------------------------------


def german_verb(clause: Clause) -> tuple[str, str]:
    """The finite verb, and the part of the verb that closes the clause (er MACHT die Tür AUF)."""
    agreement = clause.subject.agreement
    if clause.helper:
        infinitive = clause.verb.prefix + clause.verb.german if clause.verb else ""
        return clause.helper.german[agreement], infinitive
    verb = clause.main_verb
    if clause.past:
        helper = SEIN if verb.moves else HABEN
        return helper[agreement], verb.prefix + verb.participle
    return present_tense(verb)[agreement], verb.prefix


def present_tense(verb: Verb) -> Triple:
    first = verb.german_first or verb.german.removesuffix("en") + "e"
    return first, verb.german_third, verb.german


def middle_field(clause: Clause) -> str:
    """All between the finite verb and the closing part, except the subject.

    What is known comes before the adverb of time, what is new comes after it. "Nicht" follows the objects,
    but precedes prepositional phrases and predicates. Prepositional phrases mirror the English order:
    mit meinem Bruder in den Wald, into the forest with my brother.
    """
    target, predicate, nicht = clause.object, clause.predicate, ""
    if clause.negated:
        if takes_kein(target):
            target = replace(target, determiner=NO)
        elif takes_kein(predicate):
            predicate = replace(predicate, determiner=NO)
        else:
            nicht = "nicht"
    dative = clause.receiver.german("dative") if clause.receiver else ""
    accusative = target.german("accusative") if target else ""
    adverb = clause.adverb.german if clause.adverb and clause.spot != "front" else ""
    if isinstance(target, Pronoun) or nicht:  # er sieht ihn heute, er sieht den Hund heute nicht
        objects = join(dative, accusative, adverb)
    elif clause.receiver and is_definite(clause.receiver):  # er gibt dem Kind heute den Ball
        objects = join(dative, adverb, accusative)
    else:  # er sieht heute den Hund, er hilft heute einem Kind
        objects = join(adverb, dative, accusative)
    additions = [addition.german() for addition in reversed(clause.additions)]
    return join(objects, nicht, *additions, german_predicate(predicate))


def is_definite(phrase: Phrase) -> bool:
    return not isinstance(phrase, NounPhrase) or phrase.determiner.definite


def takes_kein(phrase: Phrase | Adjective | None) -> TypeGuard[NounPhrase]:
    """Not a book, not books, not milk: kein Buch, keine Bücher, keine Milch."""
    return isinstance(phrase, NounPhrase) and phrase.determiner in (A, BARE)


def german_predicate(predicate: Adjective | NounPhrase | None) -> str:
    if isinstance(predicate, NounPhrase):
        return predicate.german("nominative")
    return predicate.german if predicate else ""


def german_main_clause(clause: Clause, front: str = "") -> str:
    """The finite verb comes second, whatever comes first: the subject, an adverb, or a whole clause."""
    finite, closing = german_verb(clause)
    subject = clause.subject.german("nominative")
    if clause.adverb and clause.spot == "front":
        front = clause.adverb.german
    if front:
        return join(front, finite, subject, middle_field(clause), closing)
    return join(subject, finite, middle_field(clause), closing)


def german_subordinate_clause(clause: Clause) -> str:
    """The finite verb comes last, and a separable prefix sticks to it: weil er die Tür aufmacht."""
    finite, closing = german_verb(clause)
    if clause.verb and closing == clause.verb.prefix:
        finite, closing = closing + finite, ""
    return join(clause.subject.german("nominative"), middle_field(clause), closing, finite)


# --- Sentences ---------------------------------------------------------------------------------------

Pair = tuple[str, str]  # English, German
Conjunction = tuple[str, str]  # English, German


def simple_sentence(clause: Clause) -> Pair:
    return finish(english_clause(clause)), finish(german_main_clause(clause))


def complex_sentence(main: Clause, conjunction: Conjunction, subordinate: Clause) -> Pair:
    """He sings because she laughs. Er singt, weil sie lacht."""
    comma = "," if conjunction[0] == "although" else ""
    english = join(english_clause(main) + comma, conjunction[0], english_clause(subordinate))
    german = join(german_main_clause(main) + ",", conjunction[1], german_subordinate_clause(subordinate))
    return finish(english), finish(german)


def fronted_sentence(main: Clause, conjunction: Conjunction, subordinate: Clause) -> Pair:
    """If she laughs, he sings. Wenn sie lacht, singt er."""
    english = join(conjunction[0], english_clause(subordinate) + ",", english_clause(main))
    front = join(conjunction[1], german_subordinate_clause(subordinate) + ",")
    return finish(english), finish(german_main_clause(main, front))


def relative_sentence(main: Clause, relative: Clause) -> Pair:
    """I know the man who sings. Ich kenne den Mann, der singt. (The subject of `relative` is a Who.)"""
    english = join(english_clause(main), english_clause(relative))
    german = join(german_main_clause(main) + ",", german_subordinate_clause(relative))
    return finish(english), finish(german)


def opposed_sentence(first: Clause, second: Clause) -> Pair:
    """He sings, but she sleeps. Er singt, aber sie schläft. ("Aber" changes no word order.)"""
    english = join(english_clause(first) + ",", "but", english_clause(second))
    german = join(german_main_clause(first) + ",", "aber", german_main_clause(second))
    return finish(english), finish(german)


def finish(words: str) -> str:
    return words[0].upper() + words[1:] + "."


def join(*words: str) -> str:
    return " ".join(filter(None, words))
