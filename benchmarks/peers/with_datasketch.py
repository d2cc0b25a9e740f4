"""datasketch: `MinHash` of each document, `MinHashLSH` of the documents that are kept."""

import re
from importlib.metadata import version

from contest import BANDS, PERMUTATIONS, ROWS, contest, word_shingles
from datasketch import MinHash, MinHashLSH

HOW = "\\w+ 5-grams; a document is dropped when one that is kept agrees with it in a band"

given = contest()
texts = given.texts()
words = re.compile(r"\w+")


def dedupe() -> list[int]:
    with given.stage("shingle and sign"):
        signatures = []
        for text in texts:
            signature = MinHash(num_perm=PERMUTATIONS)
            shingles = word_shingles(words.findall(text))
            signature.update_batch([shingle.encode() for shingle in shingles])
            signatures.append(signature)
    with given.stage("band and decide"):
        index = MinHashLSH(params=(BANDS, ROWS), num_perm=PERMUTATIONS)
        dropped = []
        for number, signature in enumerate(signatures):
            if index.query(signature):
                dropped.append(number)
            else:
                index.insert(number, signature, check_duplication=False)
    return dropped


given.measure(dedupe, {"datasketch": version("datasketch")}, HOW)
