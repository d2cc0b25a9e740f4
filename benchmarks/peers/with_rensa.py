"""rensa: its batch signatures of token sets, and its deduplicator with bands."""

import re
from importlib.metadata import version

from contest import BANDS, PERMUTATIONS, THRESHOLD, contest, word_shingles
from rensa import RMinHash, RMinHashDeduplicator

HOW = (
    "\\w+ 5-grams; R-MinHash; a document is dropped when one that is kept agrees with it in a band "
    "and the signatures agree in 70 %"
)

given = contest()
texts = given.texts()
words = re.compile(r"\w+")


def dedupe() -> list[int]:
    with given.stage("shingle"):
        shingles = [word_shingles(words.findall(text)) for text in texts]
    with given.stage("sign"):
        signatures = RMinHash.from_token_sets(shingles, num_perm=PERMUTATIONS, seed=42)
    with given.stage("band and decide"):
        index = RMinHashDeduplicator(THRESHOLD, PERMUTATIONS, True, BANDS)
        kept = index.add_pairs((str(i), signature) for i, signature in enumerate(signatures))
    return [number for number, keep in enumerate(kept) if not keep]


given.measure(dedupe, {"rensa": version("rensa")}, HOW)
