"""What stops a report or a push."""


class PushRefused(Exception):
    """The data set, the repository or the token is not as it must be; the message says how."""


class PushFailed(Exception):
    """The Hub did not do its part; the message says what, and that it can be tried again."""


class NoRun(Exception):
    """There is no finished run to look at; the message says what to do."""
