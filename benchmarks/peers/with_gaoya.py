"""gaoya: its index of strings, with its own shingles, which are its fastest way."""

from importlib.metadata import version

from contest import BANDS, ROWS, SHINGLE, THRESHOLD, contest
from gaoya.minhash import MinHashStringIndex

HOW = (
    "gaoya's own word 5-grams; a document is dropped when an earlier one agrees with it in a band, "
    "the signatures agree in 70 %, and that one is kept"
)

given = contest()
texts = given.texts()


def dedupe() -> list[int]:
    index = MinHashStringIndex(
        hash_size=32,
        jaccard_threshold=THRESHOLD,
        num_bands=BANDS,
        band_size=ROWS,
        analyzer="word",
        ngram_range=(SHINGLE, SHINGLE),
        id_container="smallvec",
    )
    numbers = list(range(len(texts)))
    with given.stage("shingle, sign and band"):
        index.par_bulk_insert_docs(numbers, texts)
    with given.stage("shingle, sign and query"):
        alike = index.par_bulk_query(texts)
    with given.stage("decide"):
        dropped: set[int] = set()
        for number in numbers:
            if any(other < number and other not in dropped for other in alike[number]):
                dropped.add(number)
    return list(dropped)


given.measure(dedupe, {"gaoya": version("gaoya")}, HOW)
