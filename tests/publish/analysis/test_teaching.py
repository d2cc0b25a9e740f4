from curate.publish.analysis.sections import pass_cell
from curate.publish.analysis.teaching import Question, rates


def test_rates_are_means_over_questions_not_over_answers() -> None:
    easy, hard = Question("a", "convert", 1), Question("b", "convert", 1)
    again = Question("c", "convert", 2)
    given = [(easy, True)] * 2 + [(hard, False)] * 3 + [(hard, True)] + [(again, False)]
    first, second = rates(given)
    assert (first.questions, first.answers, first.correct) == (2, 6, 3)
    assert first.pass_at == {1: (1 + 1 / 4) / 2, 2: (1 + 1 / 2) / 2, 4: 1.0}
    assert first.questions_at == {1: 2, 2: 2, 4: 1}
    assert [pass_cell(first, k) for k in (1, 2, 4)] == ["62.5%", "75.0%", "100.0% (1)"]
    assert (second.attempt, second.pass_at, pass_cell(second, 2)) == (2, {1: 0.0}, "")
