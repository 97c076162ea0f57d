"""English sentences with their German translations, as many as you like, made from a small grammar.

A Speaker invents sentences: it picks words that make sense together and hands them to the grammar, which
writes them in both languages. The corpus is what `regard demo` learns to translate.

    python -m regard.data.samples.english_german --count 10
"""

from __future__ import annotations

import argparse
import functools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from regard.data.samples import lexicon as words
from regard.data.samples.grammar import (
    A,
    BARE,
    POSSESSIVES,
    THE,
    THIS,
    THREE,
    TWO,
    Clause,
    Determiner,
    NounPhrase,
    Pair,
    Phrase,
    PrepositionalPhrase,
    Who,
    complex_sentence,
    fronted_sentence,
    is_known,
    opposed_sentence,
    relative_sentence,
    simple_sentence,
)
from regard.data.samples.lexicon import Adjective, Noun, Pronoun, Verb

SHORTEST, LONGEST = 3, 15  # words in a sentence, in either language

# Verbs come more often where they would have rare forms: in subordinate clauses separable verbs have
# forms of their own (aufmache, aufmacht), and only verbs of position have things as subjects.
MAIN_VERBS = [
    (verb, 4.5 if verb in words.POSITION_VERBS else 1.5 if verb.prefix else 1.0) for verb in words.VERBS
]
SUBORDINATE_VERBS = [(verb, 3.0 if verb.prefix else 1.0) for verb in words.VERBS]
SUBJECT_PRONOUNS = [(words.I, 3.6), (words.HE, 1.0), (words.SHE, 1.0), (words.WE, 1.0), (words.THEY, 1.0)]

# What can be shown: "this is a red apple".
EVERYTHING = "animal food drink readable sketch openable furniture container vehicle building town"

Item = TypeVar("Item")


@dataclass(frozen=True)
class Corpus:
    """Pairs (English, German); no sentence of either language is in two of the three lists."""

    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]


def corpus(seed: int = 1, train: int = 31_000, valid: int = 1_000, test: int = 1_000) -> Corpus:
    everything = pairs(train + valid + test, seed)
    return Corpus(everything[:train], everything[train : train + valid], everything[train + valid :])


def pairs(count: int, seed: int = 1) -> list[Pair]:
    """`count` pairs in which no English and no German sentence comes twice."""
    found: list[Pair] = []
    seen_english: set[str] = set()
    seen_german: set[str] = set()
    for english, german in sentences(seed):
        if len(found) == count:
            break
        if english not in seen_english and german not in seen_german:
            seen_english.add(english)
            seen_german.add(german)
            found.append((english, german))
    return found


def sentences(seed: int = 1) -> Iterator[Pair]:
    """Endless pairs; the same ones may come again."""
    rng = random.Random(seed)
    while True:
        english, german = Speaker(rng).sentence()
        lengths = len(english.split()), len(german.split())
        if SHORTEST <= min(lengths) and max(lengths) <= LONGEST:
            yield english, german


@functools.cache
def nouns_of(kinds: str) -> tuple[Noun, ...]:
    return tuple(noun for noun in words.NOUNS if shares_kind(noun.kinds, kinds))


@functools.cache
def adjectives_of(noun: Noun) -> tuple[tuple[Adjective, float], ...]:
    """The adjectives that fit, with weights: the fewer nouns an adjective fits, the dearer it is to them."""
    fitting = [adjective for adjective in words.ADJECTIVES if shares_kind(adjective.kinds, noun.kinds)]
    return tuple((adjective, len(nouns_of(adjective.kinds)) ** -0.6) for adjective in fitting)


@functools.cache
def shares_kind(one: str, other: str) -> bool:
    return not set(one.split()).isdisjoint(other.split())


