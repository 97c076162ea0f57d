"""The words of the sample corpus: English and German side by side, as in a learner's dictionary.

Every word says what it may be combined with through its *kinds*, short labels such as "person" or
"openable": a verb that wants a "readable" object meets books and letters and never a dog. Few English words
have two translations here (know, eat, come, for), and then the words around them tell which: a German
sentence follows from its English sentence without guessing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Case = Literal["nominative", "accusative", "dative"]
Gender = Literal["m", "f", "n"]

# Where verbs and pronouns differ: "I" (0), "he, she, a noun" (1), "we, they, nouns" (2).
# Verb forms are written as triples in this order. There is no "you": German has three words for it.
FIRST, THIRD, PLURAL = 0, 1, 2
Triple = tuple[str, str, str]


@dataclass(frozen=True, eq=False)  # a word equals only itself, not another that looks the same
class Noun:
    english: str
    english_plural: str  # empty for what is not counted (milk), or needs no plural here (station)
    german: str
    gender: Gender
    german_plural: str
    kinds: str  # labels separated by spaces
    weak: bool = False  # der Junge, but den Jungen and dem Jungen


@dataclass(frozen=True, eq=False)
class Adjective:
    english: str
    german: str
    kinds: str  # kinds of nouns it may describe
    passing: bool = False  # a state that comes and goes: "today he is tired", but not "today he is old"


@dataclass(frozen=True, eq=False)
class Verb:
    english: str
    english_third: str
    english_past: str  # empty where the corpus has no past: states such as "know"
    german: str  # infinitive, without the separable prefix
    german_third: str
    participle: str  # without the separable prefix
    subjects: str  # kinds of subjects
    objects: str = ""  # kinds of accusative objects
    receivers: str = ""  # kinds of dative objects
    needs: str = ""  # the kind of prepositional phrase it cannot do without (a key of SLOTS)
    takes: tuple[str, ...] = ()  # the kinds it may have besides
    prefix: str = ""  # separable: er macht die Tür auf
    english_link: str = ""  # stays in front of the object: look FOR the dog
    english_particle: str = ""  # steps behind a pronoun: pick UP the child, pick him UP
    moves: bool = False  # perfect with "sein": er ist gelaufen
    german_first: str = ""  # only where it is not stem + e: ich weiß


@dataclass(frozen=True, eq=False)
class Helper:
    """A verb that carries the person, while the main verb is an infinitive, or absent (to be)."""

    english: Triple
    english_negative: Triple | None  # None: "must not" is not "muss nicht", so it is left out
    german: Triple


@dataclass(frozen=True, eq=False)
class Pronoun:
    subject: str
    object: str
    nominative: str
    accusative: str
    dative: str
    agreement: int

    def english(self, case: Case) -> str:
        return self.subject if case == "nominative" else self.object

    def german(self, case: Case) -> str:
        return {"nominative": self.nominative, "accusative": self.accusative, "dative": self.dative}[case]


@dataclass(frozen=True, eq=False)
class Preposition:
    english: str
    german: str
    case: Case


@dataclass(frozen=True, eq=False)
class Adverb:
    english: str
    german: str
    tenses: str  # present, past, future, modal; and being, for "he is tired"
    spots: str  # where it may stand in English: front, middle, end
    negatable: bool = False  # goes well with "not"


# --- Nouns ---------------------------------------------------------------------------------------

# Three labels are about articles: the "familiar" is not new to anybody (my aunt, but not an aunt),
# the "free" is nobody's own (not my forest; and my woman, meine Frau, would be my wife), and a "mass"
# does without an article (cold milk).
NOUNS = (
    Noun("man", "men", "Mann", "m", "Männer", "person adult free"),
    Noun("woman", "women", "Frau", "f", "Frauen", "person adult free"),
    Noun("child", "children", "Kind", "n", "Kinder", "person young"),
    Noun("boy", "boys", "Junge", "m", "Jungen", "person lad free", weak=True),
    Noun("girl", "girls", "Mädchen", "n", "Mädchen", "person young free"),
    Noun("teacher", "teachers", "Lehrer", "m", "Lehrer", "person host adult"),
    Noun("student", "students", "Student", "m", "Studenten", "person adult", weak=True),
    Noun("doctor", "doctors", "Arzt", "m", "Ärzte", "person host adult"),
    Noun("farmer", "farmers", "Bauer", "m", "Bauern", "person host adult free", weak=True),
    Noun("friend", "friends", "Freund", "m", "Freunde", "person host dear adult"),
    Noun("brother", "brothers", "Bruder", "m", "Brüder", "person host dear familiar"),
    Noun("sister", "sisters", "Schwester", "f", "Schwestern", "person host dear familiar"),
    Noun("daughter", "daughters", "Tochter", "f", "Töchter", "person host dear familiar"),
    Noun("son", "sons", "Sohn", "m", "Söhne", "person host dear familiar"),
    Noun("aunt", "aunts", "Tante", "f", "Tanten", "person host dear adult familiar"),
    #
    Noun("dog", "dogs", "Hund", "m", "Hunde", "animal runner pet"),
    Noun("cat", "cats", "Katze", "f", "Katzen", "animal runner pet"),
    Noun("horse", "horses", "Pferd", "n", "Pferde", "animal runner pet"),
    Noun("bird", "birds", "Vogel", "m", "Vögel", "animal"),
    Noun("mouse", "mice", "Maus", "f", "Mäuse", "animal runner"),
    Noun("pig", "pigs", "Schwein", "n", "Schweine", "animal runner"),
    #
    Noun("apple", "apples", "Apfel", "m", "Äpfel", "food feed piece portable"),
    Noun("egg", "eggs", "Ei", "n", "Eier", "food piece portable"),
    Noun("cake", "cakes", "Kuchen", "m", "Kuchen", "food piece portable"),
    Noun("potato", "potatoes", "Kartoffel", "f", "Kartoffeln", "food feed piece portable"),
    Noun("bread", "", "Brot", "n", "", "food feed mass portable"),
    Noun("cheese", "", "Käse", "m", "", "food mass portable"),
    Noun("water", "", "Wasser", "n", "", "drink plain mass"),
    Noun("milk", "", "Milch", "f", "", "drink plain mass"),
    Noun("tea", "", "Tee", "m", "", "drink mass"),
    Noun("coffee", "", "Kaffee", "m", "", "drink mass"),
    #
    Noun("book", "books", "Buch", "n", "Bücher", "readable writing gift ware load portable"),
    Noun("letter", "letters", "Brief", "m", "Briefe", "readable writing gift portable"),
    Noun("newspaper", "newspapers", "Zeitung", "f", "Zeitungen", "readable gift ware portable"),
    Noun("picture", "pictures", "Bild", "n", "Bilder", "gift ware sketch portable"),
    Noun("flower", "flowers", "Blume", "f", "Blumen", "gift ware sketch colored portable"),
    Noun("key", "keys", "Schlüssel", "m", "Schlüssel", "gift portable"),
    Noun("hat", "hats", "Hut", "m", "Hüte", "gift ware colored portable"),
    Noun("door", "doors", "Tür", "f", "Türen", "openable repairable colored"),
    Noun("window", "windows", "Fenster", "n", "Fenster", "openable repairable"),
    Noun("suitcase", "suitcases", "Koffer", "m", "Koffer", "openable load container ware colored upright"),
    Noun("bag", "bags", "Tasche", "f", "Taschen", "openable load container ware colored portable"),
    Noun("table", "tables", "Tisch", "m", "Tische", "furniture load repairable ware colored upright"),
    Noun("chair", "chairs", "Stuhl", "m", "Stühle", "furniture load repairable ware colored upright"),
    Noun("car", "cars", "Auto", "n", "Autos", "vehicle repairable ware colored"),
    Noun("bicycle", "bicycles", "Fahrrad", "n", "Fahrräder", "vehicle repairable ware colored"),
    Noun("train", "", "Zug", "m", "", "awaited free"),
    #
    Noun("house", "houses", "Haus", "n", "Häuser", "enterable landmark tidyable sketch building"),
    Noun("garden", "", "Garten", "m", "", "enterable ground"),
    Noun("kitchen", "", "Küche", "f", "", "enterable tidyable indoors familiar"),
    Noun("room", "rooms", "Zimmer", "n", "Zimmer", "enterable tidyable indoors"),
    Noun("school", "", "Schule", "f", "", "landmark destination building"),
    Noun("forest", "", "Wald", "m", "", "enterable ground free"),
    Noun("city", "", "Stadt", "f", "", "town free"),
    Noun("village", "", "Dorf", "n", "", "town"),
    Noun("station", "", "Bahnhof", "m", "", "landmark destination building familiar free"),
    Noun("market", "", "Markt", "m", "", "destination familiar free"),
)

# --- Adjectives ----------------------------------------------------------------------------------

ADJECTIVES = (
    Adjective("young", "jung", "adult dear young animal"),  # not "die jungen Jungen"
    Adjective("old", "alt", "adult animal readable furniture vehicle building town openable"),
    Adjective("happy", "glücklich", "person pet", passing=True),
    Adjective("clever", "klug", "person pet"),
    Adjective("tired", "müde", "person animal", passing=True),
    Adjective("hungry", "hungrig", "person animal", passing=True),
    Adjective("sick", "krank", "person animal", passing=True),
    Adjective("small", "klein", "animal piece furniture openable vehicle building indoors ground town gift"),
    Adjective("big", "groß", "animal piece furniture openable vehicle building indoors ground town"),
    Adjective("black", "schwarz", "animal colored"),
    Adjective("red", "rot", "colored building"),
    Adjective("new", "neu", "readable furniture vehicle building openable"),
    Adjective("beautiful", "schön", "sketch pet colored ground town building"),
    Adjective("heavy", "schwer", "load"),
    Adjective("fresh", "frisch", "food"),
    Adjective("cold", "kalt", "drink"),
    Adjective("good", "gut", "food drink readable"),
)

# --- Pronouns ------------------------------------------------------------------------------------

I = Pronoun("I", "me", "ich", "mich", "mir", FIRST)  # noqa: E741 (it is the English word)
HE = Pronoun("he", "him", "er", "ihn", "ihm", THIRD)
SHE = Pronoun("she", "her", "sie", "sie", "ihr", THIRD)
WE = Pronoun("we", "us", "wir", "uns", "uns", PLURAL)
THEY = Pronoun("they", "them", "sie", "sie", "ihnen", PLURAL)
PRONOUNS = (I, HE, SHE, WE, THEY)

# "This is a dog", "These are dogs": German says "das" for both, and only the verb shows the number.
THIS_HERE = Pronoun("this", "this", "das", "das", "dem", THIRD)
THESE_HERE = Pronoun("these", "these", "das", "das", "denen", PLURAL)

# --- Prepositions --------------------------------------------------------------------------------

IN = Preposition("in", "in", "dative")
INTO = Preposition("into", "in", "accusative")  # the same word: the case tells place from direction
ON = Preposition("on", "auf", "dative")
UNDER = Preposition("under", "unter", "dative")
BEHIND = Preposition("behind", "hinter", "dative")
IN_FRONT_OF = Preposition("in front of", "vor", "dative")
TO = Preposition("to", "zu", "dative")
FROM = Preposition("from", "von", "dative")
OUT_OF = Preposition("out of", "aus", "dative")
WITH = Preposition("with", "mit", "dative")
WITHOUT = Preposition("without", "ohne", "accusative")
FOR = Preposition("for", "für", "accusative")
WAITING_FOR = Preposition("for", "auf", "accusative")  # warten auf

# The prepositional phrases a verb may have: a name, and the prepositions with their kinds of nouns.
SLOTS: dict[str, tuple[tuple[Preposition, str], ...]] = {
    "place": ((IN, "enterable town building"), (BEHIND, "landmark"), (IN_FRONT_OF, "landmark")),
    "goal": ((INTO, "enterable"), (TO, "destination"), (TO, "host")),
    "ride": ((INTO, "town"), (TO, "destination"), (TO, "host")),
    "source": ((FROM, "destination"), (OUT_OF, "enterable")),
    "exit": ((OUT_OF, "enterable"),),
    "return": ((FROM, "destination"),),
    "surface": ((ON, "furniture"), (UNDER, "furniture"), (IN, "container indoors")),
    "parking": ((BEHIND, "landmark"), (IN_FRONT_OF, "landmark")),
    "indoors": ((IN, "indoors"),),
    "tabletop": ((ON, "furniture"),),
    "company": ((WITH, "person"), (WITH, "pet"), (WITHOUT, "person pet")),
    "partner": ((WITH, "person"),),
    "playmate": ((WITH, "dear young lad"), (WITH, "pet")),
    "benefit": ((FOR, "person"),),
    "awaited": ((WAITING_FOR, "person"), (WAITING_FOR, "awaited")),
}

# --- Verbs ---------------------------------------------------------------------------------------

SEE = Verb("see", "sees", "saw", "sehen", "sieht", "gesehen", "person animal", "person animal vehicle")
KNOW = Verb("know", "knows", "", "kennen", "kennt", "", "person", "person town")
VISIT = Verb("visit", "visits", "visited", "besuchen", "besucht", "besucht", "person", "person town")
HELP = Verb("help", "helps", "helped", "helfen", "hilft", "geholfen", "person", receivers="person pet")
THANK = Verb("thank", "thanks", "thanked", "danken", "dankt", "gedankt", "person", receivers="person")
DRINK = Verb("drink", "drinks", "drank", "trinken", "trinkt", "getrunken", "person", "drink")
RUN = Verb("run", "runs", "ran", "laufen", "läuft", "gelaufen", "person runner", needs="goal", moves=True)
STAND = Verb("stand", "stands", "", "stehen", "steht", "", "person", needs="parking")

TRANSITIVE = (
    SEE,
    Verb("love", "loves", "", "lieben", "liebt", "", "person", "dear pet"),
    KNOW,
    Verb("eat", "eats", "ate", "essen", "isst", "gegessen", "person", "food", takes=("place",)),
    Verb("eat", "eats", "ate", "fressen", "frisst", "gefressen", "animal", "feed"),  # animals do not "essen"
    DRINK,
    replace(DRINK, subjects="animal", objects="plain"),
    Verb("read", "reads", "read", "lesen", "liest", "gelesen", "person", "readable", takes=("place",)),
    Verb("write", "writes", "wrote", "schreiben", "schreibt", "geschrieben", "person", "writing",
         takes=("benefit",)),
    Verb("buy", "buys", "bought", "kaufen", "kauft", "gekauft", "person", "ware food drink",
         takes=("benefit",)),
    Verb("find", "finds", "found", "finden", "findet", "gefunden", "person", "gift pet", takes=("place",)),
    Verb("look", "looks", "looked", "suchen", "sucht", "gesucht", "person", "person pet gift",
         english_link="for"),
    Verb("carry", "carries", "carried", "tragen", "trägt", "getragen", "person", "load", takes=("benefit",)),
    Verb("draw", "draws", "drew", "zeichnen", "zeichnet", "gezeichnet", "person", "sketch animal",
         takes=("benefit",)),
    Verb("repair", "repairs", "repaired", "reparieren", "repariert", "repariert", "person", "repairable",
         takes=("benefit",)),
    VISIT,
)  # fmt: skip

SEPARABLE = (
    Verb("open", "opens", "opened", "machen", "macht", "gemacht", "person", "openable", prefix="auf"),
    Verb("close", "closes", "closed", "machen", "macht", "gemacht", "person", "openable", prefix="zu"),
    Verb("tidy", "tidies", "tidied", "räumen", "räumt", "geräumt", "person", "tidyable", prefix="auf"),
    Verb("call", "calls", "called", "rufen", "ruft", "gerufen", "person", "person", prefix="an"),
    Verb("invite", "invites", "invited", "laden", "lädt", "geladen", "person", "person", prefix="ein"),
    Verb("pick", "picks", "picked", "holen", "holt", "geholt", "person", "host", prefix="ab",
         english_particle="up"),
    Verb("get", "gets", "got", "stehen", "steht", "gestanden", "person", prefix="auf", moves=True,
         english_particle="up"),
    Verb("come", "comes", "came", "kommen", "kommt", "gekommen", "person", prefix="zurück", moves=True,
         takes=("return",), english_particle="back"),
)  # fmt: skip

DATIVE_VERBS = (
    HELP,
    THANK,
    Verb("follow", "follows", "followed", "folgen", "folgt", "gefolgt", "person animal",
         receivers="person pet", moves=True),
    Verb("answer", "answers", "answered", "antworten", "antwortet", "geantwortet", "person",
         receivers="person"),
    Verb("belong", "belongs", "", "gehören", "gehört", "", "vehicle gift furniture pet", receivers="person",
         english_link="to"),
)  # fmt: skip

GIVING_VERBS = (
    Verb("give", "gives", "gave", "geben", "gibt", "gegeben", "person", "gift food", "person"),
    Verb("show", "shows", "showed", "zeigen", "zeigt", "gezeigt", "person", "gift vehicle pet", "person"),
    Verb("bring", "brings", "brought", "bringen", "bringt", "gebracht", "person", "gift food drink",
         "person"),
    Verb("send", "sends", "sent", "schicken", "schickt", "geschickt", "person", "gift", "person"),
)  # fmt: skip

INTRANSITIVE = (
    Verb("sleep", "sleeps", "slept", "schlafen", "schläft", "geschlafen", "person animal", takes=("place",)),
    Verb("work", "works", "worked", "arbeiten", "arbeitet", "gearbeitet", "person",
         takes=("place", "benefit")),
    Verb("play", "plays", "played", "spielen", "spielt", "gespielt", "person", needs="playmate",
         takes=("place",)),
    Verb("laugh", "laughs", "laughed", "lachen", "lacht", "gelacht", "person", takes=("indoors",)),
    Verb("sing", "sings", "sang", "singen", "singt", "gesungen", "person", takes=("place", "benefit")),
    Verb("wait", "waits", "waited", "warten", "wartet", "gewartet", "person", needs="awaited",
         takes=("place",)),
    Verb("speak", "speaks", "spoke", "sprechen", "spricht", "gesprochen", "person", needs="partner",
         takes=("place",)),
    Verb("go", "goes", "went", "gehen", "geht", "gegangen", "person", needs="goal", takes=("company",),
         moves=True),
    Verb("come", "comes", "came", "kommen", "kommt", "gekommen", "person", needs="source",
         takes=("company",), moves=True),
    Verb("drive", "drives", "drove", "fahren", "fährt", "gefahren", "person", needs="ride",
         takes=("company",), moves=True),
    RUN,
    replace(RUN, needs="exit"),
    STAND,
)  # fmt: skip

# Where things are: the only verbs here whose subjects do nothing.
POSITION_VERBS = (
    Verb("lie", "lies", "", "liegen", "liegt", "", "portable", needs="surface"),
    replace(STAND, subjects="vehicle"),
    replace(STAND, subjects="upright", needs="indoors"),
    replace(STAND, subjects="drink", needs="tabletop"),
)

VERBS = TRANSITIVE + SEPARABLE + DATIVE_VERBS + GIVING_VERBS + INTRANSITIVE + POSITION_VERBS

# Verbs followed by a "that" clause. English "know" is "kennen" for people but "wissen" for facts.
SAYING_VERBS = (
    Verb("know", "knows", "", "wissen", "weiß", "", "person", german_first="weiß"),
    Verb("believe", "believes", "", "glauben", "glaubt", "", "person"),
    Verb("say", "says", "", "sagen", "sagt", "", "person"),
    Verb("hope", "hopes", "", "hoffen", "hofft", "", "person"),
)

# Verbs whose person is worth a relative clause: "I know the man who ..."
POINTING_VERBS = (SEE, KNOW, VISIT, HELP, THANK)

# --- Helpers -------------------------------------------------------------------------------------

BE = Helper(("am", "is", "are"), ("am not", "is not", "are not"), ("bin", "ist", "sind"))
WAS = Helper(("was", "was", "were"), ("was not", "was not", "were not"), ("war", "war", "waren"))
WILL = Helper(("will",) * 3, ("will not",) * 3, ("werde", "wird", "werden"))
CAN = Helper(("can",) * 3, ("cannot",) * 3, ("kann", "kann", "können"))
MUST = Helper(("must",) * 3, None, ("muss", "muss", "müssen"))
WANT = Helper(
    ("want to", "wants to", "want to"),
    ("do not want to", "does not want to", "do not want to"),
    ("will", "will", "wollen"),
)
WOULD_LIKE = Helper(("would like to",) * 3, ("would not like to",) * 3, ("möchte", "möchte", "möchten"))
MAY = Helper(
    ("am allowed to", "is allowed to", "are allowed to"),
    ("am not allowed to", "is not allowed to", "are not allowed to"),
    ("darf", "darf", "dürfen"),
)
MODALS = (CAN, MUST, WANT, WOULD_LIKE, MAY)

# The helpers of the German perfect, which translates the English past: he saw, er hat gesehen.
HABEN: Triple = ("habe", "hat", "haben")
SEIN: Triple = BE.german

# --- Adverbs of time -----------------------------------------------------------------------------

ADVERBS = (
    Adverb("today", "heute", "present being past future modal", "front end", negatable=True),
    Adverb("yesterday", "gestern", "past", "front end", negatable=True),
    Adverb("tomorrow", "morgen", "future modal", "front end", negatable=True),
    Adverb("every day", "jeden Tag", "present", "front end"),
    Adverb("in the evening", "am Abend", "present being past future modal", "front end"),
    Adverb("last week", "letzte Woche", "past", "front end", negatable=True),
    Adverb("often", "oft", "present being past", "middle"),
    Adverb("sometimes", "manchmal", "present being", "front middle"),
    Adverb("now", "jetzt", "modal", "front"),
    Adverb("soon", "bald", "future", "front end"),
)

# --- Conjunctions: (English, German) ---------------------------------------------------------------

BECAUSE = ("because", "weil")
ALTHOUGH = ("although", "obwohl")
WHEN = ("when", "wenn")
IF = ("if", "wenn")
WHILE = ("while", "während")
THAT = ("that", "dass")
