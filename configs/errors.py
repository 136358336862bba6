"""The one base of errors that whoever typed the command can mend."""


class UserError(ValueError):
    """The message is one line that says what to change; commands print it and exit with code 2."""