class Speaker:
    """Says one sentence, in which it avoids using a noun twice."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.used: list[Noun] = []

    # --- Choosing ------------------------------------------------------------------------------------
    # Only rng.random() is used: its sequence is the same in all versions of Python.

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, items: Sequence[Item]) -> Item:
        return items[int(self.rng.random() * len(items))]

    def weigh(self, options: Sequence[tuple[Item, float]]) -> Item:
        point = self.rng.random() * sum(weight for _, weight in options)
        for item, weight in options:
            point -= weight
            if point < 0:
                return item
        return options[-1][0]

    # --- Sentences -----------------------------------------------------------------------------------

    def sentence(self) -> Pair:
        make = self.weigh(
            [
                (self.statement, 43),
                (self.description, 8),
                (self.presentation, 7),
                (self.reason, 12),
                (self.condition, 9),
                (self.report, 11),
                (self.relation, 6),
                (self.contrast, 4),
            ]
        )
        return make()

    def statement(self) -> Pair:
        return simple_sentence(self.timed(self.action(self.time(), adjectives=0.4)))

    def description(self) -> Pair:
        return simple_sentence(self.timed(self.state(past=self.chance(0.3), adjectives=0.2)))

    def presentation(self) -> Pair:
        """This is a red apple."""
        phrase = self.noun_phrase(EVERYTHING, adjectives=0.9)
        return simple_sentence(self.presenting(phrase, negated=self.chance(0.2)))

    def reason(self) -> Pair:
        conjunction = self.pick((words.BECAUSE, words.ALTHOUGH))
        time = self.time()
        main = self.action(time, adjectives=0.15)
        # What explains the past is past, too; all else is explained by the present.
        subordinate = self.simple_clause("past" if time == "past" else "present")
        if self.chance(0.3):
            return fronted_sentence(main, conjunction, subordinate)
        return complex_sentence(main, conjunction, self.timed(subordinate, front=False, probability=0.15))

    def condition(self) -> Pair:
        conjunction, time = self.pick(
            ((words.WHEN, "present"), (words.WHILE, "present"), (words.IF, "future"), (words.IF, "modal"))
        )
        main = self.action(time, adjectives=0.15, lasting=False)
        join_clauses = fronted_sentence if self.chance(0.6) else complex_sentence
        return join_clauses(main, conjunction, self.simple_clause("present", lasting=False))

    def report(self) -> Pair:
        verb = self.pick(words.SAYING_VERBS)
        main = Clause(self.subject(verb), verb)
        subordinate = self.timed(self.simple_clause(self.time()), front=False, probability=0.2)
        return complex_sentence(main, words.THAT, subordinate)

    def relation(self) -> Pair:
        """I know the man who sings."""
        person = self.noun_phrase("person", determiners=(THE, A))
        if self.chance(0.3):
            main = self.presenting(person)
        else:
            verb = self.pick(words.POINTING_VERBS)
            role = "object" if verb.objects else "receiver"
            main = Clause(self.subject(verb), verb, **{role: person})
        relative = self.action(self.time(), subject=Who(person), verbs=SUBORDINATE_VERBS)
        return relative_sentence(main, relative)

    def contrast(self) -> Pair:
        time = self.time()
        return opposed_sentence(self.action(time, adjectives=0.15), self.simple_clause(time))

    # --- Clauses -------------------------------------------------------------------------------------

    def time(self) -> str:
        return self.weigh([("present", 46), ("past", 26), ("future", 8), ("modal", 20)])

    def simple_clause(self, time: str, lasting: bool = True) -> Clause:
        """What a subordinate clause says: short, and often how somebody is."""
        if time in ("present", "past") and self.chance(0.15):
            return self.state(past=time == "past", lasting=lasting)
        return self.action(time, adjectives=0.1, lasting=lasting, verbs=SUBORDINATE_VERBS)

    def action(
        self,
        time: str,
        subject: Who | None = None,
        adjectives: float = 0.0,
        lasting: bool = True,
        verbs: Sequence[tuple[Verb, float]] = MAIN_VERBS,
    ) -> Clause:
        verb = self.verb(verbs, time, lasting, subject)
        negated = self.chance(0.13)
        chosen = subject or self.subject(verb, adjectives, negated)
        if time == "past" and verb.english_past == verb.english and chosen.agreement != words.THIRD:
            time = "present"  # "they read" would have two translations
        helper = self.helper(time)
        if helper and helper.english_negative is None:
            negated = False
        receiver, target = self.objects(verb, chosen, adjectives, negated)
        if isinstance(target, NounPhrase) and target.determiner in (TWO, THREE):
            negated = False
        slots = [verb.needs] if verb.needs else []
        if verb.takes and self.chance(0.35) and not (negated and (slots or target)):
            slots.append(self.pick(verb.takes))
        return Clause(
            subject=chosen,
            verb=verb,
            helper=helper,
            past=time == "past",
            receiver=receiver,
            object=target,
            additions=tuple(self.addition(slot, chosen, adjectives / 2) for slot in slots),
            negated=negated,
        )

    def verb(self, verbs: Sequence[tuple[Verb, float]], time: str, lasting: bool, subject: Who | None) -> Verb:
        """A verb that fits; those without a past are for what lasts, and come in the present only."""
        while True:
            verb = self.weigh(verbs)
            if not verb.english_past and (time != "present" or not lasting):
                continue
            if subject is None or shares_kind(verb.subjects, "person"):
                return verb

    def objects(
        self, verb: Verb, subject: Phrase, adjectives: float, negated: bool
    ) -> tuple[Phrase | None, Phrase | None]:
        """The dative and the accusative object, where the verb has them."""
        receiver = target = None
        if verb.receivers:
            # "Dem Kind den Apfel", never "einem Kind den Apfel"; and "nicht" wants somebody known.
            definite = negated or bool(verb.objects)
            receiver = self.companion(verb.receivers, subject, "dative", adjectives / 2, definite=definite)
        if verb.objects:
            # "I show her letters" could be letters of hers.
            target = self.companion(verb.objects, subject, "accusative", adjectives, bare=receiver is None)
        return receiver, target

    def helper(self, time: str) -> words.Helper | None:
        if time == "modal":
            return self.pick(words.MODALS)
        return words.WILL if time == "future" else None

    def state(self, past: bool, lasting: bool = True, adjectives: float = 0.0) -> Clause:
        """The cat is tired."""
        subject: Phrase
        if self.chance(0.35):
            subject, known = self.weigh(SUBJECT_PRONOUNS), None
            fitting = adjectives_of(words.NOUNS[0])
        else:
            kinds = f"person {EVERYTHING}" if lasting else "person animal"
            subject = self.noun_phrase(kinds, adjectives, definite=True)
            known = subject.adjective
            fitting = adjectives_of(subject.noun)
        predicate = self.weigh(
            [(one, weight) for one, weight in fitting if one != known and (lasting or one.passing)]
        )
        helper = words.WAS if past else words.BE
        return Clause(subject, helper=helper, predicate=predicate, past=past, negated=self.chance(0.2))

    def presenting(self, phrase: NounPhrase, negated: bool = False) -> Clause:
        subject = words.THESE_HERE if phrase.plural else words.THIS_HERE
        negated = negated and phrase.determiner not in (TWO, THREE)
        return Clause(subject, helper=words.BE, predicate=phrase, negated=negated)

    def timed(self, clause: Clause, front: bool = True, probability: float = 0.45) -> Clause:
        """The clause, perhaps with an adverb of time."""
        if isinstance(clause.predicate, Adjective):
            lasting = not clause.predicate.passing
        else:
            lasting = clause.verb is None or not clause.verb.english_past
        if lasting or not self.chance(probability):
            return clause
        time = "past" if clause.past else "present"
        if clause.verb and clause.helper:
            time = "future" if clause.helper == words.WILL else "modal"
        options = [
            (adverb, spot)
            for adverb in words.ADVERBS
            if time in adverb.tenses and (adverb.negatable or not clause.negated)
            for spot in adverb.spots.split()
            if front or spot != "front"
        ]
        adverb, spot = self.pick(options)
        return replace(clause, adverb=adverb, spot=spot)

    # --- Phrases -------------------------------------------------------------------------------------

    def subject(self, verb: Verb, adjectives: float = 0.0, definite: bool = False) -> Phrase:
        if shares_kind(verb.subjects, "person"):
            if self.chance(0.42):
                return self.weigh(SUBJECT_PRONOUNS)
            return self.noun_phrase(verb.subjects, adjectives, definite, bare=False)
        if verb.english == "belong":  # "my car belongs to him" would be odd
            return self.noun_phrase(verb.subjects, adjectives, determiners=(THE, THE, THIS))
        return self.noun_phrase(verb.subjects, min(1.0, 2 * adjectives), definite, bare=False)

    def companion(
        self,
        kinds: str,
        subject: Phrase,
        case: words.Case,
        adjectives: float,
        definite: bool = False,
        bare: bool = True,
    ) -> Phrase:
        """Somebody or something besides the subject; people may be pronouns."""
        if shares_kind(kinds, "person") and self.chance(0.35):
            return self.pick([pronoun for pronoun in words.PRONOUNS if not overlaps(subject, pronoun, case)])
        return self.noun_phrase(kinds, adjectives, definite, bare)

    def addition(self, slot: str, subject: Phrase, adjectives: float) -> PrepositionalPhrase:
        preposition, kinds = self.pick(words.SLOTS[slot])
        if shares_kind(kinds, "person pet"):
            phrase = self.companion(kinds, subject, preposition.case, adjectives)
        else:  # one is in one place at a time
            phrase = self.noun_phrase(kinds, adjectives, singular=True)
        return PrepositionalPhrase(preposition, phrase)

    def noun_phrase(
        self,
        kinds: str,
        adjectives: float = 0.0,
        definite: bool = False,
        bare: bool = True,
        singular: bool = False,
        determiners: Sequence[Determiner] = (),
    ) -> NounPhrase:
        """A noun of one of the kinds. `adjectives` is the probability of an adjective."""
        noun = self.pick([noun for noun in nouns_of(kinds) if noun not in self.used] or nouns_of(kinds))
        self.used.append(noun)
        plural = bool(noun.english_plural) and not singular and self.chance(0.28)
        if determiners:
            determiner = self.pick([one for one in determiners if not (plural and one == A)])
        else:
            determiner = self.determiner(noun, plural, definite, bare)
        fitting = adjectives_of(noun)
        adjective = self.weigh(fitting) if fitting and self.chance(adjectives) else None
        return NounPhrase(noun, determiner, adjective, plural)

    def determiner(self, noun: Noun, plural: bool, definite: bool, bare: bool) -> Determiner:
        familiar, free = shares_kind(noun.kinds, "familiar"), shares_kind(noun.kinds, "free")
        mass = shares_kind(noun.kinds, "mass")
        options = [(THE, 4.0), (THIS, 0 if familiar else 1.2)]
        options += [(possessive, 0 if free else 1) for possessive in POSSESSIVES]
        if not definite:
            options.append((BARE, 4 if bare and (mass or plural and not familiar) else 0))
            options.append((A, 0 if mass or plural or familiar else 4))
            options += [(TWO, 1), (THREE, 1)] if plural else []
        return self.weigh(options)


def overlaps(subject: Phrase, other: Pronoun, case: words.Case) -> bool:
    """Whether "other" would be the subject again (I see me), or sound so (sie sieht sie)."""
    if not isinstance(subject, Pronoun):
        return False
    speakers = (words.I, words.WE)
    return (subject in speakers and other in speakers) or subject.nominative == other.german(case)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Print English sentences with their German translations.")
    parser.add_argument("--count", type=int, default=10, help="how many pairs (default: 10)")
    parser.add_argument("--seed", type=int, default=1, help="another seed, other sentences (default: 1)")
    options = parser.parse_args(arguments)
    for english, german in pairs(options.count, options.seed):
        print(f"{english}\t{german}")


if __name__ == "__main__":
    main()
