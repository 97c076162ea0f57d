"""Somebody who has a lot to say: chooses words that make sense together, for the grammar to write out."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeVar

from regard.data.samples import lexicon as words
from regard.data.samples.grammar import (
    BARE,
    POSSESSIVES,
    THE,
    THIS,
    THREE,
    TWO,
    A,
    Clause,
    Conjunction,
    Determiner,
    NounPhrase,
    Pair,
    Phrase,
    PrepositionalPhrase,
    Who,
    complex_sentence,
    fronted_sentence,
    opposed_sentence,
    relative_sentence,
    simple_sentence,
)
from regard.data.samples.lexicon import Adjective, Noun, Pronoun, Verb

Time = Literal["present", "past", "future", "modal"]

# Verbs are repeated where they would have rare forms: in subordinate clauses separable verbs have forms
# of their own (aufmache, aufmacht), and only verbs of position have things as subjects.
MAIN_VERBS = [
    verb
    for verb in words.VERBS
    for _ in range(12 if verb in words.POSITION_VERBS else 3 if verb.prefix or not verb.english_past else 2)
]
SUBORDINATE_VERBS = [verb for verb in words.VERBS for _ in range(3 if verb.prefix else 1)]
SUBJECT_PRONOUNS = [(words.I, 4), (words.HE, 1), (words.SHE, 1), (words.WE, 1), (words.THEY, 1)]

# Kinds of nouns that may become pronouns.
PEOPLE = "person host dear"

# What one can point at: "this is a red apple".
SHOWABLE = "animal food drink readable sketch openable furniture container vehicle building town"

Item = TypeVar("Item")


@functools.cache
def nouns_of(kinds: str) -> tuple[Noun, ...]:
    return tuple(noun for noun in words.NOUNS if shares_kind(noun.kinds, kinds))


@functools.cache
def adjectives_of(noun: Noun) -> tuple[tuple[Adjective, int], ...]:
    """The adjectives that fit, with weights: the fewer nouns an adjective fits, the dearer it is to them."""
    fitting = [adjective for adjective in words.ADJECTIVES if shares_kind(adjective.kinds, noun.kinds)]
    return tuple((adjective, 1000 // (10 + len(nouns_of(adjective.kinds)))) for adjective in fitting)


@functools.cache
def determiners_of(noun: Noun, plural: bool, definite: bool, bare: bool) -> tuple[tuple[Determiner, int], ...]:
    """What may stand before the noun, with weights; only the definite, or not the bare noun, if so asked."""
    familiar, free, mass, person = (shares_kind(noun.kinds, label) for label in ("familiar", "free", "mass", "person"))
    options = [(THE, 4)]
    if not familiar:
        options.append((THIS, 1))
    if not free:
        options += [(possessive, 1) for possessive in POSSESSIVES]
    if not definite:
        if bare and (mass or (plural and not person)):
            options.append((BARE, 4))
        if plural:
            options += [(TWO, 1), (THREE, 1)]
        elif not mass and not familiar:
            options.append((A, 4))
    return tuple(options)


@functools.cache
def shares_kind(one: str, other: str) -> bool:
    return not set(one.split()).isdisjoint(other.split())


class Speaker:
    """Says one sentence, in which it avoids using a noun twice."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.used: list[Noun] = []

    # --- Choosing ------------------------------------------------------------------------------------
    # Only rng.random() and whole weights are used, so that every Python makes the same choices.

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, items: Sequence[Item]) -> Item:
        return items[int(self.rng.random() * len(items))]

    def weigh(self, options: Sequence[tuple[Item, int]]) -> Item:
        total = 0
        for _, weight in options:
            total += weight
        point = self.rng.random() * total
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
                (self.description, 7),
                (self.presentation, 8),
                (self.reason, 12),
                (self.condition, 9),
                (self.report, 11),
                (self.relation, 6),
                (self.contrast, 4),
            ]
        )
        return make()

    def statement(self) -> Pair:
        return simple_sentence(self.timed(self.action(self.time(), adjectives=0.45)))

    def description(self) -> Pair:
        return simple_sentence(self.timed(self.state(past=self.chance(0.3))))

    def presentation(self) -> Pair:
        """This is a red apple."""
        phrase = self.noun_phrase(SHOWABLE, adjectives=0.9, determiners=(THE, A, A, BARE, *POSSESSIVES))
        return simple_sentence(self.presenting(phrase, negated=self.chance(0.2)))

    def reason(self) -> Pair:
        conjunction = self.pick((words.BECAUSE, words.ALTHOUGH))
        time = self.time()
        main = self.action(time, adjectives=0.15, lasting=False)
        # What explains the past is past, too; all else is explained by the present.
        subordinate = self.simple_clause("past" if time == "past" else "present")
        if self.chance(0.3):
            return fronted_sentence(main, conjunction, subordinate)
        return complex_sentence(main, conjunction, self.timed(subordinate, front=False, probability=0.15))

    def condition(self) -> Pair:
        options: list[tuple[Conjunction, Time]] = [
            (words.WHEN, "present"),
            (words.WHILE, "present"),
            (words.IF, "future"),
            (words.IF, "modal"),
        ]
        conjunction, time = self.pick(options)
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
            helped = verb.receivers != ""
            main = Clause(
                self.subject(verb),
                verb,
                receiver=person if helped else None,
                object=None if helped else person,
            )
        relative = self.action(self.time(), subject=Who(person), verbs=SUBORDINATE_VERBS)
        return relative_sentence(main, relative)

    def contrast(self) -> Pair:
        time = self.time()
        return opposed_sentence(self.action(time, adjectives=0.15), self.simple_clause(time))

    # --- Clauses -------------------------------------------------------------------------------------

    def time(self) -> Time:
        return self.weigh([("present", 46), ("past", 26), ("future", 8), ("modal", 20)])

    def simple_clause(self, time: Time, lasting: bool = True) -> Clause:
        """What a subordinate clause says: short, and often how somebody is."""
        if time in ("present", "past") and self.chance(0.15):
            return self.state(past=time == "past", lasting=lasting)
        return self.action(time, adjectives=0.1, lasting=lasting, verbs=SUBORDINATE_VERBS)

    def action(
        self,
        time: Time,
        subject: Who | None = None,
        adjectives: float = 0.0,
        lasting: bool = True,
        verbs: Sequence[Verb] = MAIN_VERBS,
    ) -> Clause:
        verb = self.verb(verbs, time, lasting, subject)
        negated = self.chance(0.13)
        chosen = subject or self.subject(verb, adjectives, negated)
        if time == "past" and verb.english_past == verb.english and chosen.agreement != words.THIRD:
            # "They read" could be now or then, and would have two translations: say something else.
            return self.action(time, subject, adjectives, lasting, verbs)
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
            additions=tuple(self.addition(slot, chosen, adjectives / 2, negated) for slot in slots),
            negated=negated,
        )

    def verb(self, verbs: Sequence[Verb], time: Time, lasting: bool, subject: Who | None) -> Verb:
        """A verb that fits; those without a past are for what lasts, and come in the present only."""
        while True:
            verb = self.pick(verbs)
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
            receiver = self.companion(verb.receivers, subject, "dative", adjectives / 2, definite, bare=False)
        if verb.objects:
            # "I show her letters" could be letters of hers.
            target = self.companion(verb.objects, subject, "accusative", adjectives, bare=receiver is None)
        return receiver, target

    def helper(self, time: Time) -> words.Helper | None:
        if time == "modal":
            return self.pick(words.MODALS)
        return words.WILL if time == "future" else None

    def state(self, past: bool, lasting: bool = True) -> Clause:
        """The cat is tired."""
        subject: Phrase
        if self.chance(0.35):
            subject, fitting = self.weigh(SUBJECT_PRONOUNS), adjectives_of(words.NOUNS[0])
        else:
            subject = self.noun_phrase(f"person {SHOWABLE}" if lasting else "person animal", definite=True)
            fitting = adjectives_of(subject.noun)
        predicate = self.weigh([(one, weight) for one, weight in fitting if lasting or one.passing])
        helper = words.WAS if past else words.BE
        return Clause(subject, helper=helper, predicate=predicate, past=past, negated=self.chance(0.2))

    def presenting(self, phrase: NounPhrase, negated: bool = False) -> Clause:
        subject = words.THESE_HERE if phrase.plural else words.THIS_HERE
        return Clause(subject, helper=words.BE, predicate=phrase, negated=negated)

    def timed(self, clause: Clause, front: bool = True, probability: float = 0.45) -> Clause:
        """The clause, perhaps with an adverb of time."""
        if isinstance(clause.predicate, Adjective):
            lasting = not clause.predicate.passing
        else:
            lasting = clause.verb is None or not clause.verb.english_past
        if lasting or not self.chance(probability):
            return clause
        time = "past" if clause.past else "present" if clause.verb else "being"
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
            if self.chance(0.45):
                return self.weigh(SUBJECT_PRONOUNS)
            return self.noun_phrase(verb.subjects, adjectives, definite, bare=False)
        if verb.english == "belong":  # "my car belongs to him" would be odd
            return self.noun_phrase(verb.subjects, adjectives, determiners=(THE, THE, THIS))
        return self.noun_phrase(verb.subjects, min(1.0, 2.5 * adjectives), definite, bare=False)

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
        if shares_kind(kinds, PEOPLE) and self.chance(0.35):
            return self.pick([pronoun for pronoun in words.PRONOUNS if not overlaps(subject, pronoun, case)])
        return self.noun_phrase(kinds, adjectives, definite, bare)

    def addition(self, slot: str, subject: Phrase, adjectives: float, definite: bool) -> PrepositionalPhrase:
        preposition, kinds = self.pick(words.SLOTS[slot])
        if shares_kind(kinds, f"{PEOPLE} pet") and preposition != words.TO:  # "he goes to us" is odd
            phrase = self.companion(kinds, subject, preposition.case, adjectives, definite)
        else:  # one is in one place at a time, and mostly a known one
            definite = definite or self.chance(0.5)
            phrase = self.noun_phrase(kinds, adjectives, definite, singular=True)
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
        options: Sequence[tuple[Determiner, int]] = determiners_of(noun, plural, definite, bare)
        if determiners:
            options = [(one, determiners.count(one)) for one, _ in options]
        determiner = self.weigh(options)
        fitting = adjectives_of(noun)
        adjective = self.weigh(fitting) if fitting and self.chance(adjectives) else None
        return NounPhrase(noun, determiner, adjective, plural)


def overlaps(subject: Phrase, other: Pronoun, case: words.Case) -> bool:
    """Whether "other" would be the subject again (I see me), or sound so (sie sieht sie)."""
    if not isinstance(subject, Pronoun):
        return False
    speakers = (words.I, words.WE)
    return (subject in speakers and other in speakers) or subject.nominative == other.german(case)
